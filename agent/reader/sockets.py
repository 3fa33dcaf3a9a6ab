"""What the kubelet's folders show of device plugins and DRA drivers: socket files, and who is connected to them.

Input: the kubelet's folders, other kubelets' usual folders, the kernel's table of unix sockets as the kubelet's network
namespace has it. Output: `Listing`, and whether a stream from the kubelet to a plugin is open.

Invariant: a folder that cannot be read is Unknown, never empty; and so is a registry whose kubelet is somewhere else, since a
driver that is missing there is missing nowhere (faults.md A9, G3).

Why the kernel's table: the kubelet's side of the stream is told nowhere else. A socket that a server has accepted carries the
server's path and belongs to the namespace of whoever dialled, so it stands in the kubelet's table, whichever pod serves.

Not here: asking a socket who it is (socketcalls.py).
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator

from muster.model.reading import Known, Reading, Unknown

KUBELET_SOCKET = "kubelet.sock"
_FOLDER = "device-plugins"
_MOST_SOCKETS = 256
"""In one folder: a node has a plugin and a driver or two; more is somebody's mistake, and no work for us."""
_LARGEST_TABLE_BYTES = 16 << 20
_CONNECTED = "03"
"""SS_CONNECTED of linux/net.h; 02 is a connection that the server has not accepted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Socket:
    """A socket file. Another file of the same name is another value."""

    path: pathlib.Path
    inode: int
    changed_ns: int
    """Inode numbers are given out again at once."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is there at one moment."""

    plugins: Reading[tuple[Socket, ...]]
    """Our plugins' beside the kubelet's registration socket."""
    elsewhere: tuple[Socket, ...]
    """Our plugins' in folders without one."""
    drivers: Reading[tuple[Socket, ...]]
    """Registration sockets of every kind: their names do not tell CSI from DRA."""


def is_plugins(name: str) -> bool:
    """Return whether a plugin of ours names its socket so: NVIDIA's and GKE's begin with the vendor.

    >>> is_plugins("nvidia-gpu.sock"), is_plugins("nvidiaGPU-1700000000.sock"), is_plugins("kubelet.sock")
    (True, True, False)
    """
    return name.startswith("nvidia") and name.endswith(".sock")


def look(plugins: pathlib.Path, registry: pathlib.Path, host_root: pathlib.Path, roots: Iterable[str]) -> Listing:
    """Look at all folders."""
    return Listing(
        plugins=_plugins_in(plugins),
        elsewhere=tuple(
            found
            for folder in _others(plugins, host_root, roots)
            if not (folder / KUBELET_SOCKET).exists()
            for found in known(_plugins_in(folder))
        ),
        drivers=_drivers_in(registry, plugins),
    )


def folder_on_host(socket: Socket, host_root: pathlib.Path) -> str:
    """Return a socket's folder as the host names it.

    >>> there = Socket(path=pathlib.Path("/host/var/lib/k0s/kubelet/device-plugins/nvidia-gpu.sock"), inode=1, changed_ns=1)
    >>> folder_on_host(there, pathlib.Path("/host"))
    '/var/lib/k0s/kubelet/device-plugins'
    """
    return str(pathlib.Path("/") / socket.path.parent.relative_to(host_root))


def read_connected(proc_root: pathlib.Path, kubelets: Iterable[int]) -> Reading[bool]:
    """Return whether a kubelet has a stream open to one of our plugins."""
    tables = [_read_table(proc_root / str(pid) / "net" / "unix") for pid in kubelets]
    if not tables:
        return Unknown("NotFound", "no kubelet process")
    known = [table.value for table in tables if isinstance(table, Known)]
    if any(_has_connected(lines) for lines in known):
        return Known(value=True)
    failed = [table for table in tables if isinstance(table, Unknown)]
    return failed[0] if failed else Known(value=False)


def _read_table(path: pathlib.Path) -> Reading[list[str]]:
    try:
        with path.open("rb") as file:
            table = file.read(_LARGEST_TABLE_BYTES + 1)
    except OSError as error:
        return Unknown("Unreadable", str(error))
    if len(table) > _LARGEST_TABLE_BYTES:
        return Unknown("TooLarge", f"{path} has more than {_LARGEST_TABLE_BYTES} bytes")
    return Known(table.decode(errors="replace").splitlines())


def _has_connected(lines: list[str]) -> bool:
    """Num RefCount Protocol Flags Type St Inode Path; the path is the one that the server bound, in its own container."""
    for line in lines:
        parts = line.split(None, 7)
        if len(parts) == 8 and parts[5] == _CONNECTED:
            folder, _, name = parts[7].rpartition("/")
            # GKE's plugin mounts the folder as /device-plugin.
            if is_plugins(name) and folder.endswith((_FOLDER, _FOLDER.rstrip("s"))):
                return True
    return False


def _others(plugins: pathlib.Path, host_root: pathlib.Path, roots: Iterable[str]) -> Iterator[pathlib.Path]:
    """Yield the device-plugin folders of other usual kubelet roots."""
    for root in roots:
        folder = host_root / root.lstrip("/") / _FOLDER
        try:
            if not os.path.samefile(folder, plugins):
                yield folder
        except OSError:
            # Ours is missing, or it is: the second makes an empty list below.
            yield folder


def _plugins_in(folder: pathlib.Path) -> Reading[tuple[Socket, ...]]:
    try:
        return Known(tuple(found for found in _sockets(folder, follow=False) if is_plugins(found.path.name)))
    except OSError as error:
        return Unknown("Unreadable", str(error))


def _drivers_in(registry: pathlib.Path, plugins: pathlib.Path) -> Reading[tuple[Socket, ...]]:
    try:
        found = tuple(_sockets(registry, follow=True))
    except OSError as error:
        return Unknown("Unreadable", str(error))
    if not (plugins / KUBELET_SOCKET).exists():
        return Unknown("NoKubeletHere", f"no {KUBELET_SOCKET} in {plugins}: the kubelet may watch another folder")
    return Known(found)


def _sockets(folder: pathlib.Path, *, follow: bool) -> Iterator[Socket]:
    """Yield the files of a folder that could be sockets; `follow`: of its folders too, as the kubelet's watcher does."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:_MOST_SOCKETS]
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # Gone since it was listed.
        if stat.S_ISDIR(status.st_mode) and follow:
            yield from _sockets(pathlib.Path(entry.path), follow=False)
        elif entry.name.endswith(".sock") and _is_text(entry.path):
            yield Socket(path=pathlib.Path(entry.path), inode=status.st_ino, changed_ns=status.st_ctime_ns)


def _is_text(path: str) -> bool:
    """False for a name of bytes that are no UTF-8: neither gRPC nor an answer of ours can carry it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def known(reading: Reading[tuple[Socket, ...]]) -> tuple[Socket, ...]:
    """Return the sockets; none where the folder could not be read."""
    match reading:
        case Known(found):
            return found
        case Unknown():
            return ()
