"""Somebody outside the kubelet's ledger uses a device (faults.md E4, E5, E6, E8), or a pod that asked for none.

Input: processes with their meaning (core/holders.py), List, pods. Output: ids that look free and are taken.

Invariant: only an id that the kubelet may hand out next can be contended; one that List gives to somebody is not free
anyway.
"""

from collections.abc import Iterator, Sequence

from agent.core import holders
from agent.core.context import Context, after, named, unheld
from agent.core.holders import Usage, Use
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.policy import Policy
from agent.model.snapshot import DeviceId, ResourceView, Unit
from muster.model import kube
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

FOREIGN = Rule(
    id="E5",
    cause="ProcessOutsideKubernetes",
    verdict=Verdict.CONTENDED,
    effect=Effect.TAKEN,
    reason=Reason.FOREIGN_PROCESS,
    remedy=Remedy.STOP_FOREIGN_PROCESS,
    wait="foreign-process",
    clears_when="no process outside Kubernetes is on the device",
)
TOOL = Rule(
    id="management-tool",
    cause="ManagementToolOnGpu",
    verdict=Verdict.CONTENDED,
    effect=Effect.TAKEN,
    reason=Reason.FOREIGN_PROCESS,
    remedy=Remedy.WAIT,
    wait="foreign-process",
    clears_when="the diagnostic or management tool has left the device",
)
OPERATOR_POD = Rule(
    id="operator-pod",
    cause="OperatorPodOnGpu",
    verdict=Verdict.OK,
    reason=Reason.OK,
    remedy=Remedy.NONE,
    clears_when="the operator's pod no longer holds the device",
)
ORPHAN = Rule(
    id="E4",
    cause="TerminatingPodOnGpu",
    verdict=Verdict.CONTENDED,
    effect=Effect.TAKEN,
    reason=Reason.TERMINATING_POD,
    remedy=Remedy.EVICT_HOLDER,
    wait="pod-teardown",
    clears_when="the processes of that pod are gone, or List names the pod with the device",
)
TERMINATING = Rule(
    id="E4-listed",
    cause="TerminatingPodOnGpu",
    verdict=Verdict.CONTENDED,
    reason=Reason.TERMINATING_POD,
    remedy=Remedy.EVICT_HOLDER,
    clears_when="the terminating pod is gone from List",
)
HELD_BY_INIT = Rule(
    id="E8",
    cause="InitContainerHolder",
    verdict=Verdict.OK,
    effect=Effect.HELD,
    reason=Reason.OK,
    remedy=Remedy.NONE,
    clears_when="List names the pod with the device, or its processes are gone",
)
UNASKED = Rule(
    id="gpu-unasked",
    cause="PodUsesGpuUnasked",
    verdict=Verdict.CONTENDED,
    effect=Effect.TAKEN,
    reason=Reason.FOREIGN_PROCESS,
    remedy=Remedy.STOP_FOREIGN_PROCESS,
    wait="foreign-process",
    clears_when="the pod asks for what it uses, or its processes are gone",
)
MEMORY = Rule(
    id="E6",
    cause="MemoryHeldNoProcess",
    verdict=Verdict.CONTENDED,
    effect=Effect.TAKEN,
    reason=Reason.FOREIGN_PROCESS,
    remedy=Remedy.DRAIN_AND_RESET_GPU,
    wait="memory-held",
    clears_when="the device's used memory is back at the driver's baseline",
)

RULES = (FOREIGN, TOOL, OPERATOR_POD, ORPHAN, TERMINATING, HELD_BY_INIT, UNASKED, MEMORY)

