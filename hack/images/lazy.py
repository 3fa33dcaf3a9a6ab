"""stargz-snapshotter as a daemon of its own, for a containerd that mounts images lazily.

In: a folder and whether it fetches by itself. Out: a socket that containerd's `proxy_plugins` can name.

Invariant: its mounts end with it. A FUSE mount whose daemon was killed answers nothing but errors; they are unmounted.
"""

import pathlib
import shutil
import socket
import subprocess

from hack.cluster import assets, versions
from hack.images import process

NAME = "stargz"


def built() -> pathlib.Path | None:
    """Return the daemon that hack/cluster built, or None."""
    return assets.find(versions.programs(versions.line_name())[NAME])


class Stargz:
    """One daemon; it can be killed and started again on the same folder."""

    def __init__(self, folder: pathlib.Path, binary: pathlib.Path, *, in_background: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.root, self.socket = folder, folder / "root", folder / "s.sock"
        command = [str(binary), "-address", str(self.socket), "-root", str(self.root)]
        command += ["-background"] if in_background else []
        self._child = process.Child(command, folder / "stargz.log")

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._child.start(self._answers)

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            place = line.split()[1]
            if place.startswith(f"{self.root}/"):
                subprocess.run(["umount", "-l", place], check=False)

    def remove(self) -> None:
        """Delete the folder; the daemon must have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True
