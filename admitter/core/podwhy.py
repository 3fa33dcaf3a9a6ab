"""Why a pod does not run: held, not placed, refused by its kubelet, not started, or running without what it asked for.

In: a PodScene. Out: causes, the first to be cured first; none where nothing is wrong that anybody here can see.

Invariants: every cause has one sentence and a remedy. Ages are in none of them, so that an answer changes only when
something has changed. It works for every pod, Muster's or not; what Muster did to a pod is said as such.

Why "no autoscaler": autoscalers act on pods that a scheduler called Unschedulable; a pod with a gate never is
(cluster-autoscaler and Karpenter alike), so a gang that waits for nodes waits for people.

Not here: which nodes (podplaces.py).
"""

from collections.abc import Iterator

from admitter.core import podplaces, strikes
from admitter.model.podstory import PodCause, PodReason, PodScene
from muster.model import kube, labels
from muster.model.report import PodState

NO_AUTOSCALER = "no autoscaler acts on its pods: one with a scheduling gate is no signal to scale up"
_OWNERS_OF_GATES = {
    "kueue.x-k8s.io/": "Kueue",
    "scheduling.volcano.sh/": "Volcano",
    "jobset.sigs.k8s.io/": "JobSet",
    "leaderworkerset.sigs.k8s.io/": "LeaderWorkerSet",
    "karpenter.sh/": "Karpenter",
}
"""Domain of a gate -> who lifts it."""
_WITHOUT = {
    PodState.WITHOUT_DEVICE: "runs without the device that it asked for",
    PodState.ON_BAD_DEVICE: "runs on a device that is not well",
}
_MAX = 400


def causes(scene: PodScene) -> tuple[PodCause, ...]:
    """Return what keeps a pod from running, or from what it asked for."""
    pod = scene.pod
    if strikes.is_rejection(pod):
        return (_rejected(scene),)
    if pod.is_finished or pod.deletion_at is not None:
        return ()
    if pod.gates:
        return tuple(_gated(scene))
    if not pod.node:
        return tuple(_unbound(scene))
    if not strikes.has_started(pod):
        return tuple(_not_started(scene))
    return tuple(_without(scene))


def _rejected(scene: PodScene) -> PodCause:
    pod = scene.pod
    report = scene.reports.get(pod.node)
    finding = next(iter(report.node_findings), None) if report is not None else None
    if report is not None and finding is None:
        finding = next((each for own in report.resources.values() for each in own.findings), None)
    words = f"; its agent says {report.verdict.value}: {finding.detail}" if report is not None and finding else ""
    return PodCause(
        reason=PodReason.REJECTED,
        summary=f"the kubelet of {pod.node} refused it, {pod.reason}: {pod.message}"[:_MAX] + words[:_MAX],
        remedy="delete it, or let what makes it do so; keep others off the node until its cause is cured",
    )


def _gated(scene: PodScene) -> Iterator[PodCause]:
    for gate in scene.pod.gates:
        yield _held(scene) if gate == labels.GANG.full else _foreign(gate)
    yield PodCause(
        reason=PodReason.NO_AUTOSCALER,
        summary=NO_AUTOSCALER,
        remedy="add nodes by hand if no running work will end in time",
    )


def _held(scene: PodScene) -> PodCause:
    if not scene.lifts_gates:
        return PodCause(
            reason=PodReason.GATE_NOBODY_LIFTS,
            summary=f"it carries the gate {labels.GANG.full}, and this admitter runs without --gates",
            remedy="run the admitter with --gates, or `muster bypass` to let it go",
        )
    if not scene.gang:
        return PodCause(
            reason=PodReason.GATE_NOBODY_LIFTS,
            summary=f"it carries the gate {labels.GANG.full}, and belongs to no gang: nothing says with whom it starts",
            remedy=f"give it the label {labels.GANG.full} and the annotation {labels.GANG_SIZE.full}, or its namespace "
            f'the label {labels.MANAGED.full}: "true"',
        )
    told = scene.told
    words = f"{told.reason}: {told.summary}" if told is not None else "it has just been seen"
    return PodCause(
        reason=PodReason.HELD,
        summary=f"held until all of gang {scene.pod.namespace}/{scene.gang} have a place; {words}"[:_MAX],
        remedy=f"`muster why gang/{scene.pod.namespace}/{scene.gang}` names every node and what can change",
    )


