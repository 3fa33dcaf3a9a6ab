"""What the admitter counts about itself, and the scene that a scrape shows.

Values and counters only; metrics.py puts them on a page. Counters are of our own events; everything else is in the Scene,
made anew by each pass, so that what is gone is gone from the page too.
"""

import bisect
import collections
import dataclasses
from collections.abc import Mapping

from admitter.confined import Confined
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import GangRecord
from muster.model.lease import NodeLease

PASS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
"""Seconds. A pass has 20 ms at the 99th percentile, 50 under load (design.md section 7)."""
WAIT_BOUNDS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)
"""Seconds from asking to the lease."""


class Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by bound, the last one +Inf."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        running = 0
        result = []
        for name, count in zip(names, self.counts, strict=True):
            running += count
            result.append((name, float(running)))
        return result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state after one pass."""

    view: ClusterView
    records: tuple[GangRecord, ...]
    leases: Mapping[str, tuple[NodeLease, ...]]
    orphans: int
    term: int
    is_open: bool
    at: float
    """Admitter's monotonic clock."""


class Figures:
    """Counters of one process, and the newest scene."""

    def __init__(self, confined: Confined | None = None) -> None:
        self.confined = confined or Confined()
        self.scene: Scene | None = None
        self.passes = Histogram(PASS_BOUNDS)
        self.waits = Histogram(WAIT_BOUNDS)
        self.decisions: collections.Counter[str] = collections.Counter()
        """By kind of event."""
        self.broken_promises: collections.Counter[str] = collections.Counter()
        """Pods that we let go and a kubelet refused, by its reason."""
        self.failed_passes = 0
