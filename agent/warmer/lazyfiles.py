"""The files of one lazily mounted layer: what it says of itself, and its content, piece by piece.

In: the folder it is mounted on, and the place in it where the last piece ended. Out: text, sizes, the next place; OSError
where it cannot be read.

Invariants: nothing outside the folder is ever opened. A layer is written by whoever made the image: no link is followed,
only plain files are read, and one call does a bounded share of it. Nothing stays open between two calls: an open file
keeps the mount from being taken away.

Why pieces count entries, too: a layer can be a million empty files, which are no bytes and take their time.

Everything here blocks: lazy.py calls it in threads.
"""

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import stat
from collections.abc import Generator, Iterator

PIECE_BYTES = 1024 * 1024
PIECE_ENTRIES = 4096
"""Of files and folders that are passed in one piece."""
MAX_DEPTH = 128
"""Of folders in folders; what lies deeper is not read ahead. Each holds a descriptor while a piece is read."""
STATE_BYTES = 64 * 1024
"""Far more than the few numbers and the error that a state file holds."""
_STATE = ".stargz-snapshotter"
"""Folder in the layer's root that no listing shows; it holds one file."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = _FLAGS | os.O_DIRECTORY
_FOREIGN = {errno.ELOOP, errno.ENOTDIR}
"""What opening says of a link, or of a file that is no folder."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to read on: a file by the names that lead to it, and how much of it was read."""

    path: tuple[str, ...] = ()
    offset: int = 0


BEGINNING = Place()


def state(folder: pathlib.Path) -> str:
    """Return the state file's text; FileNotFoundError: the layer says nothing of itself."""
    try:
        with _opened(folder / _STATE, _FOLDER_FLAGS) as parent:
            with os.scandir(parent) as entries:
                name = next((entry.name for entry in entries), "")  # That is no file, either.
            with _opened(name, _FLAGS, parent) as descriptor:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise FileNotFoundError
                return os.read(descriptor, STATE_BYTES).decode(errors="replace")
    except OSError as error:
        if error.errno in _FOREIGN:
            raise FileNotFoundError from error
        raise


def probe(folder: pathlib.Path, place: Place = BEGINNING) -> None:
    """Read one byte, the next one at that place or after it, past the kernel's cache of it."""
    with contextlib.closing(_entries(folder, place.path)) as entries:
        for path, parent, is_content in itertools.islice(entries, PIECE_ENTRIES):
            if not is_content:
                continue
            with _opened(path[-1], _FLAGS, parent) as descriptor:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                if os.pread(descriptor, 1, place.offset if path == place.path else 0):
                    return


def read(folder: pathlib.Path, place: Place = BEGINNING) -> tuple[int, Place | None]:
    """Read one piece; return its size and where the next one begins, None: there is none."""
    size, here = 0, place
    try:
        with contextlib.closing(_entries(folder, place.path)) as entries:
            for passed, (path, parent, is_content) in enumerate(entries):
                here = place if path == place.path else Place(path=path)
                if passed == PIECE_ENTRIES:
                    return size, here
                if not is_content:
                    continue
                with _opened(path[-1], _FLAGS, parent) as descriptor:
                    while step := len(os.pread(descriptor, PIECE_BYTES - size, here.offset)):
                        size, here = size + step, Place(path=path, offset=here.offset + step)
                        if size == PIECE_BYTES:
                            return size, here
    except OSError:
        if not size:
            raise
        # What came counts; the next call begins where this one failed, and fails there.
        return size, here
    return size, None


def _entries(folder: pathlib.Path, start: tuple[str, ...]) -> Generator[tuple[tuple[str, ...], int, bool]]:
    """Yield what a layer holds, in order, from a path on: the path, its open folder, and if it is a file with content."""
    path: tuple[str, ...] = ()
    levels: list[tuple[int, Iterator[str]]] = []
    try:
        levels.append(_level(folder, None, start[:1]))
        while levels:
            parent, names = levels[-1]
            name = next(names, None)
            if name is None:
                _close(levels.pop()[0])
                path = path[:-1]
                continue
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            here = (*path, name)
            yield here, parent, stat.S_ISREG(found.st_mode) and found.st_size > 0
            if stat.S_ISDIR(found.st_mode) and len(levels) < MAX_DEPTH:
                depth = len(here)
                levels.append(_level(name, parent, start[depth : depth + 1] if start[:depth] == here else ()))
                path = here
    finally:
        for parent, _ in levels:
            _close(parent)


def _level(name: str | pathlib.Path, parent: int | None, first: tuple[str, ...]) -> tuple[int, Iterator[str]]:
    """Open a folder; return it and the names in it, in order, from the first on."""
    descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        return descriptor, iter(sorted(each for each in os.listdir(descriptor) if (each,) >= first))
    except OSError:
        _close(descriptor)
        raise


@contextlib.contextmanager
def _opened(name: str | pathlib.Path, flags: int, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        _close(descriptor)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # A daemon that is gone refuses that, too.
        os.close(descriptor)
