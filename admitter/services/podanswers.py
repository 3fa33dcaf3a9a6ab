"""Why, asked of a pod, and of a gang that the queue has not been asked for: put together what the answers are made from.

In: the cluster as it is watched, the newest reports, what the gate adapter says. Out: messages.

Invariants: nothing is looked up at the API server, so a question costs it nothing. A stale node's report is left out: what
it last said explains nothing now. Thousands of nodes are gone through beside the event loop, on values that stand still, for
`AT_ONCE` callers at a time: questions delay no placing.

Not here: who may ask (inspect.py), any rule (core/podwhy.py).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from admitter.core import podwhy
from admitter.model.cluster import Cluster, KubePod
from admitter.model.hold import HoldReason, Told
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodefacts import NodeFacts
from admitter.model.podstory import PodScene
from muster.model import labels
from muster.pb.muster.v1 import admission_pb2, inspect_pb2

AT_ONCE = 2
"""Pods that are explained at a time; whoever asks meanwhile waits, as the interpreter runs one thread anyway."""


class Gates(Protocol):
    """Who lets held pods go."""

    def gang_of(self, uid: str) -> str: ...
    def told(self, key: str) -> Told | None: ...


class Town(Cluster, Protocol):
    """The cluster, and what a place on its nodes depends on."""

    def facts(self) -> Mapping[str, NodeFacts]: ...


class PodAnswers:
    """Belongs to one event loop."""

    def __init__(self, cluster: Town, view: Callable[[], ClusterView], gates: Gates | None) -> None:
        """`gates` is None where this admitter lifts no gates."""
        self._cluster, self._view, self._gates = cluster, view, gates
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def pod(self, namespace: str, name: str) -> inspect_pb2.PodStatus | None:
        """Say why a pod does not run; None: there is no such pod."""
        async with self._turns:
            scene = self._scene(namespace, name)
            if scene is None:
                return None
            causes = await asyncio.to_thread(podwhy.causes, scene)
        return inspect_pb2.PodStatus(
            namespace=namespace,
            name=name,
            uid=scene.pod.uid,
            phase=scene.pod.phase.value,
            node=scene.pod.node,
            gang=scene.gang,
            causes=[
                inspect_pb2.PodCause(reason=cause.reason.value, summary=cause.summary, remedy=cause.remedy)
                for cause in causes
            ],
        )

    def _scene(self, namespace: str, name: str) -> PodScene | None:
        """Return everything as it is at this moment; None: there is no such pod."""
        found = self._find(namespace, name)
        if found is None:
            return None
        gang = self._gates.gang_of(found.uid) if self._gates is not None else ""
        view = self._view()
        return PodScene(
            pod=found,
            nodes=dict(self._cluster.nodes()),
            facts=self._cluster.facts(),
            reports={node: state.report for node, state in view.nodes.items() if not view.is_stale(node)},
            lifts_gates=self._gates is not None,
            gang=gang,
            told=self._gates.told(f"{namespace}/{gang}") if self._gates is not None and gang else None,
        )

    def held(self, namespace: str, name: str) -> inspect_pb2.GangStatus | None:
        """Say why a gang is held that the queue does not know; None: nobody follows it."""
        told = self._gates.told(f"{namespace}/{name}") if self._gates is not None else None
        if told is None:
            return None
        is_held = told.reason not in (HoldReason.RELEASED, HoldReason.UNVERIFIED)
        return inspect_pb2.GangStatus(
            namespace=namespace,
            name=name,
            state="held" if is_held else "released",
            why=admission_pb2.Explanation(reason=told.reason, summary=told.summary),
            autoscaler=podwhy.NO_AUTOSCALER if is_held else "",
        )

    def is_held(self, namespace: str, name: str) -> bool:
        """Return whether pods of a gang carry our gate."""
        gates = self._gates
        return gates is not None and any(
            labels.GANG.full in pod.gates and gates.gang_of(pod.uid) == name
            for pod in self._cluster.pods().values()
            if pod.namespace == namespace
        )

    def _find(self, namespace: str, name: str) -> KubePod | None:
        found = [pod for pod in self._cluster.pods().values() if (pod.namespace, pod.name) == (namespace, name)]
        # Two of one name: the older one is being replaced.
        return max(found, key=lambda pod: (pod.deletion_at is None, str(pod.created_at)), default=None)
