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


def micro_time(moment: datetime.datetime) -> datetime.datetime:
    """Return a moment as the API server takes it for a MicroTime: one on the full second is sent without the fraction it wants.

    >>> micro_time(datetime.datetime(2026, 12, 1, 10)).microsecond, micro_time(datetime.datetime(2026, 12, 1, 10, 0, 0, 7000)).microsecond
    (1, 7000)
    """
    return moment.replace(microsecond=max(1, moment.microsecond))
