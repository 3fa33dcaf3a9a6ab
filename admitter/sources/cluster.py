"""The cluster, watched once for everybody: Nodes, Pods, and what DRA offers.

In: an API server. Out: the newest state (`admitter.model.cluster.Cluster`), and through `slice_of` and `watch`, as from a
ClusterFile, each agent's slice with its age.

Invariants: there is no slice before Nodes and Pods have both been listed, and none is made while a list is taken in. A
slice that did not change is not sent again. While a watch is broken its age grows, and the agents are told so once; when
it stands again they are told that too.

Why small pauses between looks: a gang that starts changes every node of it several times within a second.

Not here: what a slice holds (core/slices.py), the API server (watch.py).
"""

import asyncio
import datetime
import functools
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any, Protocol

from lightkube.resources import core_v1, resource_v1

from admitter import confined as confining
from admitter.confined import Confined
from admitter.core import facts, gpuconfig, slices
from admitter.model.cluster import KubeNode, KubePod, KubeSlice, Listener
from admitter.model.nodefacts import KubeletPolicies, NodeFacts
from admitter.sources import slim, slimpod
from admitter.sources.apiclient import Api
from admitter.sources.configmaps import ConfigMaps
from admitter.sources.sharing import Shared
from admitter.sources.store import Store
from admitter.sources.watch import Watch
from muster.model import codec, kube
from muster.model.reading import Unknown

PAUSE_SECONDS = 0.1
"""Between two looks at what has changed."""
BLIP_SECONDS = 3.0
"""A watch that is broken for less is not worth a message to every agent."""
AT_ONCE = 200
"""Slices built before others get their turn on the event loop: about 20 ms."""

Send = Callable[[str, kube.NodeSlice, float], None]


class Clock(Protocol):
    """What the watch needs of time."""

    def monotonic(self) -> float: ...
    def utc(self) -> datetime.datetime: ...


