"""The files of one lazily mounted layer: what it says of itself, and its content, piece by piece.

In: the folder it is mounted on. Out: text, sizes; OSError where it cannot be read.

Invariant: nothing outside the folder is ever opened. A layer is written by whoever made the image: no link is followed,
and only plain files are read.

Everything here blocks: lazy.py calls it in threads.
"""

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator

PIECE_BYTES = 1024 * 1024
_STATE = ".stargz-snapshotter"
"""Folder in the layer's root that no listing shows; it holds one file."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def state(folder: pathlib.Path) -> str:
    """Return the state file's text; FileNotFoundError: the layer says nothing of itself."""
    names = os.listdir(folder / _STATE)
    if not names:
        raise FileNotFoundError
    return (folder / _STATE / names[0]).read_text(errors="replace")


def probe(folder: pathlib.Path) -> None:
    """Read the beginning of one file, past the kernel's cache of it."""
    for descriptor in _files(folder):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.read(descriptor, 1)
        return


def pieces(folder: pathlib.Path) -> Iterator[int]:
    """Read every file; yield the size of each piece."""
    for descriptor in _files(folder):
        while size := len(os.read(descriptor, PIECE_BYTES)):
            yield size


def _files(folder: pathlib.Path) -> Iterator[int]:
    """Yield an open descriptor of each plain file that is not empty."""

    def fail(error: OSError) -> None:
        raise error

    for _, folders, names, place in os.fwalk(folder, onerror=fail, follow_symlinks=False):
        folders.sort()
        for name in sorted(names):
            if not stat.S_ISREG(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                continue
            descriptor = os.open(name, _FLAGS, dir_fd=place)
            try:
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_size:
                    yield descriptor
            finally:
                with contextlib.suppress(OSError):  # A daemon that is gone refuses that, too.
                    os.close(descriptor)
