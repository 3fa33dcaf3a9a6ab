"""What the host's process table says: the boot, when kubelet and plugins started, whose a process is.

Input: procfs under a root. Output: planes.Boot, kube.Plugin, start times and cgroup paths.

Invariant: a process id means something only in the host's PID namespace. Where that view is missing nothing is joined
by pid, since the same number is some other process in ours. Anybody may call their process kubelet: one in a pod's cgroup is the kubelet only where there
is no other (a node that is itself a pod).

Why not psutil here: it knows one /proc, and one file per question is all that is asked.
"""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Iterable

from agent.core import cgroup
from agent.model import planes
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

NO_HOST_VIEW = Unknown("NoHostPidView", "the reader does not see the host's processes")
_PREFIX = "nvidia.com"
_PREFERRED = "preferredAllocation"
"""As the plugin's settings in a capture are named."""
_OWN = pathlib.Path("/proc")
_COMM_LENGTH = 15
"""The kernel cuts a process name to this."""
_LATEST_BOOT = 1 << 34
"""The year 2514: what is later would overflow when a process's age is added to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostProcess:
    pid: int
    executable: str
    """Base name of the first argument, or the kernel's name of the process."""
    started_at: datetime.datetime
    is_in_pod: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SocketFacts:
    """What the sockets tell of a plugin."""

    present: Reading[bool]
    """Beside the kubelet's own."""
    connected: Reading[bool] = NOT_COLLECTED
    elsewhere: str = ""
    """Folder of another kubelet's root where it serves; empty: nowhere else."""
    preferred_allocation: str = ""
    """`true`, `false`, or empty: it has not said."""


def read_boot(proc_root: pathlib.Path) -> Reading[planes.Boot]:
    """Return the boot's id and time."""
    try:
        boot_id = (proc_root / "sys/kernel/random/boot_id").read_text().strip()
        return Known(planes.Boot(id=boot_id, at=_boot_time(proc_root)))
    except (OSError, ValueError, IndexError) as error:
        return Unknown("Unreadable", str(error))


def _boot_time(proc_root: pathlib.Path) -> datetime.datetime:
    for line in (proc_root / "stat").read_text().splitlines():
        if line.startswith("btime "):
            seconds = int(line.split()[1])
            if not 0 <= seconds < _LATEST_BOOT:
                raise ValueError(f"btime {seconds} is no time of a boot")
            return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    raise ValueError(f"{proc_root / 'stat'} has no btime")


def has_host_view(proc_root: pathlib.Path) -> bool:
    """Another root than /proc is a mount of the host's; in our own, process 2 is the kernel's only on the host."""
    return proc_root != _OWN or read_name(proc_root, 2) == "kthreadd"


def read_name(proc_root: pathlib.Path, pid: int) -> str:
    """Return the executable's base name, or empty."""
    if proc_root == _OWN and pid != 2 and not has_host_view(proc_root):
        return ""
    return _executable(proc_root / str(pid))


