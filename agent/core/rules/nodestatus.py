"""The Node object against GetAllocatableResources (faults.md A6, B9, C2, E7, S4).

Input: capacity, allocatable, GA and List of each resource. Output: what the API object promises and the kubelet does not,
and units that are good but out of the scheduler's reach.

Invariant: these findings never lower a number. The smaller side already decides: admit is the minimum of what is free by
set and what is left by count (design.md section 3).
"""

import datetime
from collections.abc import Iterator

from agent.core import resourceviews
from agent.core.context import Context, count_of, named
from agent.core.rules import registration
from agent.model.finding import Rule, Suspicion
from agent.model.snapshot import ResourceView
from muster.model.reading import Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

FLASH = Rule(
    id="A6",
    cause="KubeletRestartAllocFlash",
    verdict=Verdict.OVER,
    reason=Reason.KUBELET_RESTARTED,
    remedy=Remedy.WAIT,
    clears_when="the Node's allocatable and GetAllocatableResources agree",
)
GHOST = Rule(
    id="C2",
    cause="GhostResourcesNonZero",
    verdict=Verdict.OVER,
    reason=Reason.API_OBJECT_STALE,
    remedy=Remedy.INVESTIGATE,
    clears_when="the key is 0 or gone, or GetAllocatableResources names it again",
)
STALE_HIGH = Rule(
    id="S4-high",
    cause="NodeStatusStale",
    verdict=Verdict.OVER,
    reason=Reason.API_OBJECT_STALE,
    remedy=Remedy.RESTART_KUBELET,
    wait="node-status",
    clears_when="the Node's allocatable and GetAllocatableResources agree",
)
STALE_LOW = Rule(
    id="S4-low",
    cause="NodeStatusStale",
    verdict=Verdict.UNDER,
    reason=Reason.API_OBJECT_STALE,
    remedy=Remedy.RESTART_KUBELET,
    wait="node-status",
    clears_when="the Node's allocatable and GetAllocatableResources agree",
)
UNHEALTHY_LISTED = Rule(
    id="E7",
    cause="UnhealthyInAllocatableApi",
    verdict=Verdict.OVER,
    reason=Reason.API_OBJECT_STALE,
    remedy=Remedy.INVESTIGATE,
    wait="node-status",
    clears_when="GetAllocatableResources has no more ids than the Node's allocatable",
)
STRANDED = Rule(
    id="B9",
    cause="UnhealthyButHeld",
    verdict=Verdict.UNDER,
    reason=Reason.UNHEALTHY_BUT_HELD,
    remedy=Remedy.EVICT_HOLDER,
    clears_when="no pod holds an id that the kubelet counts out",
)

RULES = (FLASH, GHOST, STALE_HIGH, STALE_LOW, UNHEALTHY_LISTED, STRANDED)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a suspicion for every disagreement between the Node and the kubelet."""
    if isinstance(context.snapshot.allocatable, Unknown):
        return
    for view in context.snapshot.resources:
        yield from _counts(context, view)
        yield from _stranded(view)


def _counts(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    allocatable, capacity, advertised = count_of(view.allocatable), count_of(view.capacity), len(view.ids())
    is_absent = view.allocatable == resourceviews.KEY_ABSENT
    if is_absent:
        allocatable = 0  # nothing is scheduled to a name that the Node does not have (faults.md S2)
    if allocatable is None or allocatable == advertised:
        return
    rule, until = _rule(context, view, allocatable, capacity)
    if rule is None:
        return
    said = "nothing" if is_absent else allocatable
    yield Suspicion(
        rule=rule,
        resource=view.name,
        units=abs(allocatable - advertised),
        until=until,
        detail=f"the Node says {said} of {'?' if capacity is None else capacity}, the kubelet {advertised}",
    )


def _rule(
    context: Context, view: ResourceView, allocatable: int, capacity: int | None
) -> tuple[Rule | None, datetime.datetime | None]:
    advertised = len(view.ids())
    if allocatable > advertised:
        if (end := context.kubelet_end("alloc-flash")) is not None:
            return FLASH, end
        if advertised:
            return STALE_HIGH, None
        if any(registration.is_home(view, unit, context) for unit in registration.unadvertised(context)):
            return None, None  # the plugin just went away and the Node follows: A1 says so
        return GHOST, context.kubelet_end("kubelet-restart")
    if advertised == capacity:
        return UNHEALTHY_LISTED, None
    return STALE_LOW, None


def _stranded(view: ResourceView) -> Iterator[Suspicion]:
    advertised = {device.id for device in view.ids()}
    held = {text: pods for text, pods in view.holders().items() if text not in advertised}
    if not held or not advertised:
        return
    free = len(advertised - set(view.holders()))
    holders = named(f"{text} by {' and '.join(pods)}" for text, pods in held.items())
    yield Suspicion(
        rule=STRANDED,
        resource=view.name,
        devices=tuple(sorted(held)),
        units=min(len(held), free),
        detail=f"stranded {min(len(held), free)}: held and no longer healthy: {holders}",
    )
