"""How far a transfer is, from what containerd says of it.

In: events, one at a time. Out: bytes fetched, layers unpacked, and whether it is still fetching.

Invariant: counts never fall. An event of a kind that is not known changes nothing: containerd adds some with every
version.
"""

import dataclasses
from collections.abc import Mapping

from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One event."""

    event: str
    name: str
    """Of the blob, as in layer-sha256:..."""
    done: int = 0
    total: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """All events so far."""

    fetched: Mapping[str, int] = codec.mapping()
    """Blob -> bytes."""
    unpacking: Mapping[str, int] = codec.mapping()
    """Layer -> bytes unpacked so far."""
    unpacked: frozenset[str] = frozenset()

    @property
    def fetched_bytes(self) -> int:
        return sum(self.fetched.values())


NOTHING = Extent()

_FETCHED = frozenset(("downloading", "complete", "exists", "already exists"))


def add(extent: Extent, said: Progress) -> Extent:
    """Return the extent after one more event.

    >>> add(NOTHING, Progress(event="downloading", name="layer-sha256:aa", done=5, total=9)).fetched_bytes
    5
    """
    if said.event in _FETCHED:
        return dataclasses.replace(extent, fetched=_raised(extent.fetched, said.name, said.done))
    if said.event not in {"extracting", "extracted"}:
        return extent
    # Of a layer that is being unpacked containerd no longer says that all of it had come.
    fetched = _raised(extent.fetched, said.name, said.total)
    unpacking = _raised(extent.unpacking, said.name, said.done)
    done = frozenset((said.name,)) if said.event == "extracted" else frozenset()
    return Extent(fetched=fetched, unpacking=unpacking, unpacked=extent.unpacked | done)


def _raised(counts: Mapping[str, int], name: str, count: int) -> Mapping[str, int]:
    return {**counts, name: max(counts.get(name, 0), count)}
