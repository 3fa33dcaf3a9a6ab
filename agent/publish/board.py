"""What the last cycle said, for whoever asks in between: metrics and probes.

The loop pins a whole `Notice` at the end of a cycle; readers on other threads take the newest one. Replacing one reference
is atomic in Python, so there is no lock and no half-written notice.
"""

import collections
import dataclasses
from collections.abc import Mapping

from agent.model import planes
from muster.model import codec
from muster.model.report import NodeReport


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One cycle's outcome."""

    report: NodeReport
    observation: planes.Observation
    """What the report was judged from; `muster-agent capture` hands it out."""
    published_at: float
    """Monotonic."""
    read_at: Mapping[str, float] = codec.mapping()
    """Plane -> monotonic instant of its last reading."""
    cycle_seconds: float = 0.0
    attempts: int = 1
    """Samples taken until two pairs agreed (faults.md P4)."""
    nvml_session: str = "open"


class Board:
    """The newest notice and counts of our own events."""

    def __init__(self) -> None:
        self.notice: Notice | None = None
        self.events: collections.Counter[str] = collections.Counter()
        """Cycles and what went wrong in them, by kind (agent.publish.metrics.EVENTS)."""

    def age_seconds(self, now: float) -> float | None:
        """Return how old the newest report is; None: there is none."""
        return None if self.notice is None else now - self.notice.published_at