def _executable(process: pathlib.Path) -> str:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        name = (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    first = os.path.basename(arguments[0].decode(errors="replace"))
    # A process may overwrite its arguments; they are believed only where they agree with the kernel's name.
    return first if first[:_COMM_LENGTH] == name else name


def read_cgroup(proc_root: pathlib.Path, pid: int) -> Reading[str]:
    """Return the cgroup path of a process: version 2's only one, or version 1's of the memory controller."""
    if not has_host_view(proc_root):
        return NO_HOST_VIEW
    try:
        lines = (proc_root / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return Unknown("ProcessGone")
    except OSError as error:
        return Unknown("Unreadable", str(error))
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    for controller, path in paths.items():
        if "memory" in controller.split(","):
            return Known(path)
    return Known(paths[""]) if "" in paths else Unknown("NoCgroup")


def list_named(proc_root: pathlib.Path, names: Iterable[str]) -> Reading[tuple[HostProcess, ...]]:
    """Return the processes whose executable has one of these names, oldest first."""
    if not has_host_view(proc_root):
        return NO_HOST_VIEW
    wanted = {name: name for name in names}
    wanted |= {name[:_COMM_LENGTH]: name for name in names}
    try:
        booted_at = _boot_time(proc_root)
        pids = [int(entry.name) for entry in os.scandir(proc_root) if entry.name.isdecimal()]
    except (OSError, ValueError, IndexError) as error:
        return Unknown("Unreadable", str(error))
    found = []
    for pid in pids:
        name = _executable(proc_root / str(pid))
        if name in wanted and (started_at := _started_at(proc_root, pid, booted_at)) is not None:
            found.append(
                HostProcess(
                    pid=pid,
                    executable=wanted[name],
                    started_at=started_at,
                    is_in_pod=_is_in_pod(read_cgroup(proc_root, pid)),
                )
            )
    return Known(tuple(sorted(found, key=lambda process: (process.started_at, process.pid))))


def _is_in_pod(path: Reading[str]) -> bool:
    match path:
        case Known(text):
            return cgroup.owner_of(text) != Known("")
        case Unknown():
            return False


def _started_at(proc_root: pathlib.Path, pid: int, booted_at: datetime.datetime) -> datetime.datetime | None:
    try:
        text = (proc_root / str(pid) / "stat").read_text(errors="replace")
        ticks = int(text.rpartition(")")[2].split()[19])  # Field 22, counted from 3 after the name.
        seconds = ticks / os.sysconf("SC_CLK_TCK")
        return booted_at + datetime.timedelta(milliseconds=round(seconds * 1000))
    except (OSError, ValueError, IndexError, OverflowError):
        return None  # Gone since it was listed, or not a line of the kernel's.


def kubelet_started_at(found: Reading[tuple[HostProcess, ...]], names: Iterable[str]) -> Reading[datetime.datetime]:
    """Return when the youngest kubelet process started."""
    match found:
        case Known(all_found):
            starts = [process.started_at for process in _kubelets(all_found, names)]
            return Known(max(starts)) if starts else Unknown("NotFound", "no kubelet process")
        case Unknown():
            return found


def kubelet_pids(found: Reading[tuple[HostProcess, ...]], names: Iterable[str]) -> tuple[int, ...]:
    """Return the kubelets' process ids, oldest first; none where the host's processes are not seen."""
    match found:
        case Known(all_found):
            return tuple(process.pid for process in _kubelets(all_found, names))
        case Unknown():
            return ()


def _kubelets(found: Iterable[HostProcess], names: Iterable[str]) -> list[HostProcess]:
    wanted = tuple(names)
    named = [process for process in found if process.executable in wanted]
    return [process for process in named if not process.is_in_pod] or named


def plugins(
    found: Reading[tuple[HostProcess, ...]], names: Iterable[str], sockets: SocketFacts
) -> Reading[tuple[kube.Plugin, ...]]:
    """Return the node's half of what is known of the device plugin; the pod half comes with the admitter's slice."""
    alive: Reading[bool]
    started: Reading[datetime.datetime]
    match found, sockets.present:
        case Known(all_found), _:
            starts = [process.started_at for process in all_found if process.executable in tuple(names)]
            # The oldest: a process that somebody names like the plugin must not answer refusals as its restart would (faults.md B3).
            alive, started = Known(bool(starts)), Known(min(starts)) if starts else Unknown("NotFound")
        case Unknown() as unread, Known():
            alive, started = unread, unread
        case Unknown() as unread, _:
            return unread
    plugin = kube.Plugin(
        resource_prefix=_PREFIX,
        process_alive=alive,
        started_at=started,
        socket_present=sockets.present,
        socket_dir=sockets.elsewhere,
        connected=sockets.connected,
        config=codec.freeze({_PREFERRED: sockets.preferred_allocation})
        if sockets.preferred_allocation
        else codec.EMPTY,
    )
    return Known((plugin,))


def read_own_usage() -> tuple[float, int]:
    """Return the reader's own processor time in seconds and resident memory in bytes; 0 bytes if the kernel does not say."""
    used = os.times()
    try:
        # proc_pid_statm(5): the second field is the resident set, in pages.
        pages = int((_OWN / "self" / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        pages = 0
    return used.user + used.system, pages * os.sysconf("SC_PAGE_SIZE")
