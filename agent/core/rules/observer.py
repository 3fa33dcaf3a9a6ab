"""Faults of the observer: a required plane that nobody can read (faults.md H, design.md section 3).

Input: the four required planes of the snapshot. Output: BLIND for every resource that rests on the plane.

Invariant: a failed read is never "nothing there". Only a required plane makes BLIND; everything else that could not be
read is listed under `unverified` by report.py.

Not here: NVML that says what is wrong with the driver (driver.py), and single GPUs that do not answer (devices.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.core import absence
from agent.core.context import Context, named
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.snapshot import ResourceView
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy


def _blind(rule: str, cause: str, clears_when: str, wait: str = "", reason: Reason = Reason.PLANE_UNREADABLE) -> Rule:
    return Rule(
        id=rule,
        cause=cause,
        verdict=Verdict.BLIND,
        effect=Effect.BLIND,
        reason=reason,
        remedy=Remedy.FIX_AGENT_DEPLOYMENT,
        wait=wait,
        clears_when=clears_when,
    )


LIST_TOO_LARGE = _blind("H2", "Grpc4mib", "List fits the client's receive limit")
PODRESOURCES = _blind("H4", "PodresourcesMissing", "the kubelet's pod-resources socket answers")
PODRESOURCES_REFUSED = _blind(
    "H4-refused", "PodresourcesMissing", "the kubelet's pod-resources socket answers", "podresources-refused"
)
API = _blind("api-slice", "NodeSliceUnreadable", "the admitter sends the node's Node and Pods")
NVML = _blind("nvml-unreadable", "NvmlUnreadable", "NVML answers")
PARTIAL = _blind(
    "H3", "PartialNvmlView", "NVML shows every GPU that is bound to the driver", reason=Reason.PARTIAL_VIEW
)

RULES = (LIST_TOO_LARGE, PODRESOURCES, PODRESOURCES_REFUSED, API, NVML, PARTIAL)

_GA = "GetAllocatableResources"

_PODRESOURCES_RULE: Mapping[str, Rule] = {
    "ResourceExhausted": LIST_TOO_LARGE,
    "ConnectionRefused": PODRESOURCES_REFUSED,
    "Unavailable": PODRESOURCES_REFUSED,
}
"""By reason of the failed read; any other is H4 at once."""


def find(context: Context) -> Iterator[Suspicion]:
    """Yield BLIND for every required plane that is unreadable."""
    snapshot = context.snapshot
    match snapshot.allocatable:
        case Unknown() as unread:
            yield from _everywhere(context, _podresources_rule(unread), _GA, unread)
        case Known():
            pass
    match snapshot.listed:
        case Unknown() as unread:
            yield from _everywhere(context, _podresources_rule(unread), "List", unread)
        case Known():
            pass
    if snapshot.api_server:
        yield from _api(context)
    match snapshot.nvml:
        case Unknown() as unread if unread == NOT_COLLECTED:
            yield from _everywhere(context, NVML, "NVML", unread)
        case Unknown():
            pass
        case Known():
            yield from _partial(context)


def _podresources_rule(unread: Unknown) -> Rule:
    return _PODRESOURCES_RULE.get(unread.reason, PODRESOURCES)


def _api(context: Context) -> Iterator[Suspicion]:
    sides: tuple[tuple[str, Reading[Any]], ...] = (
        ("Node", context.snapshot.observation.node_object),
        ("Pods", context.snapshot.observation.pods),
    )
    for plane, reading in sides:
        match reading:
            case Unknown() as unread:
                yield from _everywhere(context, API, plane, unread)
            case Known():
                pass


def _everywhere(context: Context, rule: Rule, plane: str, unread: Unknown) -> Iterator[Suspicion]:
    detail = f"{plane}: {unread.reason}" + (f" ({unread.detail})" if unread.detail else "")
    # DRA devices are in slices, never in GA (faults.md S21).
    views = [view for view in context.snapshot.resources if not (view.is_dra and plane == _GA)]
    for view in views:
        yield Suspicion(rule=rule, resource=view.name, subject=plane, detail=detail)
    if not views:
        yield Suspicion(rule=rule, subject=plane, detail=detail)


def _partial(context: Context) -> Iterator[Suspicion]:
    """Say BLIND where the agent was not allowed to see what others see (faults.md H3)."""
    snapshot = context.snapshot
    refused = sorted(gpu.uuid for gpu in snapshot.gpus if absence.is_refused(gpu))
    hidden_anywhere = False
    for view in snapshot.resources:
        hidden = _hidden(context, view)
        if hidden:
            hidden_anywhere = True
            detail = f"NVML refuses the agent a part ({named(refused) or 'MIG'}); not seen: {named(hidden)}"
            yield Suspicion(rule=PARTIAL, resource=view.name, ids=hidden, devices=tuple(refused), detail=detail)
    unlisted = bound_functions(snapshot.observation) - len(snapshot.gpus)
    if refused and unlisted > 0 and not hidden_anywhere:
        detail = f"{unlisted} more GPUs are bound to the driver than NVML lists; it refuses the agent {named(refused)}"
        yield Suspicion(rule=PARTIAL, devices=tuple(refused), detail=detail)


def _hidden(context: Context, view: ResourceView) -> tuple[str, ...]:
    return tuple(
        device.id
        for device in view.ids()
        if device.is_lacking
        and absence.absence_of(device, context.snapshot, context.history)[0] is absence.Absence.HIDDEN
    )


def bound_functions(observation: planes.Observation) -> int:
    """Return how many GPUs the bus has bound to the driver; 0 where the bus could not be read."""
    match observation.pci:
        case Known(functions):
            return sum(1 for item in functions if is_gpu_of_driver(item))
        case Unknown():
            return 0


def is_gpu_of_driver(function: planes.PciFunction) -> bool:
    """True for a GPU bound to the driver: not one given to VMs (faults.md F4), not an NVSwitch or audio function."""
    match function.class_:
        case Known(class_) if class_ is planes.PciClass.OTHER:
            return False
        case _:
            return function.driver == "nvidia"
