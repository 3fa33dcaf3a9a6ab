"""What submits the story's two gangs: three pods of eight GPUs each, made in turn, and made anew when one fails.

In: a Town, whether Muster holds the pods. Out: pods in the cluster; for each gang, how long it waited until all of its pods
ran at once, and which nodes refused how many pods.

A gang works only while all of its pods run, as training does: its clock starts when it is submitted and stops when the last pod
runs; after `WORK_SECONDS` together it is done and its pods go. Every launcher does alike with both schedulers.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import Sequence

from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from hack.cluster import fakekubelet
from hack.demo import town
from hack.demo.town import NAMESPACE, Town
from hack.fakenode.node import GPU_RESOURCE
from muster.model import labels

SIZE, GPUS = 3, 8
WORK_SECONDS = 5.0
LOOK_SECONDS = 0.2
ANEW_SECONDS = 1.0
"""Between a pod's failure and the pod in its stead, as an impatient launcher has it."""


class Launcher:
    """Two gangs, or as many as there are names."""

    def __init__(self, there: Town, gangs: Sequence[str], *, is_held: bool) -> None:
        self._town, self._is_held = there, is_held
        self.gangs = tuple(gangs)
        self.waits: dict[str, float] = {}
        """Gang -> seconds from its submission until all of its pods ran."""
        self.done: set[str] = set()
        self.rejections: collections.Counter[str] = collections.Counter()
        """By node."""
        self._counted: set[str] = set()
        self._submitted_at = 0.0
        self._failed_at: dict[str, float] = {}
        """Name of a pod -> when it was seen to have failed."""

    async def submit(self) -> None:
        """Make all pods, one of each gang in turn."""
        self._submitted_at = time.monotonic()
        for index in range(SIZE):
            for gang in self.gangs:
                await self._create(f"{gang}-{index}", gang)

    async def run(self) -> None:
        """Look after the gangs until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def clear(self) -> None:
        """Delete every pod of these gangs."""
        for gang in self.gangs:
            await self._delete(gang)

    def running(self, gang: str) -> list[core.Pod]:
        """Return the pods of a gang that run."""
        return [pod for pod in self._of(gang) if town.phase(pod) == "Running"]

    def bound(self, gang: str) -> list[core.Pod]:
        """Return the pods of a gang that have a node."""
        return [pod for pod in self._of(gang) if town.node_of(pod)]

    def waited(self, gang: str) -> float:
        """Return how long a gang waited, or has waited so far."""
        return self.waits.get(gang, time.monotonic() - self._submitted_at)

    def _of(self, gang: str) -> list[core.Pod]:
        return [pod for pod in self._town.pods.values() if town.name_of(pod).startswith(f"{gang}-")]

    async def _look(self) -> None:
        for gang in self.gangs:
            if gang in self.done:
                continue
            if len(self.running(gang)) == SIZE:
                self.waits.setdefault(gang, time.monotonic() - self._submitted_at)
                if time.monotonic() - self._submitted_at - self.waits[gang] >= WORK_SECONDS:
                    self.done.add(gang)
                    await self._delete(gang)
                continue
            for pod in self._of(gang):
                if town.phase(pod) == "Failed":
                    await self._anew(pod, gang)

    async def _anew(self, pod: core.Pod, gang: str) -> None:
        assert pod.metadata is not None
        uid, name = str(pod.metadata.uid), town.name_of(pod)
        if uid not in self._counted:
            self._counted.add(uid)
            self.rejections[town.node_of(pod)] += 1
            self._failed_at[uid] = time.monotonic()
        if time.monotonic() - self._failed_at[uid] >= ANEW_SECONDS:
            with contextlib.suppress(exceptions.ApiError):
                await self._town.kube.delete(core.Pod, name, namespace=NAMESPACE, grace_period=0)
                await self._create(name, gang)

    async def _create(self, name: str, gang: str) -> None:
        request = {GPU_RESOURCE: str(GPUS)}
        resources = core_v1.ResourceRequirements(requests=request, limits=request)
        container = core_v1.Container(name="main", image="none", resources=resources)
        gates = [core_v1.PodSchedulingGate(name=labels.GANG.full)] if self._is_held else None
        spec = core_v1.PodSpec(containers=[container], restartPolicy="Never", schedulingGates=gates)
        annotations = {fakekubelet.RUN_SECONDS: town.FOR_EVER}
        marks = {}
        if self._is_held:
            annotations[labels.GANG_SIZE.full] = str(SIZE)
            marks[labels.GANG.full] = gang
        metadata = meta_v1.ObjectMeta(name=name, namespace=NAMESPACE, labels=marks, annotations=annotations)
        await self._town.create(core.Pod(metadata=metadata, spec=spec))

    async def _delete(self, gang: str) -> None:
        for pod in self._of(gang):
            with contextlib.suppress(exceptions.ApiError):
                await self._town.kube.delete(core.Pod, town.name_of(pod), namespace=NAMESPACE, grace_period=0)
