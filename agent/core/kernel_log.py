"""Xids of a GPU, from NVML's events and from the kernel log.

Input: the GPUs and the kernel log. Output: each GPU's Xid events since boot, oldest first, each once.

Why both: NVML keeps no event from before somebody registered; the kernel log has them, in two forms (with `pid=` and
without), by bus address. One that both saw within a few seconds is one event.
"""

import datetime
import re
from collections.abc import Iterable

from agent.model import planes
from muster.model.reading import Known, Reading, Unknown

_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)(?: GPU-I:(?P<gi>\d{1,3}))?(?: GPU-CI:(?P<ci>\d{1,3}))?\): (?P<code>\d{1,6})\b"
)
"""One inside a MIG instance names the instance (faults.md B10)."""
_LOST = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at PCI:)?(?P<pci>[0-9a-fA-F:.]{5,16})[: (].*fallen off the bus",
    re.IGNORECASE | re.DOTALL,
)
_FALLEN_OFF_THE_BUS = 79
SAME_SECONDS = 5
"""One event reaches NVML and the log within moments; neighbouring slots count as the same."""


def xids_of(
    gpus: Iterable[planes.Gpu], records: Reading[tuple[planes.KernelRecord, ...]]
) -> dict[str, tuple[planes.Xid, ...]]:
    """Return the Xids of each GPU, by UUID. The log is walked once: it can be long."""
    logged = _logged(records)
    result: dict[str, tuple[planes.Xid, ...]] = {}
    for gpu in gpus:
        events = list(gpu.xids.value) if isinstance(gpu.xids, Known) else []
        seen = {(event.code, event.gi, _slot(event.at) + near) for event in events for near in (-1, 0, 1)}
        own = logged.get(normalised(gpu.pci.value), []) if isinstance(gpu.pci, Known) else []
        events += [event for event in own if (event.code, event.gi, _slot(event.at)) not in seen]
        if events:
            result[gpu.uuid] = tuple(sorted(events, key=lambda event: (event.at, event.code, repr(event))))
    return result


def is_same(one: planes.Xid, other: planes.Xid) -> bool:
    """True if both may be one event, told by two."""
    return (one.code, one.gi) == (other.code, other.gi) and abs(_slot(one.at) - _slot(other.at)) <= 1


def unplaced(gpus: Iterable[planes.Gpu], records: Reading[tuple[planes.KernelRecord, ...]]) -> tuple[planes.Xid, ...]:
    """Return the log's Xids at bus addresses that no listed GPU has: of GPUs that NVML no longer shows."""
    known = {normalised(gpu.pci.value) for gpu in gpus if isinstance(gpu.pci, Known)}
    return tuple(
        event for address, events in sorted(_logged(records).items()) if address not in known for event in events
    )


def _logged(records: Reading[tuple[planes.KernelRecord, ...]]) -> dict[str, list[planes.Xid]]:
    result: dict[str, list[planes.Xid]] = {}
    match records:
        case Known(items):
            for record in items:
                if (parsed := xid_in(record.text)) is not None:
                    address, code, gi, ci = parsed
                    event = planes.Xid(code=code, at=record.at, gi=gi, ci=ci, source=planes.XidSource.KERNEL_LOG)
                    result.setdefault(address, []).append(event)
        case Unknown():
            pass
    return result


def _slot(instant: datetime.datetime) -> int:
    """Return the instant in units of SAME_SECONDS."""
    return int(instant.timestamp() // SAME_SECONDS)


def xid_in(text: str) -> tuple[str, int, int | None, int | None] | None:
    """Return the bus address and the code of an Xid record, and the MIG instance that it is about.

    >>> xid_in("NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.")
    ('0000:1b:00', 79, None, None)
    >>> xid_in("NVRM: Xid (PCI:0000:1b:00 GPU-I:07 GPU-CI:00): 48, pid=1")
    ('0000:1b:00', 48, 7, 0)
    """
    if match := _XID.search(text):
        gi, ci = (int(match[name]) if match[name] else None for name in ("gi", "ci"))
        return normalised(match["pci"]), int(match["code"]), gi, ci
    if match := _LOST.search(text):
        return normalised(match["pci"]), _FALLEN_OFF_THE_BUS, None, None
    return None


def normalised(address: str) -> str:
    """Return a bus address without its function, its domain in four digits or more.

    >>> normalised("00000000:1B:00.0"), normalised("0000:1b:00")
    ('0000:1b:00', '0000:1b:00')
    """
    head, _, rest = address.lower().partition(".")[0].partition(":")
    return f"{head.lstrip('0').rjust(4, '0')}:{rest}" if rest.count(":") == 1 else address.lower().partition(".")[0]
