"""A cluster with a real node as a recording sees it: what was last done to it, and how to ask it and to change it.

In: a started cluster. Out: a Scene, for the walks (walks.py) and the recorder (record.py).

Invariant: waiting decides nothing. A state that does not come within its time is recorded as what came instead.

Not here: which states there are (walks.py), and what a line of a capture holds (record.py).
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import lightkube
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from agent.model import planes
from agent.sources import checkpoint, podresources
from hack.cluster import deviceplugin, image, realnode, run, versions
from muster.model.reading import Known

NAMESPACE = "default"
WAIT_SECONDS = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Scene:
    """A cluster with a real node, and what was last done to it."""

    cluster: run.Cluster
    client: lightkube.Client
    action: str = "nothing"
    acted: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def node(self) -> realnode.Node:
        assert self.cluster.node is not None
        return self.cluster.node

    def act(self, action: str) -> None:
        self.action, self.acted = action, time.monotonic()

    def restart(self, *names: str) -> None:
        """Start parts as they were, stopped first where they still run."""
        for name in names:
            self.cluster = run.restart(self.cluster, name)

    def numbers(self) -> tuple[str, str]:
        """Return capacity and allocatable as node.status has them, `-` where the key is absent."""
        status: Any = self.client.get(core.Node, realnode.NAME).status
        resource = deviceplugin.RESOURCE
        return (status.capacity or {}).get(resource, "-"), (status.allocatable or {}).get(resource, "-")

    def remove_key(self) -> None:
        """Take the resource out of node.status, as somebody does who tidies up after a plugin that is gone."""
        absent = {deviceplugin.RESOURCE: None}
        body = {"status": {"capacity": absent, "allocatable": absent}}
        self.client.patch(core.NodeStatus, realnode.NAME, body, patch_type=PatchType.MERGE)

    def is_ready(self) -> bool:
        status: Any = self.client.get(core.Node, realnode.NAME).status
        return any(each.type == "Ready" and each.status == "True" for each in status.conditions)

    def create(self, pod: core.Pod) -> None:
        self.client.create(pod)

    def phase(self, name: str) -> str:
        try:
            status: Any = self.client.get(core.Pod, name, namespace=NAMESPACE).status
        except exceptions.ApiError:
            return "Gone"
        return str(status.phase)

    def kubelet(self) -> planes.Kubelet:
        """Return what the kubelet says of itself; what it does not answer is Unknown, with the reason."""
        return asyncio.run(self._kubelet())

    async def _kubelet(self) -> planes.Kubelet:
        reader = podresources.PodResources(self.node.pod_resources)
        kubelet = planes.Kubelet(
            version=versions.LINES[self.cluster.line].kubernetes,
            allocatable=await reader.read_allocatable(),
            pods=await reader.read_pods(),
            checkpoint=checkpoint.CheckpointFile(self.node.checkpoint).read(),
        )
        await reader.close()
        return kubelet

    def listed(self, name: str) -> int:
        """Return how many devices List names for a pod."""
        match self.kubelet().pods:
            case Known(pods):
                boxes = [box for pod in pods if pod.name == name for box in pod.containers]
                return sum(len(device.ids) for box in boxes for device in box.devices)
            case _:
                return 0

    def held(self) -> list[str]:
        """Return the devices that the checkpoint says are held."""
        found = checkpoint.CheckpointFile(self.node.checkpoint).read()
        assert isinstance(found, Known), found
        return [device for pod in found.value.pods for device in pod.ids]

    def wait(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.2)


def pod(name: str, gpus: int, **options: Any) -> core.Pod:
    """Return a pod that runs until it is deleted."""
    spec = core_v1.PodSpec(containers=[container("main", gpus)], hostNetwork=True, restartPolicy="Never", **options)
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)


def container(name: str, gpus: int, **options: Any) -> core_v1.Container:
    resources = core_v1.ResourceRequirements(limits={deviceplugin.RESOURCE: str(gpus)})
    return core_v1.Container(name=name, image=image.NAME, resources=resources, **options)
