"""What a kernel log says, in every form and from any bytes."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import planes
from agent.reader import kernel_log

BOOT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


def log(*records):
    told = []
    the_log = kernel_log.KernelLog(BOOT, told.append)
    for record in records:
        the_log.feed_record(record)
    return the_log, told


def texts(the_log):
    return [record.text for record in the_log.records]


def test_a_record_has_its_time_from_boot():
    the_log, told = log(b"3,17,2500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n SUBSYSTEM=pci\n")
    expected = planes.KernelRecord(
        at=BOOT + datetime.timedelta(seconds=2.5), text="NVRM: Xid (PCI:0000:1b:00): 79, pid=1"
    )
    assert the_log.records == (expected,)
    assert told == [expected]


def test_records_about_other_things_are_left_out():
    the_log, _ = log(
        b"6,1,1,-;eth0: link up", b"6,2,2,-;nvidia 0000:1b:00.0: probe with driver nvidia failed with error -1"
    )
    assert texts(the_log) == ["nvidia 0000:1b:00.0: probe with driver nvidia failed with error -1"]


def test_what_a_program_wrote_into_the_log_is_not_the_drivers_word():
    the_log, told = log(
        b"12,1,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1", b"4,2,1,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1"
    )
    assert [kernel_log.xid_of(record).xid.code for record in told] == [31]
    assert len(the_log.records) == 1


def test_a_record_is_taken_once_however_often_it_is_read():
    """After an overrun, or when the file is opened anew, the ring is read from its start."""
    the_log, told = log(b"3,5,1,-;NVRM: a", b"3,6,1,-;NVRM: b", b"3,5,1,-;NVRM: a", b"3,9,1,-;NVRM: c")
    assert texts(the_log) == ["NVRM: a", "NVRM: b", "NVRM: c"]
    assert len(told) == 3


@pytest.mark.parametrize(
    "parts",
    [
        (
            b"NVRM: The NVIDIA GPU 0000:8d:00.0",
            b"NVRM: (PCI ID: 10de:2330) installed in this system has",
            b"NVRM: fallen off the bus and is not responding to commands.",
        ),
        (
            rb"NVRM: The NVIDIA GPU 0000:8d:00.0\x0aNVRM: (PCI ID: 10de:2330) installed in this system has",
            b"NVRM: fallen off the bus and is not responding to commands.",
        ),
        (
            b"NVRM: The NVIDIA GPU 0000:8d:00.0",
            b"               (PCI ID: 10de:2330) installed in this system has nvidia",
            b"               fallen off the bus and is not responding to commands.",
        ),
        (b"NVRM: The NVIDIA GPU 0000:8d:00.0 has fallen off the bus and is not responding to commands.",),
    ],
    ids=["a record a line", "escaped line ends", "without the prefix", "one record"],
)
def test_a_lost_gpu_without_an_xid_is_one_record(parts):
    records = [b"3,%d,1000,-;%s" % (number, part) for number, part in enumerate(parts)]
    the_log, told = log(*records, b"3,90,1,-;NVRM: something else")
    assert len(the_log.records) == len(told) == 2
    found = kernel_log.xid_of(told[0])
    assert (found.pci, found.xid.code, found.xid.source) == ("0000:8d:00.0", 79, planes.XidSource.KERNEL_LOG)


def test_a_message_that_never_ends_does_not_swallow_the_next():
    the_log, told = log(
        b"3,1,1,-;NVRM: The NVIDIA GPU 0000:8d:00.0",
        b"3,2,1,-;NVRM: Xid (PCI:0000:8d:00): 62, pid=1",
        b"6,3,1,-;eth0: up",
        b"3,4,1,-;NVRM: The NVIDIA GPU 0000:8e:00.0",
    )
    assert [record.text[:24] for record in told] == ["NVRM: The NVIDIA GPU 000", "NVRM: Xid (PCI:0000:8d:0"]
    assert len(the_log.records) == 3  # What is still open is shown.


@pytest.mark.parametrize(
    ("text", "pci", "code", "gi", "ci"),
    [
        ("NVRM: Xid (PCI:0000:1B:00): 79, pid='<unknown>'", "0000:1b:00.0", 79, None, None),
        ("NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed", "0009:01:00.0", 154, None, None),
        ("NVRM: Xid (PCI:0000:1b:00 GPU-I:07): 31, pid=2", "0000:1b:00.0", 31, 7, None),
        ("NVRM: Xid (PCI:0000:1b:00 GPU-I:07 GPU-CI:01): 31, pid=2", "0000:1b:00.0", 31, 7, 1),
        ("NVRM: Xid (PCI:1b:00): 13", "0000:1b:00.0", 13, None, None),
    ],
)
def test_xids(text, pci, code, gi, ci):
    found = kernel_log.xid_of(planes.KernelRecord(at=BOOT, text=text))
    assert (found.pci, found.xid.code, found.xid.gi, found.xid.ci) == (pci, code, gi, ci)


def test_a_record_without_an_xid_tells_none():
    assert kernel_log.xid_of(planes.KernelRecord(at=BOOT, text="NVRM: RmInitAdapter failed! (0x24:0x1:1)")) is None


def test_what_is_not_utf8_or_not_printable_is_still_one_line():
    the_log, _ = log(b"3,1,1,-;NVRM: \xff\xfe \\x1b[31m\\x0aend")
    assert texts(the_log) == ["NVRM: \ufffd\ufffd  [31m end"]


def test_the_newest_are_kept():
    the_log, _ = log(*(b"3,%d,1,-;NVRM: %d" % (number, number) for number in range(500)))
    assert len(the_log.records) == kernel_log.NEWEST
    assert texts(the_log)[-1] == "NVRM: 499"


def test_a_flood_of_a_program_s_xids_pushes_out_no_fatal_one_nor_the_last_of_another_kind():
    said = (
        b"NVRM: Xid (PCI:0000:1b:00): 79, pid=1",
        b"nvidia 0000:1c:00.0: probe failed",
        b"NVRM: Xid (PCI:0000:1c:00): 31, x",
    )
    flood = (b"NVRM: Xid (PCI:0000:1b:00): 13, pid=%d" % number for number in range(1000))
    the_log, told = log(*(b"3,%d,1,-;%s" % (number, text) for number, text in enumerate((*said, *flood))))
    assert len(told) == 1003
    assert len(the_log.records) == kernel_log.NEWEST
    assert [text.encode() for text in texts(the_log)[:3]] == list(said)
    assert texts(the_log)[-1].endswith("pid=999")


def test_fatal_ones_alone_are_bounded_too():
    the_log, _ = log(*(b"3,%d,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=%d" % (n, n) for n in range(500)))
    assert len(the_log.records) == kernel_log.NEWEST
    assert texts(the_log)[-1].endswith("pid=499")


def test_a_line_without_its_end_waits_for_the_rest():
    the_log = kernel_log.KernelLog(BOOT, lambda record: None)
    the_log.feed_file(b"3,1,1,-;NVRM: ha")
    assert the_log.records == ()
    the_log.feed_file(b"lf\n3,2,1,-;NVRM: x")
    assert texts(the_log) == ["NVRM: half"]


_RECORDS = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda sequence, usec, text: b"3,%d,%d,-;%s" % (sequence, usec, text),
        st.integers(0, 10**20),
        st.integers(0, 10**20),
        st.one_of(
            st.binary(max_size=80),
            st.sampled_from(
                [
                    b"NVRM: The NVIDIA GPU 0000:8d:00.0",
                    b"NVRM: Xid (PCI:0000:1b:00): 79",
                    b"NVRM: Xid (PCI:::::::::): 1",
                    b"NVRM: fallen off the bus",
                    rb"NVRM \x0a\xff\x",
                ]
            ),
        ),
    ),
)


@given(st.lists(_RECORDS, max_size=12))
def test_nothing_raises_and_every_record_is_bounded_text(records):
    the_log, told = log(*records)
    for record in (*the_log.records, *told):
        assert len(record.text) <= 1000
        assert "\n" not in record.text
        assert kernel_log.xid_of(record) is None or kernel_log.xid_of(record).pci


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_a_file_cut_anywhere_says_the_same(pieces):
    whole = kernel_log.KernelLog(BOOT, lambda record: None)
    whole.feed_file(b"".join(pieces))
    cut = kernel_log.KernelLog(BOOT, lambda record: None)
    for piece in pieces:
        cut.feed_file(piece)
    assert cut.records == whole.records


def test_a_line_without_an_end_is_bounded():
    """Nothing in a file makes the reader grow; what follows the line's end is read again."""
    the_log, _ = log()
    for _ in range(64):
        the_log.feed_file(b"x" * 4096)
    assert len(the_log._rest) <= kernel_log._LONGEST_LINE
    the_log.feed_file(b"\n3,17,2500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n")
    assert texts(the_log) == ["NVRM: Xid (PCI:0000:1b:00): 79, pid=1"]
