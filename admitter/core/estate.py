"""What earlier terms left: leases that agents hold and nobody here has asked for, and those that are over for good.

Input: cluster views, as the agents say what they were last told. Output: orphans (recover.py decides what becomes of them),
and an Event for each that comes or goes.

Invariant: a lease of our own prefix is never an orphan: it stands in a record, or it is over. What was released once does
not come back with a late report.
"""

import collections
from collections.abc import Set

from admitter.core import recover
from admitter.core.recover import Orphan
from admitter.model.decision import Event
from admitter.model.lease import NodeLease
from admitter.model.nodecapacity import ClusterView

_MAX_CLOSED = 100_000


class Estate:
    """Belongs to one book."""

    def __init__(self, prefix: str, events: list[Event]) -> None:
        self.orphans: dict[str, Orphan] = {}
        self.overtaken_by = 0
        """A term that agents have heard of and that cannot be before this one: the term counter was lost."""
        self._prefix = prefix
        self._events = events
        self._closed: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._heard: dict[str, tuple[NodeLease, ...]] = {}

    def listen_anew(self) -> None:
        """A higher term has begun: everybody will say again what they hold."""
        self.overtaken_by = 0
        self._heard.clear()

    def hear(self, view: ClusterView, term: int, held: Set[str], now: float) -> None:
        """Take what the agents say they hold; `held` are the ids that stand in records."""
        for node, state in view.nodes.items():
            if self._heard.get(node) is state.leases:
                continue
            self._heard[node] = state.leases
            foreign = tuple(
                lease
                for lease in state.leases
                if not self._is_own(lease.id) and lease.id not in held and lease.id not in self._closed
            )
            known = set(self.orphans)
            # We tell agents of orphans under our own term; only an id that nobody told us of gives a lost counter away.
            if state.lease_term > term or (state.lease_term == term and {lease.id for lease in foreign} - known):
                self.overtaken_by = max(self.overtaken_by, state.lease_term)
            self.orphans = recover.heard(self.orphans, node, foreign, now)
            for identifier in sorted(self.orphans.keys() - known):
                self._note("orphan-heard", self.orphans[identifier], f"from {node}")

    def release(self, orphan: Orphan, why: str) -> None:
        """Let an orphan go: to its gang, or for good."""
        del self.orphans[orphan.id]
        self.close(orphan.id)
        self._note("orphan-released", orphan, why)

    def close(self, identifier: str) -> None:
        """Remember that a lease is over."""
        if not self._is_own(identifier):
            self._closed[identifier] = None
            while len(self._closed) > _MAX_CLOSED:
                self._closed.popitem(last=False)

    def _is_own(self, identifier: str) -> bool:
        return identifier.startswith(f"{self._prefix}-")

    def _note(self, kind: str, orphan: Orphan, detail: str) -> None:
        self._events.append(
            Event(kind=kind, gang=orphan.gang, actor="admitter", rule="recover", detail=detail, lease_id=orphan.id)
        )