class ClusterWatch:
    """The newest state of one cluster. Belongs to one event loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        agents: Callable[[], Set[str]],
        serving_namespaces: Collection[str] = (),
        confined: Confined | None = None,
        policies: KubeletPolicies = facts.NO_POLICIES,
    ) -> None:
        """`agents` are the nodes whose agents listen: only their slices are made."""
        self._policies = policies
        self._clock = clock
        self._agents = agents
        self._confined = confined or Confined()
        self._store = Store()
        self._listeners: list[Listener] = []
        self._sent: dict[str, kube.NodeSlice] = {}
        self._told_age: set[str] = set()
        """Nodes whose agents were told that nothing is known for sure."""
        self._due: set[str] = set()
        """Nodes whose slices have changed since they were sent."""
        self._facts: Mapping[str, NodeFacts] = codec.EMPTY
        self._facts_due: set[str] = set()
        shared = Shared()
        watch = functools.partial(Watch[Any], api, monotonic=clock.monotonic)
        self._nodes: Watch[KubeNode] = watch(
            core_v1.Node,
            slim=lambda item: slim.node(item, shared),
            replaced=self._store.replace_nodes,
            changed=self._store.change_node,
        )
        self._pods: Watch[KubePod] = watch(
            core_v1.Pod,
            slim=lambda item: slimpod.pod(item, shared, serving_namespaces),
            replaced=self._store.replace_pods,
            changed=self._store.change_pod,
        )
        self._slices: Watch[KubeSlice] = watch(
            resource_v1.ResourceSlice,
            slim=lambda item: slim.resource_slice(item, shared),
            replaced=self._store.replace_slices,
            changed=self._store.change_slice,
        )
        self._classes: Watch[kube.DeviceClass] = watch(
            resource_v1.DeviceClass,
            slim=lambda item: slim.device_class(item, shared),
            replaced=self._store.replace_classes,
            changed=self._store.change_class,
        )
        self._configs = ConfigMaps(api, self._configs_wanted, self._store.note_told)
        self._all: tuple[Watch[Any], ...] = (self._nodes, self._pods, self._slices, self._classes)

    @property
    def is_synced(self) -> bool:
        """Return whether Nodes and Pods have been listed in full since the process began."""
        return self._nodes.is_synced and self._pods.is_synced

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what stands between us and the API server, one line for each kind of object."""
        return tuple(watch.problem for watch in self._all if watch.problem)

    def age(self) -> float:
        """Return for how many seconds nothing has been known for sure; 0 while both watches stand."""
        return max(self._nodes.age(), self._pods.age())

    def nodes(self) -> Mapping[str, KubeNode]:
        """Return all Nodes by name."""
        return types.MappingProxyType(self._store.nodes)

    def pods(self) -> Mapping[str, KubePod]:
        """Return all Pods by UID."""
        return types.MappingProxyType(self._store.pods)

    def pod(self, uid: str) -> KubePod | None:
        """Return one pod."""
        return self._store.pods.get(uid)

    def pods_on(self, node: str) -> tuple[KubePod, ...]:
        """Return the pods bound to a node, by name."""
        return tuple(sorted(self._store.on(node), key=lambda pod: (pod.namespace, pod.name, pod.uid)))

    def facts(self) -> Mapping[str, NodeFacts]:
        """Return what a place on each node depends on; a value of its own, that later changes leave alone."""
        if self._facts_due:
            fresh = dict(self._facts)
            for name in self._facts_due:
                node = self._store.nodes.get(name)
                if node is None:
                    fresh.pop(name, None)
                else:
                    fresh[name] = facts.of_node(node, self._store.on(name), self._policies)
            self._facts, self._facts_due = types.MappingProxyType(fresh), set()
        return self._facts

    def listen(self, listener: Listener) -> None:
        """Have every batch of changes told, from now on."""
        self._listeners.append(listener)

    def slice_of(self, node: str) -> tuple[kube.NodeSlice, float] | None:
        """Return a node's slice and its age; None: Nodes and Pods have not both been listed yet."""
        if not self.is_synced:
            return None
        content, age = self._build(node), self.age()
        self._sent[node] = content
        if age:
            self._told_age.add(node)
        return content, age

    async def list_afresh(self) -> None:
        """Wait until everything has been listed once more: a new leader does not decide on what a standby had."""
        await asyncio.gather(self._nodes.list_afresh(), self._pods.list_afresh())
        self._take()

    async def watch(self, send: Send) -> None:
        """Follow the API server and send every change, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._all:
                group.create_task(watch.run())
            group.create_task(self._configs.run())
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                await self._tell(send)

    def _take(self) -> None:
        changes, dirty = self._store.take_changes()
        self._due |= dirty
        self._facts_due |= dirty
        if changes.nodes or changes.pods:
            for listener in self._listeners:
                listener(changes)

    async def _tell(self, send: Send) -> None:
        self._take()
        if not self.is_synced:
            return
        agents, age = self._agents(), self.age()
        for node in self._sent.keys() - agents:
            del self._sent[node]
        self._told_age &= agents
        if age > BLIP_SECONDS:
            await self._send(send, agents - self._told_age, age)
            self._told_age |= agents
        elif not age:
            # Those that were told of the break come first with what is known for sure again.
            stale, self._told_age = self._told_age, set()
            due, self._due = (self._due & agents) - stale, set()
            await self._send(send, stale, 0.0)
            await self._send(send, due, 0.0, is_changed=True)

    async def _send(self, send: Send, nodes: Iterable[str], age: float, *, is_changed: bool = False) -> None:
        for count, node in enumerate(nodes, 1):
            # What one node's pods say must not keep every other agent from its slice.
            self._confined.attempt(
                confining.SLICE, node, functools.partial(self._send_one, send, node, age, is_changed=is_changed)
            )
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _send_one(self, send: Send, node: str, age: float, *, is_changed: bool) -> None:
        content = self._build(node)
        if not is_changed or content != self._sent.get(node):
            self._sent[node] = content
            send(node, content, age)

    def _build(self, node: str) -> kube.NodeSlice:
        pods = self._store.on(node)
        remembered = self._store.remember_rejections(node, self._clock.utc())
        dra = slices.offered(self._store.slices_of(node), self._store.classes.values(), self._dra_problem())
        return slices.assemble(self._store.nodes.get(node), pods, remembered, dra, self._configs.documents)

    def _configs_wanted(self) -> Set[tuple[str, str]]:
        """Return the ConfigMaps that the GPU stack's pods read their settings from."""
        # Pods of one DaemonSet share one value: a fleet has two or three to look at.
        told = {(pod.namespace, id(pod.told)): pod for pod in self._store.told if not pod.is_finished}
        wanted = (gpuconfig.wanted(pod.namespace, pod.told) for pod in told.values() if pod.told is not None)
        return frozenset().union(*wanted)

    def _dra_problem(self) -> Unknown | None:
        """Return why what DRA offers is not known; a cluster that does not serve it offers nothing."""
        for watch in self._all[2:]:
            if not watch.is_synced and watch.is_served:
                return Unknown("NotReadable", watch.problem)
        return None
