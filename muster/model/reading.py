"""A measured value, or the reason why there is none.

Everything that somebody had to read is a `Reading`: `Known(value)` or `Unknown(reason)`. Zero, an empty list and False
are values; a failed read is none of them.

Invariant: code that consumes a reading matches on the two classes. Neither has a truth value, so `if reading:` raises
instead of counting an idle GPU as a missing one.

Why not None: a None says that something is missing and forgets why, and the why is what a person is woken up for.
"""

import dataclasses
from typing import Generic, NoReturn, TypeAlias, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A value that was read."""

    value: T

    def __bool__(self) -> NoReturn:
        raise TypeError("a Reading has no truth value: match on Known and Unknown")


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """No value, and why."""

    reason: str
    """NVML's own returns in upper case (GPU_IS_LOST), everything else PascalCase (NoPermission)."""
    detail: str = ""
    """One line for a person."""

    def __bool__(self) -> NoReturn:
        raise TypeError("a Reading has no truth value: match on Known and Unknown")


Reading: TypeAlias = Known[T] | Unknown

NOT_COLLECTED = Unknown("NotCollected")
"""Nobody tried to read it: an absent plane or field of a capture."""


def known_or(reading: Known[T] | Unknown, fallback: T) -> T:
    """Return the value, or `fallback` where a rule has decided what a missing reading may stand for."""
    match reading:
        case Known(value):
            return value
        case Unknown():
            return fallback
