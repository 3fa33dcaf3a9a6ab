"""A fake process table: the files under `proc/<pid>` that say what a process is, since when, and whose.

In: a host's root and a Process. Out: `stat`, `comm`, `cmdline` and `cgroup` in the kernel's form; start times are clock
ticks since the boot in `proc/stat` (field 22).

Cgroup texts come in every form that a kubelet makes: version 1 and 2, systemd and cgroupfs driver, each QoS class.

Not here: what a process does to a GPU (host.py edits both).
"""

import dataclasses
import datetime
import os
import pathlib
import shutil

COMM_LENGTH = 15
"""The kernel cuts a process name to this."""
BOOT_FILE = ".btime"
"""Beside what a reader sees: when the machine really booted."""
HOST_CGROUP = "0::/user.slice/user-1000.slice/session-3.scope\n"
V1_CONTROLLERS = ("12:memory", "11:pids", "4:cpu,cpuacct", "1:name=systemd")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    arguments: tuple[str, ...]
    cgroup: str = HOST_CGROUP
    """Text of proc/<pid>/cgroup."""

    @property
    def name(self) -> str:
        return os.path.basename(self.arguments[0])[:COMM_LENGTH]


def pod_cgroup(uid: str, *, version: int = 2, driver: str = "systemd", qos: str = "burstable") -> str:
    """Return the cgroup text of a container of the pod; `qos` is burstable, besteffort or guaranteed.

    >>> pod_cgroup("a-b", qos="guaranteed")
    '0::/kubepods.slice/kubepods-poda_b.slice/cri-containerd-c0ffee.scope\\n'
    """
    tier = "" if qos == "guaranteed" else qos
    if driver == "systemd":
        middle = f"kubepods-{tier}" if tier else "kubepods"
        folders = ["kubepods.slice", *([f"{middle}.slice"] if tier else [])]
        # systemd reads "-" as a level of the tree, so the kubelet writes the UID with "_".
        folders += [f"{middle}-pod{uid.replace('-', '_')}.slice", "cri-containerd-c0ffee.scope"]
    else:
        folders = ["kubepods", *([tier] if tier else []), f"pod{uid}", "c0ffee"]
    return cgroup_text("/" + "/".join(folders), version=version)


def cgroup_text(path: str, *, version: int = 2) -> str:
    """Return a cgroup file that names this path: one line in version 2, one a controller in version 1."""
    heads = ("0:",) if version == 2 else V1_CONTROLLERS
    return "".join(f"{head}:{path}\n" for head in heads)


def add(root: pathlib.Path, process: Process, started_at: datetime.datetime) -> None:
    """Put the process into the table; it stands there complete or not at all."""
    folder = root / "proc" / str(process.pid)
    unfinished = root / "proc" / f".{process.pid}.new"
    unfinished.mkdir()
    (unfinished / "comm").write_text(f"{process.name}\n")
    (unfinished / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in process.arguments))
    (unfinished / "cgroup").write_text(process.cgroup)
    ticks = round((started_at - boot_time(root)).total_seconds() * os.sysconf("SC_CLK_TCK"))
    # Fields 3 to 21, then the start time, then the rest up to 52.
    fields = ["S", "1", *["0"] * 17, str(ticks), *["0"] * 30]
    (unfinished / "stat").write_text(f"{process.pid} ({process.name}) {' '.join(fields)}\n")
    unfinished.rename(folder)


def remove(root: pathlib.Path, pid: int) -> None:
    """Take the process out of the table."""
    gone = root / "proc" / f".{pid}.gone"
    (root / "proc" / str(pid)).rename(gone)
    shutil.rmtree(gone)


def pids_named(root: pathlib.Path, name: str) -> tuple[int, ...]:
    """List the processes whose first argument has this base name."""
    found = []
    for folder in (root / "proc").glob("[0-9]*"):
        try:
            first = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
        except FileNotFoundError:  # ended since the folder was listed, as in a real /proc
            continue
        if os.path.basename(first) == name:
            found.append(int(folder.name))
    return tuple(sorted(found))


def next_pid(root: pathlib.Path) -> int:
    """Return a pid that the table has not held since the boot."""
    counter = root / "proc" / ".last_pid"
    pid = int(counter.read_text()) + 1 if counter.exists() else 1001
    counter.write_text(str(pid))
    return pid


def boot_time(root: pathlib.Path) -> datetime.datetime:
    """Return the boot's time, whole seconds as the kernel says it; what a test has made of proc/stat since is no matter."""
    return datetime.datetime.fromtimestamp(int((root / "proc" / BOOT_FILE).read_text()), datetime.UTC)
