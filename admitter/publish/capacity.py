"""The merged feed for whoever watches: the full state first, then what changed, conflated for each watcher.

In: the view and the leases after each decision pass. Out: messages of NodeCapacity.

Invariant: a watcher that is slow gets the newest state of each node, never a backlog: what is kept for it is the set of
names that changed. `admissible` of a stale node or an unknown resource is 0.

Not here: gRPC (services/inspect.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from admitter.model import nodecapacity
from admitter.model.nodecapacity import ClusterView
from muster.model import pbform
from muster.model.lease import NodeLease
from muster.pb.muster.v1 import inspect_pb2

CHUNK = 100
"""Nodes in one message: about 300 KiB of eight-GPU nodes, far below the message limit."""

Leases = Mapping[str, Sequence[NodeLease]]


class CapacityBoard:
    """The state after the last pass, and who watches it. Belongs to one event loop."""

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._view = view
        """The newest view: ages are of the moment of sending."""
        self._leases: Leases = {}
        self._shown: Mapping[str, _Mark] = {}
        self._watchers: set[_Watcher] = set()

    def update(self, view: ClusterView, leases: Leases) -> None:
        """Take the state after a pass and wake the watchers of what changed."""
        shown = {name: _mark(view, name, leases) for name in view.nodes}
        changed = {name for name, mark in shown.items() if self._shown.get(name) != mark}
        changed |= self._shown.keys() - shown.keys()
        self._shown, self._leases = shown, leases
        if changed:
            for watcher in self._watchers:
                watcher.note({name for name in changed if watcher.sent.get(name) != shown.get(name)})

    @property
    def version(self) -> int:
        """Of the newest view."""
        return self._view().version

    def all(self) -> list[inspect_pb2.NodeCapacity]:
        """Return every node, by name."""
        view = self._view()
        return [self._capacity(view, name) for name in sorted(view.nodes)]

    async def watch(self, nodes: frozenset[str]) -> AsyncIterator[inspect_pb2.WatchCapacityResponse]:
        """Yield the full state, ending with `synced`, then changes; `nodes` empty: of all nodes."""
        watcher = _Watcher(nodes)
        watcher.note(set(self._view().nodes))
        self._watchers.add(watcher)
        is_synced = False
        try:
            while True:
                names = watcher.take(CHUNK)
                response = self._response(names)
                watcher.sent |= self._marks(names)
                if not is_synced:
                    is_synced = response.synced = not watcher.dirty
                if response.synced or names:
                    yield response
                if not watcher.dirty:
                    await watcher.wait()
        finally:
            self._watchers.discard(watcher)

    def _marks(self, names: Sequence[str]) -> "dict[str, _Mark | None]":
        view = self._view()
        return {name: _mark(view, name, self._leases) if name in view.nodes else None for name in names}

    def _response(self, names: Sequence[str]) -> inspect_pb2.WatchCapacityResponse:
        view = self._view()
        return inspect_pb2.WatchCapacityResponse(
            version=view.version,
            nodes=[self._capacity(view, name) for name in names if name in view.nodes],
            removed=[name for name in names if name not in view.nodes],
        )

    def _capacity(self, view: ClusterView, name: str) -> inspect_pb2.NodeCapacity:
        state, leases = view.nodes[name], self._leases.get(name, ())
        message = inspect_pb2.NodeCapacity(
            node=name,
            stale=view.is_stale(name),
            boot_id=state.epoch.boot_id,
            start_counter=state.epoch.start_counter,
            agent_version=state.agent_version,
            plane_age_ms=state.plane_age_ms,
        )
        pbform.fill(message.report, state.report)
        pbform.fill(message.topology, state.topology)
        if state.warmth is not None:
            pbform.fill(message.warmth, state.warmth)
        message.age.FromNanoseconds(max(0, int((view.now - state.heard_at) * 1e9)))
        for resource, report in state.report.resources.items():
            if held := nodecapacity.outstanding(report, leases, resource):
                message.leased[resource] = held
            message.admissible[resource] = nodecapacity.admissible(view, name, resource, leases)
        return message


_Mark: TypeAlias = tuple[Hashable, ...]


def _mark(view: ClusterView, name: str, leases: Leases) -> _Mark:
    """Return what a node's message depends on, its age aside."""
    state = view.nodes[name]
    return state.epoch, state.sequence, view.is_stale(name), name in view.barred, tuple(leases.get(name, ()))


class _Watcher:
    """What one watcher has not been sent yet."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self._nodes = nodes
        self._changed = asyncio.Event()
        self.dirty: set[str] = set()
        self.sent: dict[str, _Mark | None] = {}
        """Node -> what it was sent last, None: that it is gone. A view is newer than the pass that calls it a change."""

    def note(self, names: set[str]) -> None:
        mine = names & self._nodes if self._nodes else names
        if mine:
            self.dirty |= mine
            self._changed.set()

    def take(self, most: int) -> list[str]:
        names = sorted(self.dirty)[:most]
        self.dirty.difference_update(names)
        return names

    async def wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
