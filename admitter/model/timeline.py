"""The wait clock: the five delays of a gang, from asking to running (design.md section 12).

Six boundaries, in order; a delay lies between two neighbours. A gang's boundary is its slowest member's. A boundary that
nobody stamped leaves its two delays together instead of inventing where one ended.

Invariant: `spans` are without gap or overlap; they sum to the time since the gang asked.
"""

import dataclasses
import enum

from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown


class Delay(enum.StrEnum):
    """In order."""

    ADMISSION = "admission"
    SCHEDULING = "scheduling"
    BINDING = "binding"
    DEVICE = "device"
    CONTENT = "content"


class StampedBy(enum.StrEnum):
    """Whose word an instant is; every instant is on the admitter's monotonic clock, when the word arrived."""

    ADMITTER = "admitter"
    CLIENT = "client"
    AGENT = "agent"
    API_SERVER = "api_server"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    at: float
    by: StampedBy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    delays: tuple[Delay, ...]
    """More than one where the boundary between them is not known."""
    seconds: float
    ended_by: StampedBy | None
    """None: still running."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    asked: Stamp
    admitted: Reading[Stamp] = NOT_COLLECTED
    """End of admission: the lease."""
    scheduled: Reading[Stamp] = NOT_COLLECTED
    """End of scheduling: the last member's node was chosen."""
    bound: Reading[Stamp] = NOT_COLLECTED
    """End of binding: the last member was seen bound."""
    has_devices: Reading[Stamp] = NOT_COLLECTED
    """End of the device delay: the last member's units were counted by its node's agent."""
    running: Reading[Stamp] = NOT_COLLECTED
    """End of the content delay: the last member's containers run."""


def spans(timeline: Timeline, now: float) -> tuple[Span, ...]:
    """Return the delays so far; the last one is still running unless the gang runs."""
    ends = (timeline.admitted, timeline.scheduled, timeline.bound, timeline.has_devices, timeline.running)
    result: list[Span] = []
    start, pending = timeline.asked.at, []
    for delay, end in zip(Delay, ends, strict=True):
        pending.append(delay)
        match end:
            case Known(stamp):
                until = max(start, stamp.at)
                result.append(Span(delays=tuple(pending), seconds=until - start, ended_by=stamp.by))
                start, pending = until, []
            case Unknown():
                continue
    if pending:
        result.append(Span(delays=tuple(pending), seconds=max(0.0, now - start), ended_by=None))
    return tuple(result)
