"""The Xids that each GPU has had since boot, from NVML's events and from the kernel log.

Invariant: one occurrence counts once, whichever of the two sources tells it first: the same code at the same bus address
within a few seconds is the same. A GPU's history is bounded and oldest first.

Why keyed by bus address: it is all that the kernel log has, and a GPU that is lost keeps it.
"""

import collections
import datetime

from agent.model import planes

_WINDOW = datetime.timedelta(seconds=5)
"""The log's clock counts from boot and drifts against the wall clock by less than this (agents.md, dedupe by window)."""
_NEWEST = 64
"""Kept a GPU: a storm of one code must not grow without end."""
_MOST_ADDRESSES = 256
"""As many as GPUs are read: addresses come from text. The one first heard of goes."""


class History:
    """Xids by bus address."""

    def __init__(self) -> None:
        self._by_pci: dict[str, collections.deque[planes.Xid]] = {}

    def add(self, pci: str, xid: planes.Xid) -> bool:
        """Remember an Xid; False if it was already told."""
        if pci not in self._by_pci and len(self._by_pci) >= _MOST_ADDRESSES:
            del self._by_pci[next(iter(self._by_pci))]
        seen = self._by_pci.setdefault(pci, collections.deque(maxlen=_NEWEST))
        if any(_is_same(one, xid) for one in seen):
            return False
        seen.append(xid)
        return True

    def of(self, pci: str) -> tuple[planes.Xid, ...]:
        """Return the GPU's Xids, oldest first."""
        return tuple(sorted(self._by_pci.get(pci, ()), key=lambda xid: (xid.at, xid.code)))


def _is_same(one: planes.Xid, other: planes.Xid) -> bool:
    """An instance that one source does not name may be the one that the other names; two named ones differ."""
    instances = {one.gi, other.gi} - {None}, {one.ci, other.ci} - {None}
    return one.code == other.code and abs(one.at - other.at) <= _WINDOW and max(map(len, instances)) <= 1
