r"""The kernel log's records about GPUs.

Input: bytes of /dev/kmsg (or of a file of its form, in tests and demo). Output: KernelRecords, oldest first, 200 of them
at most, and the Xids that they tell.

Invariant: nothing in the log raises, whatever its bytes, and no record is taken twice: the sequence number decides, also
after the ring was overrun or the file opened anew. The driver's message about a lost GPU comes in up to four records;
they are one here, since alone none of them means anything. A flood of Xids that a program can cause pushes out no fatal one, nor
the last record of another kind.

Not here: waiting for the file (kernel_follow.py), and joining Xids to GPUs (xids.py).
"""

import collections
import dataclasses
import datetime
import re
from collections.abc import Callable

from agent.model import planes
from agent.model import xid as table

NEWEST = 200
"""contracts/capture.schema.json bounds the plane to this."""
_LONGEST = 1000
_LONGEST_LINE = 16 << 10
"""Of a plain file: what follows is no record of the kernel's, whose own are at most half of that."""
_MOST_PARTS = 4
_FROM_PROGRAMS = 8
"""Facility (priority // 8) of the kernel is 0, and the kernel lets nobody else claim it: any program with the right to
write to the log could otherwise make GPUs look broken."""
_HEADER = re.compile(
    rb"(?P<priority>\d{1,6}),(?P<seq>\d{1,19}),(?P<usec>\d{1,18})(?:,[^;]*)?;(?P<text>.*)\Z", re.DOTALL
)
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_ABOUT_GPU = re.compile(r"NVRM|\bnvidia|SXid")
_STARTS = re.compile(r"NVRM: The NVIDIA GPU\b")
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]{5,16})(?: GPU-I:(?P<gi>\d{1,3}))?(?: GPU-CI:(?P<ci>\d{1,3}))?\): (?P<code>\d{1,6})\b"
)
_LOST = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]{5,16})\b.*fallen off the bus", re.DOTALL)
_FALLEN_OFF = 79
"""The Xid that the same message has where the driver still numbers it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciXid:
    """An Xid with the bus address that the kernel names it by."""

    pci: str
    xid: planes.Xid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """A record, and what it would be pushed out for."""

    record: planes.KernelRecord
    kind: tuple[str, int, int | None] | None
    """Bus address, code and instance of its Xid."""
    is_fatal: bool


class KernelLog:
    """What the log has said since boot."""

    def __init__(self, booted_at: datetime.datetime, on_record: Callable[[planes.KernelRecord], None]) -> None:
        self._booted_at = booted_at
        self._on_record = on_record
        self._records: list[_Kept] = []
        self._rest = b""
        self._last_sequence = -1
        self._open: planes.KernelRecord | None = None
        self._open_parts = 0

    @property
    def records(self) -> tuple[planes.KernelRecord, ...]:
        """Return the records, oldest first, one still being joined included."""
        pending = () if self._open is None else (self._open,)
        return (*(kept.record for kept in self._records), *pending)[-NEWEST:]

    def feed_record(self, record: bytes) -> None:
        """Take one record as a read of /dev/kmsg returns it: a header, the text, then keys on lines of their own."""
        found = _HEADER.match(record.partition(b"\n")[0])
        if found is None or int(found["seq"]) <= self._last_sequence:
            return
        self._last_sequence = int(found["seq"])
        if int(found["priority"]) >= _FROM_PROGRAMS:
            return
        text = _text(found["text"])
        if not (_ABOUT_GPU.search(text) or (self._open is not None and "fallen off the bus" in text)):
            self._close()
            return
        at = self._booted_at + datetime.timedelta(milliseconds=min(int(found["usec"]) // 1000, 10**13))
        self._join(planes.KernelRecord(at=at, text=text))

    def feed_file(self, data: bytes) -> None:
        """Take what was appended to a plain file; a line without its end waits for the rest."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        for line in lines:
            self.feed_record(line)

    def restart(self) -> None:
        """The file is read from its start again; sequence numbers keep old records out."""
        self._rest = b""

    def _join(self, record: planes.KernelRecord) -> None:
        if self._open is not None:
            if _STARTS.match(record.text) or "Xid" in record.text:
                self._close()
            else:
                rest = record.text.removeprefix("NVRM:").strip()
                joined = f"{self._open.text} {rest}"[:_LONGEST]
                self._open, self._open_parts = dataclasses.replace(self._open, text=joined), self._open_parts + 1
                if joined.endswith(".") or "not responding" in joined or self._open_parts >= _MOST_PARTS:
                    self._close()
                return
        if _STARTS.match(record.text) and "fallen off" not in record.text:
            self._open, self._open_parts = record, 1
            return
        self._take(record)

    def _close(self) -> None:
        if self._open is not None:
            record, self._open = self._open, None
            self._take(record)

    def _take(self, record: planes.KernelRecord) -> None:
        told = xid_of(record)
        kind = (told.pci, told.xid.code, told.xid.gi) if told is not None else None
        is_fatal = told is not None and table.policy_of(told.xid.code).severity is table.Severity.FATAL
        self._records.append(_Kept(record=record, kind=kind, is_fatal=is_fatal))
        if len(self._records) > NEWEST:
            many = collections.Counter(kept.kind for kept in self._records)
            # min takes the first of equals, which is the oldest
            self._records.remove(min(self._records, key=lambda kept: (kept.is_fatal, -many[kept.kind])))
        self._on_record(record)


def xid_of(record: planes.KernelRecord) -> PciXid | None:
    """Return the Xid that a record tells, in either of its forms."""
    found = _XID.search(record.text)
    if found is not None:
        xid = planes.Xid(
            code=int(found["code"]),
            at=record.at,
            gi=int(found["gi"]) if found["gi"] else None,
            ci=int(found["ci"]) if found["ci"] else None,
            source=planes.XidSource.KERNEL_LOG,
        )
        return PciXid(pci=address(found["pci"]), xid=xid)
    found = _LOST.search(record.text)
    if found is not None:
        xid = planes.Xid(code=_FALLEN_OFF, at=record.at, source=planes.XidSource.KERNEL_LOG)
        return PciXid(pci=address(found["pci"]), xid=xid)
    return None


def address(text: str) -> str:
    """Return a bus address as sysfs spells it; the driver leaves the function out, and sometimes the domain.

    >>> address("0000:1B:00"), address("1b:00.0"), address("00000000:1B:00.0")
    ('0000:1b:00.0', '0000:1b:00.0', '0000:1b:00.0')
    """
    slot, _, function = text.lower().partition(".")
    parts = slot.split(":")
    if len(parts) < 3:
        parts = ["0000", *parts]
    return f"{parts[-3][-4:].zfill(4)}:{parts[-2]}:{parts[-1]}.{function or '0'}"


def _text(raw: bytes) -> str:
    """Return one line of text: the kernel escapes what it cannot print, and anybody may write to the log."""
    plain = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), raw[: 4 * _LONGEST])
    text = plain.decode("utf-8", errors="replace")
    return "".join(character if character.isprintable() else " " for character in text)[:_LONGEST].rstrip()
