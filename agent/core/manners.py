"""Which NVML session the reader should hold: the agent's good manners towards whoever works on the GPUs (design.md section 8).

Input: the Node's labels, an operator's `release`, whether the node serves, what was decided before, now. Output: the
wanted session, why, and what to remember.

Invariant: a session is closed for a bounded time. Past the deadline, or while the node plainly serves under a marker that
nobody removes, the reader reads in short sessions, so that Muster is never blind because of a forgotten label.

Not here: closing and its proof (the reader), and what the verdict says meanwhile (maintenance.py, rules/driver.py).
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from agent.core import maintenance
from agent.model.history import Marker
from agent.model.policy import Policy


class Session(enum.StrEnum):
    """Values of muster.reader.v1 SetNvmlSessionRequest.mode."""

    OPEN = "open"
    CLOSED = "closed"
    SHORT = "short"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The decision of one moment."""

    session: Session
    reason: str
    until: datetime.datetime | None = None
    """When a closed session is opened again at the latest."""
    marker: Marker | None = None
    """To be given back at the next call."""


def wanted(
    labels: Mapping[str, str] | None,
    last: Marker | None,
    now: datetime.datetime,
    policy: Policy,
    *,
    is_serving: bool,
    released_until: datetime.datetime | None = None,
) -> Wanted:
    """Return the session to hold. `labels` is None where the Node is not known, and the last marker stands."""
    marker = maintenance.follow(labels, last, now, is_serving=is_serving)
    if released_until is not None and now < released_until:
        return Wanted(session=Session.CLOSED, reason="released by the operator", until=released_until, marker=marker)
    if marker is None:
        return Wanted(session=Session.OPEN, reason="nobody is at work on the node")
    ends = maintenance.believed_until(marker, now, policy)
    if ends is None:
        return Wanted(session=Session.SHORT, reason=f"stuck marker {marker.name}", marker=marker)
    return Wanted(session=Session.CLOSED, reason=marker.name, until=ends, marker=marker)
