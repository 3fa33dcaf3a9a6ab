"""What processes weigh together and what they cost, from /proc.

In: pids. Out: MiB and CPU seconds.

Why two weights: a proportional set size (PSS) splits a page among everybody who maps it. On this machine the admitter,
the fake kubelet and the benchmark itself map the same interpreter and libraries, so the sum of PSS is below what the
processes weigh on a node of their own. `alone` counts each page of a file once, and every other page of theirs.
"""

import mmap
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PROC = pathlib.Path("/proc")
_MIB = 1 << 20
_ENTRY_BYTES = 8
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
"""Bits of an entry of /proc/PID/pagemap (the kernel's Documentation/admin-guide/mm/pagemap.rst)."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) ([1-9]\d*)\b")


class FilePage(NamedTuple):
    """One page of one file."""

    file: tuple[str, int]
    """Device and inode."""
    number: int


class Mapping(NamedTuple):
    """A part of a file in a process's memory; addresses and the offset into the file are in pages."""

    first: int
    end: int
    offset: int
    file: tuple[str, int]


def pss_mib(pid: int) -> float:
    """Return the proportional set size."""
    return _rollup((_PROC / str(pid) / "smaps_rollup").read_text(), "Pss")


def alone_mib(pids: Iterable[int]) -> float:
    """Return what the processes would weigh if nobody else shared a page with them."""
    pages: set[FilePage] = set()
    own = 0.0
    for pid in pids:
        folder = _PROC / str(pid)
        own += _rollup((folder / "smaps_rollup").read_text(), "Pss_Anon")
        with (folder / "pagemap").open("rb") as pagemap:
            for mapping in mappings((folder / "maps").read_text()):
                pagemap.seek(mapping.first * _ENTRY_BYTES)
                pages |= set(file_pages(mapping, pagemap.read((mapping.end - mapping.first) * _ENTRY_BYTES)))
    return own + len(pages) * mmap.PAGESIZE / _MIB


def cpu_seconds(pid: int) -> float:
    """Return the time a process has spent so far, in user and kernel mode."""
    return ticks((_PROC / str(pid) / "stat").read_text()) / os.sysconf("SC_CLK_TCK")


def ticks(stat: str) -> int:
    """Return utime + stime of a line of /proc/PID/stat.

    >>> ticks("7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 0 0 20 0")
    42
    """
    # The name may hold anything, a closing bracket too; utime and stime are the 14th and 15th fields.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def mappings(maps: str) -> Iterator[Mapping]:
    """Yield the mappings of files in the text of /proc/PID/maps."""
    for found in _MAPPING.finditer(maps):
        first, end, offset = (int(found[group], 16) // mmap.PAGESIZE for group in (1, 2, 3))
        yield Mapping(first=first, end=end, offset=offset, file=(found[4], int(found[5])))


def file_pages(mapping: Mapping, entries: bytes) -> Iterator[FilePage]:
    """Yield the file's pages that are in memory; a page the process has written to is its own and no longer the file's."""
    for position, entry in enumerate(memoryview(entries).cast("Q")):
        if entry & _PRESENT and entry & _OF_FILE:
            yield FilePage(file=mapping.file, number=mapping.offset + position)


def _rollup(text: str, key: str) -> float:
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{key}:")) / 1024
