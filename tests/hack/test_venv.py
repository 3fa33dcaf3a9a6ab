"""A machine that lacks something is told what; in CI, as root, it is installed. The script runs with a PATH of its own."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOOLS = ("bash", "cat", "cut", "dirname", "sha256sum", "rm")


@pytest.fixture
def machine(tmp_path):
    """Return a checkout and a PATH with python3 and cc, and no other program than the script's own needs."""
    return Machine(tmp_path)


class Machine:
    def __init__(self, folder):
        self.checkout, self.bin = folder / "checkout", folder / "bin"
        self.bin.mkdir()
        for name in ("hack/venv.sh", "requirements/dev.txt", "pyproject.toml"):
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.checkout / name)
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.program("id", "echo 0")
        self.program("cc", "exit 0")
        self.program("python3", f'exec {sys.executable} "$@"')

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, ci=False):
        environment = {"PATH": str(self.bin), "CI": "true" if ci else "", "HOME": os.environ.get("HOME", "/")}
        command = [str(self.bin / "bash"), str(self.checkout / "hack" / "venv.sh")]
        return subprocess.run(command, check=False, env=environment, text=True, capture_output=True, timeout=60)


def without_compiler(machine):
    (machine.bin / "cc").unlink()


def without_venv(machine):
    machine.program("python3", f'[[ $2 == *ensurepip* ]] && exit 1; exec {sys.executable} "$@"')


LACKS = {
    without_compiler: "venv: a C compiler (cc) is missing. On Debian or Ubuntu: apt-get install build-essential",
    without_venv: "venv: the venv module of python3 is missing. On Debian or Ubuntu: apt-get install python3-venv",
}


@pytest.mark.parametrize(("lack", "expected"), LACKS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_missing_is_named_with_its_package(machine, lack, expected):
    lack(machine)
    done = machine.run()
    assert (done.returncode, done.stderr.splitlines()) == (1, [expected])


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.__name__)
def test_in_ci_as_root_it_is_installed(machine, lack):
    lack(machine)
    machine.program("apt-get", 'echo "$@" >>"$0.calls"; [[ $1 == update ]]')
    assert machine.run(ci=True).returncode != 0, "this apt-get installs nothing, and says so"
    package = LACKS[lack].split()[-1]
    assert (machine.bin / "apt-get.calls").read_text().splitlines() == [
        "update -qq",
        f"install -y -qq --no-install-recommends {package}",
    ]


def test_an_old_python_is_refused_by_name(machine):
    machine.program("python3", '[[ $1 == --version ]] && echo "Python 3.9.18"; exit 1')
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr.startswith("venv: python3 is Python 3.9.18: Muster needs Python 3.11 or newer.")


def test_an_environment_that_is_up_to_date_is_left_alone(machine):
    stamp = machine.checkout / ".venv" / "muster-stamp"
    stamp.parent.mkdir()
    version = f"Python {sys.version.split()[0]}"
    lists = "cat requirements/dev.txt pyproject.toml | sha256sum | cut -d' ' -f1"
    digest = subprocess.check_output(["bash", "-c", lists], cwd=machine.checkout, text=True).strip()
    stamp.write_text(f"{machine.checkout} {version} {digest}\n")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(stamp.parent.iterdir()) == [stamp]