def _foreign(gate: str) -> PodCause:
    owner = next((name for prefix, name in _OWNERS_OF_GATES.items() if gate.startswith(prefix)), "")
    if owner:
        return PodCause(
            reason=PodReason.FOREIGN_GATE,
            summary=f"it carries the gate {gate}, which is {owner}'s to lift",
            remedy=f"ask {owner} why; Muster never lifts a gate of others",
        )
    return PodCause(
        reason=PodReason.GATE_NOBODY_LIFTS,
        summary=f"it carries the gate {gate}, and nobody that Muster knows lifts it",
        remedy="find whose gate it is by its domain, and whether that controller runs; Muster never lifts it",
    )


def _unbound(scene: PodScene) -> Iterator[PodCause]:
    pod = scene.pod
    if labels.UNVERIFIED.full in pod.annotations:
        yield PodCause(
            reason=PodReason.UNVERIFIED,
            summary="Muster let it go without a lease while it could not see, since its queue fails open",
            remedy="nothing: its scheduler places it; see why the agents were silent",
        )
    if labels.LEASE.full in pod.annotations:
        yield PodCause(
            reason=PodReason.PINNED,
            summary="Muster let it go with a place of its own, and it is not bound there yet"
            + _said(scene, "; its scheduler says: "),
            remedy="wait: past --bind-patience-seconds its gang is planned anew",
        )
        return
    listed = tuple(podplaces.causes(scene))
    yield from listed
    words, beyond = _said(scene, ""), _beyond(scene)
    if words and (beyond or not listed):
        yield PodCause(
            reason=PodReason.SCHEDULER,
            summary=f"its scheduler says: {words}{beyond}",
            remedy="`kubectl describe pod` has the scheduler's Events",
        )
    elif not words:
        name = pod.scheduler or strikes.DEFAULT_SCHEDULER
        yield PodCause(
            reason=PodReason.SCHEDULER,
            summary=f"the scheduler {name} has not said anything about it{beyond}",
            remedy=f"see that {name} runs; no autoscaler acts before a scheduler calls the pod Unschedulable",
        )


def _beyond(scene: PodScene) -> str:
    """Say that not all devices were looked at."""
    count = len(podplaces.devices(scene.pod.requests))
    return f"; of {count} devices only {podplaces.MOST} were looked at" if count > podplaces.MOST else ""


def _said(scene: PodScene, before: str) -> str:
    """Return what a scheduler last said of the pod."""
    for condition in scene.pod.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason != "SchedulingGated":
            return f"{before}{condition.message}"[:_MAX]
    return ""


def _not_started(scene: PodScene) -> Iterator[PodCause]:
    pod = scene.pod
    waiting = next((each for each in pod.containers if each.state is kube.ContainerState.WAITING and each.reason), None)
    node = scene.nodes.get(pod.node)
    words = f"{waiting.name} waits: {waiting.reason} {waiting.message}".rstrip() if waiting is not None else "not begun"
    lost = f"; {pod.node} is not there" if node is None else ""
    yield PodCause(
        reason=PodReason.NOT_STARTED,
        summary=f"bound to {pod.node}, and no container has started: {words}{lost}"[:_MAX],
        remedy="`kubectl describe pod` has the kubelet's Events"
        if node is not None and podplaces.is_ready(node)
        else f"look at node {pod.node}: its kubelet does not say that it is ready",
    )


def _without(scene: PodScene) -> Iterator[PodCause]:
    report = scene.reports.get(scene.pod.node)
    for each in report.pods if report is not None else ():
        is_it = each.uid == scene.pod.uid if each.uid else each.pod == scene.pod.full_name
        if is_it and each.state in _WITHOUT:
            devices = f": {', '.join(each.devices[:4])}" if each.devices else ""
            yield PodCause(
                reason=PodReason.WITHOUT_DEVICE,
                summary=f"{_WITHOUT[each.state]} on {scene.pod.node}, {each.reason}{devices}",
                remedy="recreate the pod elsewhere; `muster status` has the node's verdict",
            )
