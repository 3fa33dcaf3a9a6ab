"""Promtool is found where it is, unpacked where it is not, and never installed. The script runs with a PATH of its own."""

import pathlib
import shutil
import stat
import subprocess

import pytest

from hack import promtool

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOOLS = ("bash", "cp", "dirname", "mkdir", "mktemp", "mv", "rm")


class Machine:
    """A checkout with the script, and programs that note how they were called."""

    def __init__(self, folder):
        self.checkout, self.bin, self.calls = folder / "checkout", folder / "bin", folder / "calls"
        (self.checkout / "hack").mkdir(parents=True)
        shutil.copy(ROOT / "hack" / "promtool.sh", self.checkout / "hack")
        self.bin.mkdir()
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.program("id", "echo 1000")

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\nprintf '%s\\n' \"{name} $*\" >>{self.calls}\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def debian(self):
        self.program("apt-get", "[[ $1 != download ]] || : >prometheus_2.deb")
        self.program("dpkg-deb", 'mkdir -p "$3/usr/bin"; cp "$0" "$3/usr/bin/promtool"')

    def run(self):
        command = [str(self.bin / "bash"), str(self.checkout / "hack" / "promtool.sh")]
        environment = {"PATH": str(self.bin), "TMPDIR": str(self.checkout)}
        return subprocess.run(command, check=False, env=environment, text=True, capture_output=True, timeout=60)

    def called(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_promtool_on_the_path_is_enough(machine):
    machine.program("promtool", "exit 1")
    assert (machine.run().returncode, machine.called()) == (0, [])


def test_it_is_unpacked_and_not_installed(machine):
    machine.debian()
    assert machine.run().returncode == 0
    assert (machine.checkout / ".build" / "promtool" / "promtool").stat().st_mode & stat.S_IXUSR
    called = [line for line in machine.called() if line.startswith("apt-get")]
    assert called == ["apt-get download -qq prometheus"], "no update without being root, and no install at all"
    assert sorted(path.name for path in machine.checkout.iterdir()) == [".build", "hack"], "nothing else is left"


def test_a_second_run_does_nothing(machine):
    machine.debian()
    machine.run()
    machine.calls.unlink()
    assert (machine.run().returncode, machine.called()) == (0, [])


def test_root_looks_what_there_is_first(machine):
    machine.debian()
    machine.program("id", "echo 0")
    machine.run()
    called = [line for line in machine.called() if line.startswith("apt-get")]
    assert called == ["apt-get update -qq", "apt-get download -qq prometheus"]


def test_elsewhere_it_says_what_is_missing(machine):
    done = machine.run()
    assert done.returncode == 1
    assert "put promtool on the PATH" in done.stderr


def test_a_download_that_fails_leaves_nothing_half_done(machine):
    machine.debian()
    machine.program("apt-get", "exit 100")
    assert machine.run().returncode != 0
    assert sorted(path.name for path in machine.checkout.iterdir()) == ["hack"]


def test_the_path_comes_before_what_was_unpacked(tmp_path, monkeypatch):
    unpacked = tmp_path / "unpacked"
    monkeypatch.setattr(promtool, "UNPACKED", unpacked)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert promtool.find() is None
    unpacked.write_text("")
    assert promtool.find() == unpacked
    own = tmp_path / "bin" / "promtool"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(own.parent))
    assert promtool.find() == own
