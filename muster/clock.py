"""A program's only source of time.

Two clocks: `utc` stamps what people and captures see, `monotonic` measures ages and deadlines. Wall-clock time never
orders events (a clock may jump back); invariant of a Clock: `monotonic` never decreases.
"""

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """What a shell needs of time."""

    def utc(self) -> datetime.datetime:
        """Return now, in UTC, to the millisecond."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""


class SystemClock:
    """The machine's clocks."""

    def utc(self) -> datetime.datetime:
        """Return now, in UTC, to the millisecond."""
        now = datetime.datetime.now(datetime.UTC)  # noqa: TID251 -- the one place
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()
