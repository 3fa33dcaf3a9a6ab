"""Which images this node will probably need again: those that it started often, and lately.

In: starts, by the image's name. Out: names, most likely first.

A start counts half after three days (images.md section 10). Names are ranked by that count alone: what a warm image saves
is time to fetch and unpack, which grows with its bytes as its price on the disk does, so that bytes cancel out.

Invariants: at most MAX_NAMES are remembered, the least likely goes first. One start alone is no habit and warms nothing.
"""

import dataclasses
import datetime
from collections.abc import Mapping

HALF_LIFE = datetime.timedelta(days=3)
MAX_NAMES = 256
MAX_WARMED = 20
HABIT = 1.5
"""Decayed starts from which on an image is kept ready."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How often an image was started, as of a moment."""

    count: float
    at: datetime.datetime

    def count_at(self, now: datetime.datetime) -> float:
        """Return the count at a later moment; a clock that went back changes nothing."""
        halvings = max(datetime.timedelta(), now - self.at) / HALF_LIFE
        return self.count * float(0.5**halvings)


def started(uses: Mapping[str, Use], name: str, now: datetime.datetime) -> dict[str, Use]:
    """Return the uses after one more start.

    >>> noon = datetime.datetime(2026, 12, 2, 12)
    >>> started(started({}, "a", noon), "a", noon + HALF_LIFE)["a"].count
    1.5
    """
    before = uses[name].count_at(now) if name in uses else 0.0
    after = {**uses, name: Use(count=before + 1, at=now)}
    ranked = sorted(after, key=lambda each: (-after[each].count_at(now), each))
    # The newest stays: it is how the next favourite begins.
    kept = {*[each for each in ranked if each != name][: MAX_NAMES - 1], name}
    return {each: use for each, use in after.items() if each in kept}


def likely(uses: Mapping[str, Use], now: datetime.datetime) -> tuple[str, ...]:
    """Return the names to have ready, most likely first."""
    counts = {name: use.count_at(now) for name, use in uses.items()}
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return tuple(name for name in ranked if counts[name] >= HABIT)[:MAX_WARMED]
