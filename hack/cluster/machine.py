"""What tests on real programs need of this machine: is it there, and if not, get it.

In: the names that tests carry in their `real` marker: programs of versions.py, which are built; programs of DEBIAN,
which come from packages; and ROOT. Out: a reason why they cannot run here, or an empty text.

Invariant: asking changes nothing. Only `provide` builds, and installs packages only where it is told to: in CI, as
root. Elsewhere that is for the machine's owner to decide; the reason names the package.

Not here: which tests need what (their markers), and when anything is provided (tests/suites.py).
"""

import os
import shutil
import subprocess
from collections.abc import Iterable

from hack.cluster import assets, build, versions

DEBIAN = {
    "debian:containerd": "containerd",
    "docker-registry": "docker-registry",
    "promtool": "prometheus",
    "runc": "runc",
    "skopeo": "skopeo",
}
"""Program -> Debian package that brings it. With `debian:` before it, it is another one than the one of versions.py."""
ROOT = "root"
"""The right to make mount and PID namespaces; a container engine may keep it from root."""

_NAMESPACES = ("/usr/bin/unshare", "--mount", "--propagation=private", "--pid", "--fork", "--mount-proc", "/bin/true")


def reason_missing(names: Iterable[str], line: str) -> str:
    """Return why something that needs `names` cannot run here, or an empty text."""
    wanted = sorted(set(names))
    known = versions.programs(line)
    unknown = [name for name in wanted if name not in known and name not in DEBIAN and name != ROOT]
    if unknown:
        raise ValueError(f"nothing is known of {', '.join(unknown)}: versions.py and machine.py list what there is")
    built = [known[name] for name in wanted if name in known]
    missing = [program.name for program in built if assets.find(program) is None]
    reasons = [assets.reason_missing(built) or f"not built: {', '.join(missing)}; make test builds"] if missing else []
    reasons += [
        f"no {_program(name)}; on Debian: apt-get install {DEBIAN[name]}"
        for name in wanted
        if name in DEBIAN and assets.find_installed(_program(name)) is None
    ]
    reasons += [_reason_no_root()] if ROOT in wanted else []
    return "; ".join(filter(None, reasons))


def _program(name: str) -> str:
    return name.removeprefix("debian:")


def _reason_no_root() -> str:
    if os.geteuid():
        return "not root"
    done = subprocess.run(_NAMESPACES, check=False, text=True, capture_output=True)
    return f"root without namespaces: {done.stderr.strip()}" if done.returncode else ""


def provide(names: Iterable[str], line: str, *, installs: bool) -> None:
    """Build what can be built; where `installs`, install the packages that are missing."""
    wanted = sorted(set(names))
    known = versions.programs(line)
    packages = {DEBIAN[name] for name in wanted if name in DEBIAN and assets.find_installed(_program(name)) is None}
    if packages and installs and shutil.which("apt-get"):
        _install(sorted(packages))
    programs = [known[name] for name in wanted if name in known]
    if not assets.reason_missing(programs):
        build.ensure(programs)


def _install(packages: list[str]) -> None:
    build.say(f"installing {', '.join(packages)}")
    # In runlevel 1 Debian's invoke-rc.d starts no service of a package that has one.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *command],
            check=False,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise build.Failed(f"apt-get {command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def outlook(line: str) -> str:
    """Return one line on what a run of all tests will build; empty where nothing is missing."""
    programs = [*versions.programs(line).values()]
    reason = assets.reason_missing(programs)
    if reason:
        return f"{reason}: what needs them will be skipped"
    return build.outlook(programs)
