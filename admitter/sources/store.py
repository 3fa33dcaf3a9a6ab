"""The tables behind the cluster's watches: objects by key, pods by node, and what has changed since somebody looked.

Invariants: a list replaces a table in one step; nobody sees it half. `on` and `pods` always agree. A change that was undone
before anybody looked is still told: a pod that came and went is two facts, not none.

Not here: where the objects come from (watch.py) and what is made of them (cluster.py).
"""

import datetime
from collections.abc import Collection, Iterable
from typing import TypeVar

from admitter.core import slices
from admitter.model.cluster import Changes, KubeNode, KubePod, KubeSlice, PodChange
from muster.model import kube

V = TypeVar("V")


class Store:
    """Belongs to one cluster watch."""

    def __init__(self) -> None:
        self.nodes: dict[str, KubeNode] = {}
        self.pods: dict[str, KubePod] = {}
        self.classes: dict[str, kube.DeviceClass] = {}
        self._slices: dict[str, KubeSlice] = {}
        self._on: dict[str, dict[str, KubePod]] = {}
        self._slices_on: dict[str, dict[str, KubeSlice]] = {}
        self._rejections: dict[str, slices.Rejections] = {}
        self._told: dict[str, KubePod] = {}
        self._changed_nodes: set[str] = set()
        self._changed_pods: list[PodChange] = []
        self._dirty: set[str] = set()
        """Nodes whose slice may be another one now."""

    def on(self, node: str) -> Collection[KubePod]:
        """Return the pods bound to a node."""
        return self._on.get(node, {}).values()

    def slices_of(self, node: str) -> tuple[KubeSlice, ...]:
        """Return the ResourceSlices of a node."""
        return tuple(self._slices_on.get(node, {}).values())

    @property
    def told(self) -> Collection[KubePod]:
        """Return the pods of the GPU stack: device plugins and managers of MIG layouts."""
        return self._told.values()

    def note_told(self) -> None:
        """Note that what the GPU stack was told is another: the slices of its nodes may be others now."""
        self._dirty.update(pod.node for pod in self._told.values() if pod.node)

    def take_changes(self) -> tuple[Changes, set[str]]:
        """Return what changed since the last call, and the nodes whose slices that touches."""
        changes = Changes(nodes=frozenset(self._changed_nodes), pods=tuple(self._changed_pods))
        dirty, self._dirty = self._dirty, set()
        self._changed_nodes.clear()
        self._changed_pods.clear()
        return changes, dirty

    def remember_rejections(self, node: str, now: datetime.datetime) -> tuple[kube.Rejection, ...]:
        """Return the rejections of a node, and keep those of pods that may soon be gone."""
        known = self._rejections.get(node, {})
        kept = slices.remember(known, self.on(node), now)
        if kept:
            self._rejections[node] = kept
        elif known:
            del self._rejections[node]
        return tuple(kept.values())

    def replace_nodes(self, found: list[KubeNode]) -> None:
        """Take a full list of Nodes."""
        fresh = {node.name: node for node in found}
        self._note_nodes(_differing(self.nodes, fresh))
        self.nodes = fresh
        # A node that is gone and has no agent is never asked for again; autoscalers never use most names twice.
        for name in self._rejections.keys() - fresh.keys():
            del self._rejections[name]

    def change_node(self, node: KubeNode, is_gone: bool) -> None:  # noqa: FBT001 -- what an event says
        """Take one event of a Node."""
        _put(self.nodes, node.name, node, is_gone=is_gone)
        if is_gone:
            self._rejections.pop(node.name, None)
        self._note_nodes((node.name,))

    def replace_pods(self, found: list[KubePod]) -> None:
        """Take a full list of Pods."""
        fresh = {pod.uid: pod for pod in found}
        for uid in _differing(self.pods, fresh):
            self._move(self.pods.get(uid), fresh.get(uid))

    def change_pod(self, pod: KubePod, is_gone: bool) -> None:  # noqa: FBT001
        """Take one event of a Pod."""
        self._move(self.pods.get(pod.uid), None if is_gone else pod, last=pod)

    def replace_slices(self, found: list[KubeSlice]) -> None:
        """Take a full list of ResourceSlices."""
        fresh = {item.name: item for item in found}
        for name in _differing(self._slices, fresh):
            self._move_slice(self._slices.get(name), fresh.get(name))

    def change_slice(self, item: KubeSlice, is_gone: bool) -> None:  # noqa: FBT001
        """Take one event of a ResourceSlice."""
        self._move_slice(self._slices.get(item.name), None if is_gone else item)

    def replace_classes(self, found: list[kube.DeviceClass]) -> None:
        """Take a full list of DeviceClasses."""
        self.classes = {item.name: item for item in found}
        self._dirty |= self.nodes.keys()

    def change_class(self, item: kube.DeviceClass, is_gone: bool) -> None:  # noqa: FBT001
        """Take one event of a DeviceClass."""
        _put(self.classes, item.name, item, is_gone=is_gone)
        self._dirty |= self.nodes.keys()

    def _note_nodes(self, names: Iterable[str]) -> None:
        self._changed_nodes.update(names)
        self._dirty.update(names)

    def _move(self, before: KubePod | None, after: KubePod | None, last: KubePod | None = None) -> None:
        """Put a pod where it is now; `last` is its last sight before it went."""
        if last is not None and last.node:
            # A pod may be rejected and deleted between two looks: its last sight still says so.
            self._keep_rejection(last)
        for pod in (before, after):
            if pod is not None and pod.node:
                self._dirty.add(pod.node)
        if before is not None:
            self.pods.pop(before.uid, None)
            self._told.pop(before.uid, None)
            _drop(self._on, before.node, before.uid)
        if after is not None:
            self.pods[after.uid] = after
            if after.told is not None:
                self._told[after.uid] = after
            if after.node:
                self._on.setdefault(after.node, {})[after.uid] = after
        self._changed_pods.append(PodChange(before=before, after=after))

    def _move_slice(self, before: KubeSlice | None, after: KubeSlice | None) -> None:
        if before is not None:
            del self._slices[before.name]
            _drop(self._slices_on, before.node, before.name)
            self._dirty.add(before.node)
        if after is not None:
            self._slices[after.name] = after
            self._slices_on.setdefault(after.node, {})[after.name] = after
            self._dirty.add(after.node)

    def _keep_rejection(self, pod: KubePod) -> None:
        item = slices.rejection(pod)
        if item is not None:
            self._rejections[pod.node] = slices.remember(self._rejections.get(pod.node, {}), (pod,), item.at)
            self._dirty.add(pod.node)


def _put(table: dict[str, V], key: str, value: V, *, is_gone: bool) -> None:
    if is_gone:
        table.pop(key, None)
    else:
        table[key] = value


def _drop(table: dict[str, dict[str, V]], node: str, key: str) -> None:
    """Take an entry out of an index, and the index's row with its last entry."""
    row = table.get(node)
    if row is not None:
        row.pop(key, None)
        if not row:
            del table[node]


def _differing(before: dict[str, V], after: dict[str, V]) -> list[str]:
    return [key for key in {*before, *after} if before.get(key) != after.get(key)]