_RULE_OF = {Use.FOREIGN: FOREIGN, Use.ORPHAN: ORPHAN, Use.KNOWN_POD: HELD_BY_INIT}


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a suspicion for every device that is used and looks free, and for pods that do not end."""
    usages = holders.usages_of(context.snapshot, context.policy)
    for view in context.snapshot.resources:
        asking = _asking(context, view)
        for device in unheld(view):
            if device.unit is None:
                continue
            for use in _RULE_OF:
                hits = [usage for usage in usages if usage.unit == device.uuid and usage.use is use]
                if hits:
                    who = (usage.pod or f"pid {usage.process.pid} {usage.process.name}".rstrip() for usage in hits)
                    rule = _rule(use, hits, asking, context.policy)
                    yield _of_device(rule, view, device, f"{device.uuid}: {named(who)}")
            if not any(usage.unit == device.uuid for usage in usages) and _is_memory_held(context, device.unit):
                yield _of_device(MEMORY, view, device, f"{device.uuid}: memory in use, no process, no holder")
        yield from _terminating(context, view)
        yield from _operator_pods(context, view)


def _rule(use: Use, hits: Sequence[Usage], asking: frozenset[str], policy: Policy) -> Rule:
    """Return what its users make of a device: only who asked for this resource is in the kubelet's ledger for it."""
    rule = _RULE_OF[use]
    if rule is HELD_BY_INIT and not any(usage.pod in asking for usage in hits):
        rule = UNASKED
    if rule in (FOREIGN, UNASKED) and all(_is_tool(policy, usage.process.name) for usage in hits):
        return TOOL
    return rule


def _asking(context: Context, view: ResourceView) -> frozenset[str]:
    match context.snapshot.pods:
        case Known(pods):
            return frozenset(pod.full_name for pod in pods if pod.requests.get(view.name, 0) > 0)
        case Unknown():
            return frozenset()


def _is_tool(policy: Policy, name: str) -> bool:
    return name in policy.management_processes or name.startswith(policy.diagnostic_processes)


def _operator_pods(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    """Yield who of an operator's own pods holds a device: no gang waits for one of those."""
    held: dict[str, list[str]] = {}
    for text, pods in view.holders().items():
        for pod in pods:
            namespace, _, name = pod.partition("/")
            if namespace in context.policy.operator_namespaces and name.startswith(context.policy.operator_pods):
                held.setdefault(pod, []).append(text)
    for pod, ids in sorted(held.items()):
        yield Suspicion(
            rule=OPERATOR_POD,
            resource=view.name,
            subject=pod,
            devices=tuple(sorted(ids)),
            units=len(ids),
            detail=f"{pod} holds {named(ids)}",
        )


def _of_device(rule: Rule, view: ResourceView, device: DeviceId, detail: str) -> Suspicion:
    return Suspicion(
        rule=rule,
        resource=view.name,
        subject=device.id,
        ids=(device.id,),
        devices=(device.uuid,),
        units=1,
        detail=detail,
    )


def _is_memory_held(context: Context, unit: Unit) -> bool:
    """True for a whole GPU with memory in use, a readable and empty process list, and no MPS in front of it."""
    snapshot = context.snapshot
    if unit.is_mig or _is_mps_alive(context) or unit.gpu.processes != Known(()):
        return False
    if any(
        device.uuid == unit.uuid and device.id in view.holders() for view in snapshot.resources for device in view.ids()
    ):
        return False
    match unit.gpu.memory_used_bytes:
        case Known(used):
            return used > context.policy.memory_baseline_bytes
        case Unknown():
            return False


def _is_mps_alive(context: Context) -> bool:
    match context.snapshot.observation.mps:
        case Known(mps):
            return mps.daemon_alive == Known(True)  # noqa: FBT003
        case Unknown():
            return False


def _terminating(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    match context.snapshot.listed, context.snapshot.pods:
        case Known(listed), Known(pods):
            by_uid: dict[str, kube.Pod] = {pod.uid: pod for pod in pods}
        case _:
            return
    for item in listed:
        ids = item.ids.get(view.name, ())
        for pod in (by_uid[uid] for uid in item.uids if uid in by_uid):
            if ids and pod.deletion_at is not None:
                # The API's deletion timestamp already contains the grace period.
                yield Suspicion(
                    rule=TERMINATING,
                    resource=view.name,
                    subject=pod.uid,
                    devices=ids,
                    units=len(ids),
                    until=after(pod.deletion_at, context.wait("pod-teardown")),
                    detail=f"{pod.full_name} is being deleted and still holds {named(ids)}",
                )
