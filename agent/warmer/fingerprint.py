"""What an image's files are like: enough to see that some are missing, empty or of zeros after a power loss.

In: the folders of an image's layers. Out: a short text, the same for the same files.

Invariants: bounded: at most MAX_FILES are named and SAMPLES of them read, always the same ones. Nothing outside the folders
is opened, whatever links an image holds, and nothing but regular files. What only its owner may read is named, not read.

Why not containerd's own Usage: of a committed overlayfs snapshot it returns what was noted at the commit, whatever became
of the files since (2.2.9 and 1.6: tests/agent/warmer/test_unclean.py). So names and sizes are walked, where metadata that
was not written shows, and the ends of some files are read, where data does (images.md section 11).
"""

import hashlib
import heapq
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator

MAX_FILES = 200_000
"""More than most CUDA images hold; a walk of so many takes some seconds."""
SAMPLES = 64
END_BYTES = 128 * 1024
"""Read at the beginning and at the end of a file: 16 MiB in all."""


def of(folders: Iterable[pathlib.Path]) -> str:
    """Return the fingerprint; empty: they cannot be read from here."""
    found, count = hashlib.sha256(), 0
    sample: list[tuple[bytes, bytes]] = []
    try:
        for number, folder in enumerate(folders):
            for path, size in _files(os.fsencode(folder)):
                if count == MAX_FILES:
                    break
                count += 1
                entry = b"%d %s %d\n" % (number, path.removeprefix(os.fsencode(folder)), size)
                found.update(entry)
                sample.append((hashlib.blake2b(entry, digest_size=8).digest(), path))
                if len(sample) > 16 * SAMPLES:
                    sample = heapq.nsmallest(SAMPLES, sample)
        for _, path in heapq.nsmallest(SAMPLES, sample):
            found.update(_ends(path))
    except OSError:
        return ""
    return f"{count} files {found.hexdigest()[:32]}" if count else ""


def _files(folder: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield all regular files below a folder with their sizes, in an order that does not change."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except PermissionError:  # A warmer without CAP_DAC_OVERRIDE.
            continue
        for entry in ordered:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False).st_size


def _ends(path: bytes) -> bytes:
    """Return the digest of a file's ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return b"-"
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"-"
        data = os.pread(descriptor, END_BYTES, 0)
        data += os.pread(descriptor, END_BYTES, max(len(data), status.st_size - END_BYTES))
    finally:
        os.close(descriptor)
    return hashlib.blake2b(data, digest_size=16).digest()
