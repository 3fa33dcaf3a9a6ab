"""How far a pull is: from what containerd says of a transfer, and whether it goes on fast enough.

In: events, one at a time; looks at what is missing. Out: bytes fetched, layers unpacked; when it last went on.

Invariants: counts never fall. An event of a kind that is not known changes nothing: containerd adds some with every
version. A pull goes on with a blob or a layer that is done, or with enough bytes: a byte now and then is none.
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Where a pull stood when it last went on."""

    at: float
    """Monotonic."""
    done: tuple[int, int] = (-1, -1)
    """Blobs that are here, layers that are not unpacked."""
    bytes_missing: int = 0


def look(pace: Pace, *, done: tuple[int, int], bytes_missing: int, least: int, now: float) -> Pace:
    """Return the pace after one more look; of bytes `least` have to have come for it to have gone on.

    >>> slow = look(Pace(at=0, done=(1, 2), bytes_missing=9), done=(1, 2), bytes_missing=8, least=5, now=60)
    >>> slow.at, look(slow, done=(1, 2), bytes_missing=4, least=5, now=90).at
    (0, 90)
    """
    if done == pace.done and 0 <= pace.bytes_missing - bytes_missing < least:
        return pace
    return Pace(at=now, done=done, bytes_missing=bytes_missing)


def _raised(counts: Mapping[str, int], name: str, count: int) -> Mapping[str, int]:
    return {**counts, name: max(counts.get(name, 0), count)}
