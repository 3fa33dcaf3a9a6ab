"""What the kubelet refused, as evidence (faults.md A7, B3, B4, E3, E9).

Input: the rejections of this node's kubelet, those remembered, free ids. Output: BLOCKED where the next pod would be
refused too; otherwise a note that fades.

Invariant: nothing latches, and nothing ends by the clock: what blocks stands on what is remembered (agent.core.refusals)
until that is answered.

Why a burst: one rejection is one pod's bad luck; three in two minutes are the node's (faults.md B4).
"""

import datetime
from collections.abc import Iterable, Iterator

from agent.core import refusals
from agent.core.context import Context, after, named, unheld
from agent.core.rules import devices
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.history import Refusal
from agent.model.snapshot import ResourceView
from muster.model import kube
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy


def _rule(rule: str, cause: str, verdict: Verdict, remedy: Remedy, clears_when: str) -> Rule:
    return Rule(
        id=rule,
        cause=cause,
        verdict=verdict,
        effect=Effect.BLOCK if verdict is Verdict.BLOCKED else Effect.NONE,
        reason=Reason.REJECTED,
        remedy=remedy,
        clears_when=clears_when,
    )


_PLUGIN = "the plugin has restarted, or a pod has got a device since"
POISONED = _rule("B3", "LostGpuPoisonsNode", Verdict.BLOCKED, Remedy.DRAIN_AND_RESET_GPU, _PLUGIN)
ZOMBIE = _rule("B4", "ZombiePluginNvmlBrokenInside", Verdict.BLOCKED, Remedy.RESTART_DEVICE_PLUGIN, _PLUGIN)
LEAK = _rule(
    "E3", "LedgerLeak", Verdict.BLOCKED, Remedy.RESTART_KUBELET,
    "the kubelet has restarted, or more devices are held than it said there were",
)  # fmt: skip
PILE = _rule("E9", "RejectedPodsPileUp", Verdict.TRANSIENT, Remedy.INVESTIGATE, "fewer than 10 rejections in 5 min")
SINGLE = _rule("pod-rejected", "PodRejected", Verdict.TRANSIENT, Remedy.RECREATE_POD, "2 min without a rejection")

RULES = (POISONED, ZOMBIE, LEAK, PILE, SINGLE)

_BURST = 3
_PODS_OF_LEAK = 2
"""faults.md E3: twice for different pods."""
_PILE = 10


def find(context: Context) -> Iterator[Suspicion]:
    """Yield what the rejections mean, recent ones and those that still stand."""
    explained = False
    for view in context.snapshot.resources:
        for suspicion in (*_preferred(context, view), *_leak(context, view)):
            explained = True
            yield suspicion
    recent = recent_of(context)
    if not recent:
        return
    pods = named(item.pod or item.uid or "a pod" for item in recent)
    if len(recent) > _PILE:
        yield Suspicion(rule=PILE, units=len(recent), detail=f"{len(recent)} rejections in 5 min: {pods}")
    last = max(item.at for item in recent)
    until = after(last, context.wait("rejection-burst"))
    if not explained and context.now < until:
        yield Suspicion(rule=SINGLE, units=len(recent), until=until, detail=f"rejected by the kubelet: {pods}")


def recent_of(context: Context) -> tuple[kube.Rejection, ...]:
    """Return the admission errors of the last five minutes, oldest first."""
    return refusals.recent_of(context.snapshot, context.policy)


def why(message: str) -> Reason:
    """Return what the kubelet's own words accuse; Rejected where they are of no known form.

    >>> why("Allocate failed due to no healthy devices present; cannot allocate unhealthy devices").value
    'NotAdvertised'
    """
    if refusals.names_preferred(message):
        return Reason.READ_FAILED  # the plugin's NVML, or one GPU that it walks over (faults.md B3, B4)
    return Reason.NOT_ADVERTISED if "no healthy devices" in message.lower() else Reason.REJECTED


def _pods(items: Iterable[Refusal]) -> str:
    return named(item.pod for item in items)


def _preferred(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    naming = [item for item in refusals.standing(context.history) if not item.resource]
    if not naming or not unheld(view):
        return
    lost = [item for item in devices.find(context) if item.rule is devices.LOST and item.resource == view.name]
    if lost:
        until = _end_of_lost(context, lost)
        detail = f"{lost[0].detail}; refused: {_pods(naming)}"
        yield Suspicion(rule=POISONED, resource=view.name, until=until, detail=detail)
    elif any(item.proves == POISONED.id for item in naming):
        detail = f"a GPU was lost, and the plugin has not restarted since; refused: {_pods(naming)}"
        yield Suspicion(rule=POISONED, resource=view.name, detail=detail)
    elif _is_burst(context, naming) or any(item.proves == ZOMBIE.id for item in naming):
        yield Suspicion(rule=ZOMBIE, resource=view.name, detail=f"preferred allocation fails: {_pods(naming)}")


def _end_of_lost(context: Context, lost: list[Suspicion]) -> datetime.datetime | None:
    """Return the end of B2's own hold-down, which B3 shares."""
    ends = [after(context.seen_since(item.key) or context.now, context.wait("gpu-lost")) for item in lost]
    return min(ends) if context.now < min(ends) else None


def _is_burst(context: Context, naming: list[Refusal]) -> bool:
    window = context.wait("rejection-burst")
    return any(later.at - first.at <= window for first, later in zip(naming, naming[_BURST - 1 :], strict=False))


def _leak(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    """Find the kubelet saying twice that less is available than its own lists show (faults.md E3)."""
    hits = [item for item in refusals.standing(context.history) if item.resource == view.name and item.most is not None]
    if len(hits) < _PODS_OF_LEAK:
        return
    looks_free, most = len(unheld(view)), hits[-1].most or 0
    available = max(0, most - len(view.holders()))
    if available < looks_free:
        yield Suspicion(
            rule=LEAK,
            resource=view.name,
            units=looks_free - available,
            available=available,
            detail=f"by the kubelet's word {available} are available, {looks_free} look free: {_pods(hits)}",
        )
