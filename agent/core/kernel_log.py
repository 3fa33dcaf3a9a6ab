"""Xids of a GPU, from NVML's events and from the kernel log.

Input: a GPU and the observation. Output: its Xid events since boot, oldest first, each once.

Why both: NVML keeps no event from before somebody registered; the kernel log has them, in two forms (with `pid=` and
without), by bus address. One that both saw within a few seconds is one event.
"""

import datetime
import re

from agent.model import planes
from muster.model.reading import Known, Unknown

_XID = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b")
_LOST = re.compile(r"NVRM: GPU (?:at PCI:)?(?P<pci>[0-9a-fA-F:.]+): .*fallen off the bus", re.IGNORECASE)
_FALLEN_OFF_THE_BUS = 79
_SAME = datetime.timedelta(seconds=10)


def xids_of(gpu: planes.Gpu, observation: planes.Observation) -> tuple[planes.Xid, ...]:
    """Return the GPU's Xids."""
    events: list[planes.Xid] = []
    match gpu.xids:
        case Known(seen):
            events.extend(seen)
        case Unknown():
            pass
    for event in _logged(gpu, observation):
        if not any(event.code == other.code and abs(event.at - other.at) < _SAME for other in events):
            events.append(event)
    return tuple(sorted(events, key=lambda event: (event.at, event.code)))


def _logged(gpu: planes.Gpu, observation: planes.Observation) -> list[planes.Xid]:
    match gpu.pci, observation.kernel_log:
        case Known(pci), Known(records):
            address = normalised(pci)
        case _:
            return []
    found: list[planes.Xid] = []
    for record in records:
        parsed = xid_in(record.text)
        if parsed is not None and parsed[0] == address:
            found.append(planes.Xid(code=parsed[1], at=record.at, source=planes.XidSource.KERNEL_LOG))
    return found


def xid_in(text: str) -> tuple[str, int] | None:
    """Return the bus address and the code of an Xid record.

    >>> xid_in("NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.")
    ('0000:1b:00', 79)
    """
    if match := _XID.search(text):
        return normalised(match["pci"]), int(match["code"])
    if match := _LOST.search(text):
        return normalised(match["pci"]), _FALLEN_OFF_THE_BUS
    return None


def normalised(address: str) -> str:
    """Return a bus address without its function, its domain in four digits.

    >>> normalised("00000000:1B:00.0"), normalised("0000:1b:00")
    ('0000:1b:00', '0000:1b:00')
    """
    head, _, rest = address.lower().partition(".")[0].partition(":")
    return f"{head[-4:].rjust(4, '0')}:{rest}" if rest.count(":") == 1 else address.lower().partition(".")[0]
