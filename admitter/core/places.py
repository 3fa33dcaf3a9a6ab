"""Places in the queue of gangs that were withdrawn and may come back: whoever deletes and recreates loses nothing by it.

Input: gangs that ended before they ran, and those that ask. Output: since when a gang that asks has been waiting, and the
gangs for which the queue keeps what it would give them, although they are away.

Invariants: a place belongs to a name and a shape: another question under the name starts at the end. A place is given out
once. It lasts `place_kept_seconds`, and a namespace has `places_per_namespace` of them, the newest: what a launcher makes and
deletes for ever costs bounded memory.

Why a gang that is away keeps its turn for a moment: a launcher that recreates every 30 s leaves a gap of a second each time,
and whatever small gang looks in that second would take what was gathered for it.
"""

import collections
import dataclasses
from collections.abc import Collection, Iterator

from admitter.core import signature
from admitter.model.gang import Gang
from admitter.model.queue import Ask, QueuePolicy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a gang left behind."""

    gang: Gang
    arrival: int
    asked_at: float
    left_at: float
    keeps_turn: bool
    """It only waited: what was given and refused, or given back, is kept for nobody."""


class Places:
    """Belongs to one register."""

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._kept: dict[str, collections.OrderedDict[tuple[str, int], Place]] = {}
        """By namespace; in it in the order in which they were left."""

    def keep(self, gang: Gang, arrival: int, asked_at: float, now: float, *, keeps_turn: bool = True) -> None:
        """Remember where a gang stood that is withdrawn now."""
        mine = self._kept.setdefault(gang.namespace, collections.OrderedDict())
        mine.pop(_key(gang), None)
        mine[_key(gang)] = Place(gang=gang, arrival=arrival, asked_at=asked_at, left_at=now, keeps_turn=keeps_turn)
        while len(mine) > self._policy.places_per_namespace:
            mine.popitem(last=False)

    def take(self, gang: Gang, now: float) -> Place | None:
        """Return the place of a gang that comes back, and forget it here."""
        mine = self._kept.get(gang.namespace)
        place = mine.pop(_key(gang), None) if mine is not None else None
        return None if place is None or self._is_over(place, now) else place

    def away(self, present: Collection[str], now: float) -> Iterator[Ask]:
        """Yield the questions of gangs that left a moment ago; `present` are the names that have asked again since."""
        for mine in self._kept.values():
            for place in mine.values():
                is_recent = place.keeps_turn and now - place.left_at <= self._policy.away_seconds
                if is_recent and place.gang.full_name not in present:
                    yield Ask(gang=place.gang, arrival=place.arrival, asked_at=place.asked_at, is_away=True)

    def forget(self, now: float) -> None:
        """Drop what nobody came back for."""
        for namespace, mine in list(self._kept.items()):
            while mine and self._is_over(next(iter(mine.values())), now):
                mine.popitem(last=False)
            if not mine:
                del self._kept[namespace]

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def _is_over(self, place: Place, now: float) -> bool:
        return now - place.left_at > self._policy.place_kept_seconds


def _key(gang: Gang) -> tuple[str, int]:
    return gang.full_name, hash(signature.of(gang))
