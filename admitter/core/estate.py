"""What earlier terms left: leases that agents hold and nobody here has asked for, and those that are over for good.

Input: cluster views, as the agents say what they were last told. Output: orphans (recover.py decides what becomes of them),
and an Event for each that comes or goes.

Invariant: a lease of our own prefix is never an orphan: it stands in a record, or it is over. What was released once does
not come back with a late report. A node is asked once a term: an agent that invents leases takes units of its own node, once.
"""

import collections
import dataclasses
from collections.abc import Mapping, Set

from admitter.core import recover
from admitter.core.moved import moved
from admitter.core.recover import Orphan
from admitter.model.decision import Event
from admitter.model.nodecapacity import ClusterView, NodeState

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
        self._looked_at: Mapping[str, NodeState] = {}
        self._terms: dict[str, int] = {}
        """Every node that was heard in this term: the later term that its agent knows of, or 0."""

    def listen_anew(self) -> None:
        """A higher term has begun: everybody will say again what they hold."""
        self.overtaken_by = 0
        self._looked_at = {}
        self._terms.clear()

    def hear(self, view: ClusterView, term: int, held: Set[str], now: float) -> None:
        """Take what the agents say they hold, each once a term; `held` are the ids that stand in records."""
        nodes, self._looked_at = self._looked_at, view.nodes
        for node in sorted(moved(nodes, view.nodes) & view.nodes.keys()):
            state = view.nodes[node]
            if node in self._terms:
                # What it was told since, it was told by us.
                if self._terms[node] or state.lease_term > term:
                    self._note_term(node, state.lease_term, term)
                continue
            foreign = tuple(
                lease
                for lease in state.leases
                if not self._is_own(lease.id) and lease.id not in held and lease.id not in self._closed
            )
            known = set(self.orphans)
            # We tell agents of orphans under our own term; only an id that nobody told us of gives a lost counter away.
            is_ours = not {lease.id for lease in foreign} - known
            self._terms[node] = 0
            self._note_term(node, state.lease_term, term - (state.lease_term == term and not is_ours))
            self.orphans = recover.heard(self.orphans, node, foreign, now)
            for identifier in sorted(self.orphans.keys() - known):
                self._note("orphan-heard", self.orphans[identifier], f"from {node}")
        # One agent that lies must not close the fleet for a term's grace again and again.
        later = [] if self.is_obeyed else [self._terms[node] for node in view.nodes if self._terms[node]]
        if 2 * len(later) > len(view.nodes):
            self.overtaken_by = max(later)

    @property
    def is_obeyed(self) -> bool:
        """True if no node's agent knows of a later term."""
        return not any(self._terms.values())

    def obeying(self, view: ClusterView) -> ClusterView:
        """Return the view without the nodes that obey a later term: they would hold nothing for us."""
        if self.is_obeyed:
            return view
        nodes = {name: state for name, state in view.nodes.items() if not self.obeys_another(name)}
        return dataclasses.replace(view, nodes=nodes)

    def obeys_another(self, node: str) -> bool:
        """Return whether the node's agent knows of a later term: it will do nothing that we say."""
        return self._terms.get(node, 0) > 0

    def _note_term(self, node: str, known: int, term: int) -> None:
        self._terms[node] = known if known > term else 0

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
