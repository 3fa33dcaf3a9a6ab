"""The taint's part of the loop over all Nodes: gather each node's case, and say what was done.

In: words and facts of one look, DaemonSets and waiting pods. Out: the changes that are due, decisions to the log.

Invariant: nobody is tainted before it is known which DaemonSets serve devices; the list is read again at least every
`DAEMONS_SECONDS` while a taint is wanted or stands.

Not here: the rules (core/taints.py, core/keepers.py), requests (nodes.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from admitter.core import keepers, taints
from admitter.core.keepers import Daemon, WaitingPod
from admitter.core.taints import Case, TaintHistory, Withheld
from admitter.model.cluster import Cluster, KubePod
from admitter.model.decision import Event
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodestatus import Facts, Note, TaintChange, TaintPolicy, Word
from admitter.model.ruling import Ruling
from muster.model import kube, labels
from muster.model.report import Verdict

DAEMONS_SECONDS = 30.0


class Daemons(Protocol):
    """Where DaemonSets come from."""

    async def list_daemons(self) -> tuple[Daemon, ...] | None:
        """Return all DaemonSets; None: they could not be read."""


class Tainter:
    """Belongs to one node loop."""

    def __init__(
        self,
        *,
        policy: TaintPolicy,
        daemons: Daemons,
        serving_namespaces: frozenset[str],
        tell: Callable[[Event], None],
    ) -> None:
        """`tell` takes each decision for the log."""
        self._policy = policy
        self._source, self._namespaces = daemons, serving_namespaces
        self._tell = tell
        self._histories: dict[str, TaintHistory] = {}
        self._daemons: tuple[Daemon, ...] | None = None
        self._read_at = float("-inf")
        self.withheld: Mapping[str, int] = taints.count({})
        self.cap = 0

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """Return the verdicts that bear on the taint."""
        return self._policy.verdicts if self._policy.enabled else frozenset()

    def forget(self) -> None:
        """A term has begun or ended: what is remembered is another's."""
        self._histories.clear()
        self._read_at, self._daemons = float("-inf"), None
        self.withheld = taints.count({})

    async def changes(
        self,
        words: Mapping[str, Word],
        facts: Mapping[str, Facts],
        cluster: Cluster,
        view: ClusterView,
        ruling: Ruling,
        *,
        now: float,
    ) -> tuple[TaintChange, ...]:
        """Return what is due on the taints of these Nodes: those that have it, and those with one of `verdicts`."""
        bearing = self._age(words, facts, view, now)
        if bearing and self._policy.enabled and now - self._read_at >= DAEMONS_SECONDS:
            self._daemons, self._read_at = await self._source.list_daemons(), now
        serving = [each for each in self._daemons or () if keepers.serves_devices(each, self._namespaces)]
        waiting = tuple(_waiting(cluster.pods().values())) if bearing else ()
        cases = [self._case(name, words[name], facts[name], cluster, view, serving, waiting) for name in bearing]
        barred = None
        if ruling.holds:
            barred = Withheld.BREAKER
        elif self._daemons is None:
            barred = Withheld.UNREAD
        made = taints.plan(cases, fleet=len(view.nodes), barred=barred, policy=self._policy, now=now)
        self.withheld, self.cap = taints.count(made.withheld), self._policy.cap(len(view.nodes))
        return made.changes

    def done(self, change: TaintChange) -> Note:
        """Note a change that the API server has taken; return the Event for the Node."""
        if not change.value:
            # Whoever is freed is not tainted again before another whole spell.
            self._histories.pop(change.node, None)
        key = labels.UNTRUSTED.full
        kind = "tainted" if change.value else "untainted"
        text = f"{key}={change.value}:NoSchedule" if change.value else f"{key} is gone"
        detail = f"{change.node}: {text}: {change.why}"
        self._tell(Event(kind=kind, gang="", actor="admitter", rule="taint", detail=detail))
        return Note(
            reason="Tainted" if change.value else "Untainted",
            action="SetTaint",
            text=f"{text}: {change.why}"[:1024],
            is_warning=bool(change.value),
        )

    def _age(self, words: Mapping[str, Word], facts: Mapping[str, Facts], view: ClusterView, now: float) -> list[str]:
        """Move the histories on of the nodes that have the taint or might get it, and return their names."""
        histories = {}
        for name, fact in facts.items():
            verdict = taints.verdict_of(words[name], view.node_ttl_seconds)
            if fact.taint or verdict in self.verdicts:
                before = self._histories.get(name, TaintHistory())
                histories[name] = taints.age(before, verdict, self._policy, now)
        self._histories = histories
        return list(histories)

    def _case(
        self,
        name: str,
        word: Word,
        fact: Facts,
        cluster: Cluster,
        view: ClusterView,
        serving: list[Daemon],
        waiting: tuple[WaitingPod, ...],
    ) -> Case:
        node_labels = cluster.nodes()[name].object.labels
        verdict = taints.verdict_of(word, view.node_ttl_seconds)
        value = str(verdict) if verdict in self._policy.verdicts else fact.taint
        known = frozenset(daemon.full_name for daemon in serving)
        return Case(
            facts=fact,
            verdict=verdict,
            silent_seconds=word.silent_seconds,
            history=self._histories[name],
            keeps_out=keepers.kept_out(serving, name, node_labels, value),
            pending=keepers.waiting_for(waiting, known, name, node_labels, value),
        )


def _waiting(pods: Iterable[KubePod]) -> Iterable[WaitingPod]:
    """Yield the pods of DaemonSets that are bound nowhere."""
    for pod in pods:
        owner = pod.controller
        if not pod.node and pod.phase is kube.PodPhase.PENDING and owner is not None and owner.kind == "DaemonSet":
            yield WaitingPod(
                full_name=pod.full_name,
                daemon=f"{pod.namespace}/{owner.name}",
                constraints=pod.constraints,
                is_gated=bool(pod.gates),
            )
