"""The Xids that each GPU has had since boot, from NVML's events and from the kernel log.

Invariant: one occurrence counts once, whichever of the two sources tells it first: the same code at the same bus address
within a few seconds is the same. A GPU's history is bounded and oldest first, and a flood of Xids that a program can cause
pushes out none that is fatal, nor the last one of another code.

Why keyed by bus address: it is all that the kernel log has, and a GPU that is lost keeps it.
"""

import collections
import datetime

from agent.model import planes
from agent.model import xid as table

_WINDOW = datetime.timedelta(seconds=5)
"""The log's clock counts from boot and drifts against the wall clock by less than this (agents.md, dedupe by window)."""
_MOST = 64
"""Kept a GPU: a storm of one code must not grow without end."""
_MOST_ADDRESSES = 256
"""As many as GPUs are read: addresses come from text. The one first heard of goes."""


class History:
    """Xids by bus address."""

    def __init__(self) -> None:
        self._by_pci: dict[str, list[planes.Xid]] = {}

    def add(self, pci: str, xid: planes.Xid) -> bool:
        """Remember an Xid; False if it was already told."""
        if pci not in self._by_pci and len(self._by_pci) >= _MOST_ADDRESSES:
            del self._by_pci[next(iter(self._by_pci))]
        seen = self._by_pci.setdefault(pci, [])
        if any(_is_same(one, xid) for one in seen):
            return False
        seen.append(xid)
        if len(seen) > _MOST:
            seen.remove(_most_spare(seen))
        return True

    def of(self, pci: str) -> tuple[planes.Xid, ...]:
        """Return the GPU's Xids, oldest first."""
        return tuple(sorted(self._by_pci.get(pci, ()), key=lambda xid: (xid.at, xid.code)))


def _most_spare(seen: list[planes.Xid]) -> planes.Xid:
    """Return the oldest of the kind that there is most of; a fatal one only where all are.

    The kind too, because a policy may call fatal what the table does not, and the reader has no policy.
    """
    many = collections.Counter(_kind(one) for one in seen)
    return min(seen, key=lambda one: (_is_fatal(one), -many[_kind(one)], one.at))


def _kind(one: planes.Xid) -> tuple[int, int | None, int | None]:
    return one.code, one.gi, one.ci


def _is_fatal(one: planes.Xid) -> bool:
    return table.policy_of(one.code).severity is table.Severity.FATAL


def _is_same(one: planes.Xid, other: planes.Xid) -> bool:
    """An instance that one source does not name may be the one that the other names; two named ones differ."""
    instances = {one.gi, other.gi} - {None}, {one.ci, other.ci} - {None}
    return one.code == other.code and abs(one.at - other.at) <= _WINDOW and max(map(len, instances)) <= 1
