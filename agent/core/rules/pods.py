"""What hits one pod only (faults.md A8, D6; design.md section 3): it raises the node's verdict and lowers no number.

Input: bound pods, List. Output: findings of the node; core/podreport.py lists the pods themselves.
"""

import datetime
from collections.abc import Iterator, Mapping

from agent.core.context import Context, after
from agent.model.finding import Rule, Suspicion
from agent.model.snapshot import ResourceView
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

WITHOUT_DEVICE = Rule(
    id="A8",
    cause="CheckpointLostPodWithoutGpu",
    verdict=Verdict.BLOCKED,
    reason=Reason.POD_WITHOUT_DEVICE,
    remedy=Remedy.RECREATE_POD,
    clears_when="the pod is gone, or List shows it with devices",
)

RULES = (WITHOUT_DEVICE,)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield pods that run without the device they asked for."""
    for view in context.snapshot.resources:
        for pod, asked in without_device(context, view):
            since = _running_since(pod)
            yield Suspicion(
                rule=WITHOUT_DEVICE,
                subject=f"{view.name}/{pod.uid}",
                units=asked,
                until=after(since, context.wait("container-without-device")) if since is not None else None,
                detail=f"{pod.full_name} asked for {asked} of {view.name}, runs, and List shows it with none",
            )


def without_device(context: Context, view: ResourceView) -> Iterator[tuple[kube.Pod, int]]:
    """Yield the pods with a running container that asked for devices and hold none by List, and how many they asked for."""
    match context.snapshot.listed, context.snapshot.pods, view.requests:
        case Known(listed), Known(pods), Known(requests):
            by_uid = {uid: item for item in listed for uid in item.uids}
            known: Mapping[str, int] = requests
        case _:
            return
    for pod in pods:
        item = by_uid.get(pod.uid)
        if (
            item is not None
            and pod.uid in known
            and not item.ids.get(view.name)
            and _asks_while_running(pod, view.name)
        ):
            yield pod, known[pod.uid]


def _asks_while_running(pod: kube.Pod, name: str) -> bool:
    """True if an app container that asks for the resource runs; an init container's devices are invisible (S10)."""
    apps = [item for item in pod.containers if item.kind is not kube.ContainerKind.INIT]
    asking = [item for item in apps if item.requests.get(name, 0) > 0]
    if not any(item.requests for item in pod.containers):
        asking = apps  # only the pod's own figure is known: any of them may be the one
    return any(item.state is kube.ContainerState.RUNNING for item in asking)


def _running_since(pod: kube.Pod) -> datetime.datetime | None:
    starts = [item.since for item in pod.containers if item.state is kube.ContainerState.RUNNING and item.since]
    return min(starts, default=None)
