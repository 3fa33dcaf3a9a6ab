"""Ask autoscalers to leave leased and reserved nodes alone, for as long as they are that.

In: the nodes that are leased or reserved, Nodes as the watch has them. Out: annotations on Nodes, an Event of the decision log for
each.

Invariants: only a leader writes, with UID and resourceVersion; a request that fails is wanted again by the next look.

Not here: which nodes (core/keepnodes.py).
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

import structlog

from admitter.core import keepnodes
from admitter.core.keepnodes import KeepChange, KeepPolicy
from admitter.model.cluster import Cluster
from admitter.model.decision import Event
from admitter.model.leadership import Guard
from admitter.publish.nodes import NodeWriter, Outcome

_LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""An autoscaler waits for minutes before it takes an empty node."""
MOST_AT_ONCE = 20
"""Writes of one look."""


class Leases(Protocol):
    """What the admission loop knows of nodes."""

    @property
    def term(self) -> int: ...
    def kept_nodes(self) -> frozenset[str]: ...
    def is_open(self) -> bool: ...


class NodeKeeper:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        leases: Leases,
        cluster: Cluster,
        writer: NodeWriter,
        guard: Guard,
        policy: KeepPolicy,
        tell: Callable[[Event], None],
    ) -> None:
        """`tell` writes to the decision log."""
        self._leases, self._cluster, self._writer = leases, cluster, writer
        self._guard, self._policy, self._tell = guard, policy, tell

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self._look()
            except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                _LOG.exception("look at kept nodes failed")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        term = self._leases.term
        if not term or not self._guard.may_write(term) or not self._cluster.is_synced:
            return
        wanted: Collection[str] = self._leases.kept_nodes()
        found = keepnodes.changes(
            self._cluster.nodes().values(), wanted, self._policy, may_let_go=self._leases.is_open()
        )
        for change in found[:MOST_AT_ONCE]:
            await self._write(change, term)

    async def _write(self, change: KeepChange, term: int) -> None:
        sent = await self._writer.annotate(change, term)
        if sent.outcome is Outcome.DONE:
            kind = "node-kept" if change.is_kept else "node-let-go"
            detail = ", ".join(sorted(change.annotations))
            self._tell(Event(kind=kind, gang="", actor="admitter", rule="keep", detail=detail, node=change.node))
        elif sent.outcome not in (Outcome.CONFLICT, Outcome.NOT_LEADING):
            _LOG.warning("a node was not annotated", node=change.node, outcome=sent.outcome.value, detail=sent.detail)
