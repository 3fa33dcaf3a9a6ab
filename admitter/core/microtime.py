"""Moments as the API server takes them for a MicroTime."""

import datetime


def of(moment: datetime.datetime) -> datetime.datetime:
    """Return the moment with a fraction: one on the full second is sent without, and refused.

    >>> of(datetime.datetime(2026, 12, 1, 10)).microsecond, of(datetime.datetime(2026, 12, 1, 10, 0, 0, 7000)).microsecond
    (1, 7000)
    """
    return moment.replace(microsecond=max(1, moment.microsecond))
