"""When what a gang holds is given back, by its own word.

Input: a Holding, the queue's settings, the clock. Output: Known(moment), or Unknown and why.

Invariant: an end is known only by the gang's own declaration, and only while it keeps to it; one that runs for longer is
overrun, and nobody knows when it ends. What has not started yet ends its whole runtime after a cold start from now.
"""

from collections.abc import Iterable

from admitter.model.decision import Policy
from admitter.model.queue import Holding, QueuePolicy
from muster.model.reading import Known, Reading, Unknown

NO_DECLARED_END = Unknown("NoDeclaredEnd")
OVERRUN = Unknown("Overrun")


def end(holding: Holding, policy: QueuePolicy, now: float) -> Reading[float]:
    """Return when the gang gives back what it holds."""
    if holding.runtime_seconds is None:
        return NO_DECLARED_END
    if holding.started_at is None:
        return Known(now + policy.start_seconds + holding.runtime_seconds)
    if now > overruns_at(holding, policy):
        return OVERRUN
    return Known(max(holding.started_at + holding.runtime_seconds, now))


def overruns_at(holding: Holding, policy: QueuePolicy) -> float:
    """Return the moment after which a gang has run for longer than it said; inf: it has said nothing, or not started."""
    if holding.runtime_seconds is None or holding.started_at is None:
        return float("inf")
    return holding.started_at + holding.runtime_seconds + policy.overrun_grace_seconds


def leased_gpus(holdings: Iterable[Holding], policy: Policy) -> dict[str, int]:
    """Return the whole GPUs that each namespace holds."""
    total: dict[str, int] = {}
    for holding in holdings:
        units = sum(place.units for place in holding.placements if place.resource == policy.gpu_resource)
        total[holding.gang.namespace] = total.get(holding.gang.namespace, 0) + units
    return total
