"""Publish a fall at once and a rise when a second clean sample confirms it (faults.md P4).

Input: the numbers of this sample, what was published and seen before. Output: the numbers to publish, what to remember.

Invariant: after a failed read, or on the first of two clean samples, no published number is above the one before; null
counts as 0. The very first sample has nothing before it and is published as it is.
"""

import dataclasses

from agent.core.capacity import Numbers
from agent.model.history import ResourceMemory
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import Verdict

NOTHING = ResourceMemory(verdict=Verdict.OK, strict=0, lenient=0)
"""A resource that appears after the first sample rises from nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Numbers as they go out."""

    numbers: Numbers
    held_back: int
    """Units of admit_lenient, or of admit_strict, that wait for the second sample."""


def confirm(numbers: Numbers, before: ResourceMemory | None, *, is_clean: bool, samples: int = 2) -> Published:
    """Return what may be published of these numbers; `before` is None for the very first sample.

    `samples` is how many clean ones a rise needs: 1 where rule P4 does not enforce. A failed read raises nothing either way.
    """
    if before is None:
        return Published(numbers=numbers, held_back=0)
    if samples == 1 and is_clean:
        return Published(numbers=numbers, held_back=0)
    lenient = _allowed(numbers.admit_lenient, before.lenient, before.seen_lenient, is_clean=is_clean)
    strict = _allowed(numbers.admit_strict, before.strict, before.seen_strict, is_clean=is_clean)
    held_back = max(_difference(numbers.admit_lenient, lenient), _difference(numbers.admit_strict, strict))
    if isinstance(strict, Known) and isinstance(lenient, Known):
        strict = Known(min(strict.value, lenient.value))
    return Published(
        numbers=dataclasses.replace(numbers, admit_lenient=lenient, admit_strict=strict), held_back=held_back
    )


def remember(verdict: Verdict, published: Numbers, seen: Numbers, *, is_clean: bool) -> ResourceMemory:
    """Return what the next sample has to know."""
    return ResourceMemory(
        verdict=verdict,
        strict=_value(published.admit_strict),
        lenient=_value(published.admit_lenient),
        seen_strict=_value(seen.admit_strict) if is_clean else None,
        seen_lenient=_value(seen.admit_lenient) if is_clean else None,
    )


def _allowed(now: Reading[int], published: int | None, seen: int | None, *, is_clean: bool) -> Reading[int]:
    match now:
        case Unknown():
            return now
        case Known(value):
            floor = published or 0
            confirmed = min(value, seen) if is_clean and seen is not None else floor
            return Known(value if value <= floor else max(floor, confirmed))


def _difference(now: Reading[int], allowed: Reading[int]) -> int:
    return (_value(now) or 0) - (_value(allowed) or 0)


def _value(reading: Reading[int]) -> int | None:
    match reading:
        case Known(value):
            return value
        case Unknown():
            return None
