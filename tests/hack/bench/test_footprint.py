"""What processes weigh and cost, from the text and bits of /proc."""

import mmap
import os
import struct

import pytest

from hack.bench import footprint

MAPS = """\
00400000-00403000 r-xp 00002000 fd:01 131 /usr/lib/libpython with spaces.so
00600000-00601000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 r--p 00000000 fd:01 7
"""


def entries(*values):
    return struct.pack(f"={len(values)}Q", *values)


PRESENT_FILE = 1 << 63 | 1 << 61
PRESENT_OWN = 1 << 63
SWAPPED_FILE = 1 << 62 | 1 << 61


def test_only_mappings_of_files_count():
    page = mmap.PAGESIZE
    assert list(footprint.mappings(MAPS)) == [
        footprint.Mapping(first=0x400000 // page, end=0x403000 // page, offset=0x2000 // page, file=("fd:01", 131)),
        footprint.Mapping(first=0x7F0000000000 // page, end=0x7F0000001000 // page, offset=0, file=("fd:01", 7)),
    ]


def test_a_page_counts_while_it_is_in_memory_and_the_files_own():
    """A page that was written to is the process's, and one that is not in memory weighs nothing."""
    mapping = footprint.Mapping(first=0, end=4, offset=10, file=("fd:01", 131))
    found = footprint.file_pages(mapping, entries(PRESENT_FILE, PRESENT_OWN, SWAPPED_FILE, PRESENT_FILE))
    assert [page.number for page in found] == [10, 13]


def test_two_processes_share_the_pages_of_a_file():
    one = footprint.Mapping(first=0, end=2, offset=0, file=("fd:01", 131))
    other = footprint.Mapping(first=50, end=52, offset=1, file=("fd:01", 131))
    both = entries(PRESENT_FILE, PRESENT_FILE)
    pages = {*footprint.file_pages(one, both), *footprint.file_pages(other, both)}
    assert len(pages) == 3


@pytest.mark.parametrize("name", ["python", "a ) b", ") S 1 2"])
def test_time_is_read_whatever_the_program_is_called(name):
    stat = f"7 ({name}) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 0 0 20 0 1 0 5"
    assert footprint.ticks(stat) == 42


def test_a_real_process_alone_weighs_at_least_its_share():
    """Alone, a process pays for every page that it shares now."""
    pid = os.getpid()
    assert 0 < footprint.pss_mib(pid) <= footprint.alone_mib([pid]) + 0.5
    assert footprint.alone_mib([pid, pid]) < 2 * footprint.alone_mib([pid])
