"""What the kubelet refused, as evidence (faults.md A7, B3, B4, E3, E9).

Input: the rejections of this node's kubelet, free ids, plugin and kubelet starts. Output: BLOCKED where the next pod would
be refused too; otherwise a note that fades.

Invariant: nothing latches. A rejection counts until what it accuses has restarted, or a pod has got a device since.

Why a burst: one rejection is one pod's bad luck; three in two minutes are the node's (faults.md B4).
"""

import datetime
import re
from collections.abc import Iterator

from agent.core.context import Context, after, named, unheld
from agent.core.rules import devices
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.snapshot import ResourceView
from muster.model import kube
from muster.model.reading import Known, Reading
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
    "E3", "LedgerLeak", Verdict.BLOCKED, Remedy.RESTART_KUBELET, "the kubelet has restarted, or a pod has got a device"
)
PILE = _rule("E9", "RejectedPodsPileUp", Verdict.TRANSIENT, Remedy.INVESTIGATE, "fewer than 10 rejections in 5 min")
SINGLE = _rule("pod-rejected", "PodRejected", Verdict.TRANSIENT, Remedy.RECREATE_POD, "2 min without a rejection")

RULES = (POISONED, ZOMBIE, LEAK, PILE, SINGLE)

_BURST = 3
_PILE = 10
_AVAILABLE = re.compile(r"for (?P<resource>[^\s,]+).*Requested: *(?P<requested>\d{1,9}).*Available: *(?P<left>\d{1,9})")
_PREFERRED = ("preferred allocation", "getpreferredallocation", "preferredallocation")
_ADMISSION = "UnexpectedAdmissionError"


def find(context: Context) -> Iterator[Suspicion]:
    """Yield what the recent rejections mean."""
    recent = recent_of(context)
    if not recent:
        return
    explained = False
    for view in context.snapshot.resources:
        for suspicion in (*_preferred(context, view, recent), *_leak(context, view, recent)):
            explained = True
            yield suspicion
    if len(recent) > _PILE:
        yield Suspicion(rule=PILE, units=len(recent), detail=f"{len(recent)} rejections in 5 min: {_pods(recent)}")
    last = max(item.at for item in recent)
    until = after(last, context.wait("rejection-burst"))
    if not explained and context.now < until:
        yield Suspicion(rule=SINGLE, units=len(recent), until=until, detail=f"rejected by the kubelet: {_pods(recent)}")


def recent_of(context: Context) -> tuple[kube.Rejection, ...]:
    """Return the admission errors of the last five minutes, oldest first."""
    wait = context.wait("rejection-recent")
    found = (
        item
        for item in context.snapshot.observation.rejections
        if item.reason == _ADMISSION and datetime.timedelta() <= context.now - item.at <= wait
    )
    return tuple(sorted(found, key=lambda item: (item.at, item.pod, item.uid)))


def why(message: str) -> Reason:
    """Return what the kubelet's own words accuse; Rejected where they are of no known form.

    >>> why("Allocate failed due to no healthy devices present; cannot allocate unhealthy devices").value
    'NotAdvertised'
    """
    text = message.lower()
    if any(word in text for word in _PREFERRED):
        return Reason.READ_FAILED  # the plugin's NVML, or one GPU that it walks over (faults.md B3, B4)
    return Reason.NOT_ADVERTISED if "no healthy devices" in text else Reason.REJECTED


def _pods(rejections: tuple[kube.Rejection, ...]) -> str:
    return named(item.pod or item.uid or "a pod" for item in rejections)


def _since_restart(
    context: Context, view: ResourceView, recent: tuple[kube.Rejection, ...], started: list[Reading[datetime.datetime]]
) -> list[kube.Rejection]:
    """Drop the rejections that a restart or a success has answered."""
    cleared = [instant.value for instant in started if isinstance(instant, Known)]
    cleared += _successes(context, view)
    return [item for item in recent if not any(item.at < instant <= context.now for instant in cleared)]


def _successes(context: Context, view: ResourceView) -> list[datetime.datetime]:
    """Return when pods were made that hold a device now: each got it after that."""
    match context.snapshot.listed, context.snapshot.pods:
        case Known(listed), Known(pods):
            holding = {uid for item in listed if item.ids.get(view.name) for uid in item.uids}
            return [pod.created_at for pod in pods if pod.uid in holding and pod.created_at is not None]
        case _:
            return []


def _preferred(context: Context, view: ResourceView, recent: tuple[kube.Rejection, ...]) -> Iterator[Suspicion]:
    started = [plugin.started_at for plugin in context.snapshot.plugins]
    naming = [
        item
        for item in _since_restart(context, view, recent, started)
        if any(word in item.message.lower() for word in _PREFERRED)
    ]
    if not naming or not unheld(view):
        return
    lost = [item for item in devices.find(context) if item.rule is devices.LOST and item.resource == view.name]
    pods = _pods(tuple(naming))
    if lost:
        until = _end_of_lost(context, lost)
        yield Suspicion(rule=POISONED, resource=view.name, until=until, detail=f"{lost[0].detail}; refused: {pods}")
    elif _is_burst(context, naming):
        yield Suspicion(rule=ZOMBIE, resource=view.name, detail=f"preferred allocation fails: {pods}")


def _end_of_lost(context: Context, lost: list[Suspicion]) -> datetime.datetime | None:
    """Return the end of B2's own hold-down, which B3 shares."""
    ends = [after(context.seen_since(item.key) or context.now, context.wait("gpu-lost")) for item in lost]
    return min(ends) if context.now < min(ends) else None


def _is_burst(context: Context, naming: list[kube.Rejection]) -> bool:
    window = context.wait("rejection-burst")
    return any(later.at - first.at <= window for first, later in zip(naming, naming[_BURST - 1 :], strict=False))


def _leak(context: Context, view: ResourceView, recent: tuple[kube.Rejection, ...]) -> Iterator[Suspicion]:
    """Find the kubelet saying twice that less is available than its own lists show (faults.md E3)."""
    looks_free = len(unheld(view))
    hits: list[tuple[kube.Rejection, int]] = []
    for item in _since_restart(context, view, recent, [context.snapshot.kubelet_started_at]):
        match = _AVAILABLE.search(item.message)
        if match and match["resource"].rstrip(".") == view.name and int(match["left"]) < looks_free:
            hits.append((item, int(match["left"])))
    if len({item.uid or item.pod for item, _ in hits}) >= 2:  # twice, for different pods
        available = hits[-1][1]
        yield Suspicion(
            rule=LEAK,
            resource=view.name,
            units=looks_free - available,
            available=available,
            detail=f"the kubelet says {available} available, {looks_free} look free: {_pods(tuple(i for i, _ in hits))}",
        )
