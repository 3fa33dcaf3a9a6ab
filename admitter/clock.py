"""The admitter's only source of time.

`monotonic` measures ages and deadlines, `utc` stamps what people read. Wall-clock time orders nothing.
"""

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """What the shell needs of time."""

    def utc(self) -> datetime.datetime:
        """Return now, in UTC, to the millisecond."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never decreases."""


class SystemClock:
    """The machine's clocks."""

    def utc(self) -> datetime.datetime:
        """Return now, in UTC, to the millisecond."""
        now = datetime.datetime.now(datetime.UTC)  # noqa: TID251 -- the one place
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()
