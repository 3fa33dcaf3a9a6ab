"""A device that is held and cannot be put into its container (faults.md D6).

Input: holders by List, their containers' state, the CDI specs. Output: BLOCKED: the next pod would fail the same way;
one suspicion a waiting container, since each has its own minute.

Invariant: says so only if a spec was read and lacks the device; a container that waits has many other reasons. Where there
is no spec at all the node may do without CDI: then only a runtime's own complaint about that device counts.

Why not every creation error: a Secret that does not exist (CreateContainerConfigError) or a command that cannot start
(StartError) is that pod's own, and must not take the node from everybody else.

Why the minute is counted from the first sample that shows it: the API says since when a container runs, or when it ended,
and not since when it waits.
"""

from collections.abc import Iterator

from agent.core.context import Context
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.snapshot import ResourceView
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

NOT_IN_SPEC = Rule(
    id="D6",
    cause="CdiSpecEmptyOrStale",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.POD_WITHOUT_DEVICE,
    remedy=Remedy.RESTART_DEVICE_PLUGIN,
    wait="container-creation",
    clears_when="the CDI spec names the held devices, or no container waits for one",
)

RULES = (NOT_IN_SPEC,)

_CREATION = ("CreateContainerError", "RunContainerError")
_KIND = "nvidia.com/"
_COMPLAINT = "unresolvable cdi devices"
"""What the CDI library says, under every runtime."""


def find(context: Context) -> Iterator[Suspicion]:
    """Yield resources whose held devices no CDI spec names while a container cannot be created."""
    match context.snapshot.observation.cdi, context.snapshot.listed, context.snapshot.pods:
        case Known(specs), Known(listed), Known(pods):
            by_uid = {pod.uid: pod for pod in pods}
        case _:
            return
    ours = tuple(spec for spec in specs if spec.kind.startswith(_KIND))
    for view in context.snapshot.resources:
        for item in listed:
            held = [_names_of(view, text) for text in item.ids.get(view.name, ())]
            lacking = [names for names in held if not _is_named(ours, names)]
            for pod in (by_uid[uid] for uid in item.uids if uid in by_uid):
                for container in _waiting(pod, lacking, has_spec=bool(ours)) if lacking else ():
                    yield Suspicion(
                        rule=NOT_IN_SPEC,
                        resource=view.name,
                        subject=f"{pod.uid}/{container}",
                        detail=f"no CDI spec names the devices of {pod.full_name}, whose {container} cannot be created",
                    )


def _names_of(view: ResourceView, text: str) -> frozenset[str]:
    """Return what a spec may call the device: its id, its UUID, its index."""
    names = {text} | {device.uuid for device in view.ids() if device.id == text}
    for device in view.ids():
        if device.id == text and device.unit is not None and isinstance(device.unit.gpu.index, Known):
            names.add(str(device.unit.gpu.index.value))
    return frozenset(names)


def _is_named(ours: tuple[planes.CdiSpec, ...], names: frozenset[str]) -> bool:
    """True if a spec names the device, or all of them together."""
    return any(name in names or name == "all" for spec in ours for name in spec.devices)


def _waiting(pod: kube.Pod, lacking: list[frozenset[str]], *, has_spec: bool) -> Iterator[str]:
    """Yield the pod's containers that cannot be created."""
    for item in pod.containers:
        is_stuck = item.state is kube.ContainerState.WAITING and item.reason in _CREATION
        if is_stuck and (has_spec or _complains(item.message, lacking)):
            yield item.name


def _complains(message: str, lacking: list[frozenset[str]]) -> bool:
    """True if the runtime says that it looked for one of the devices in CDI specs."""
    _, found, rest = message.lower().partition(_COMPLAINT)
    asked = {part.partition("=")[2].strip("\"':;.") for part in rest.replace(",", " ").split() if _KIND in part}
    return bool(found) and any(name.lower() in asked for names in lacking for name in names)
