"""The leader's loop over all Nodes: look at the feed and the API server's objects, write what is due, remember what was sent.

In: the feed's view, the cluster's objects, what the breaker holds, which DaemonSets serve devices. Out: requests through a
`Writer`, decisions to the log, figures.

Invariants. A standby writes nothing and remembers nothing. At most `per_minute` writes leave in a minute, those that turn a
condition False first. After no answer, or one that says later, nothing leaves for a rest that doubles up to a minute; what
the API server refuses rests alone, since rights may be given for conditions and not for taints.
What was sent counts as done until the watch shows it or `ECHO_SECONDS` have passed, so a slow watch makes no second write.
While the objects are older than `BLIND_SECONDS` nothing is written from them.

Why one request after the other: a fleet's worth of writes takes minutes by the limit anyway, and what is decided is sent
at once, not from a queue.

Not here: what is due (core/nodestatus.py, core/taints.py), requests (nodes.py).
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from admitter.core import nodestatus, pace
from admitter.core.nodestatus import Moment, NodeHistory
from admitter.core.pace import Bucket
from admitter.model.cluster import Cluster, KubeNode
from admitter.model.leadership import Guard
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodestatus import Facts, Note, StatusPolicy, TaintChange, Word, Write
from admitter.model.ruling import Ruling
from admitter.publish.nodefigures import NodeFigures, NodeScene
from admitter.publish.nodes import Outcome, Sent
from admitter.publish.nodetaints import Tainter
from muster.model.nodeconditions import ConditionType
from muster.model.report import NodeReport

_LOG = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
ECHO_SECONDS = 15.0
"""How long the watch may take to show what was written."""
BLIND_SECONDS = 30.0
FOREIGN_SECONDS = 600.0
"""How long a condition that somebody else owns is left alone before it is tried again."""
BURST = 30
"""Writes that may leave in a row, of the fleet's `per_minute`."""
CONDITIONS, TAINT, EVENT = "conditions", "taint", "event"
"""Kinds of request."""


class Clock(Protocol):
    """What the loop needs of time."""

    def monotonic(self) -> float: ...
    def utc(self) -> datetime.datetime: ...


class Writer(Protocol):
    """Who sends."""

    async def set_conditions(self, write: Write, term: int, *, may_retake: bool = False) -> Sent: ...
    async def change_taint(self, change: TaintChange, term: int) -> Sent: ...
    async def send_note(self, node: str, uid: str, note: Note, term: int) -> Sent: ...


@dataclasses.dataclass(slots=True, kw_only=True)
class _Memory:
    """What is remembered of one Node. Ends with the term, or with the Node."""

    history: NodeHistory
    quiet: tuple[KubeNode, NodeReport | None, bool, bool] | None = None
    """The state in which nothing can become due."""
    echo: tuple[Facts, float] | None = None
    """What the Node says since our last write, and when that was."""
    taint_echo: tuple[str, float] | None = None
    """The same of the taint."""
    seen: tuple[KubeNode, Facts] | None = None
    """What was made of the Node last."""
    foreign: frozenset[ConditionType] = frozenset()
    foreign_until: float = 0.0
    retaken_at: float = float("-inf")
    """When we took a condition of ours back from somebody who had changed it."""


class NodeLoop:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        writer: Writer,
        cluster: Cluster,
        view: Callable[[], ClusterView],
        ruling: Callable[[], Ruling],
        guard: Guard,
        clock: Clock,
        policy: StatusPolicy,
        tainter: Tainter,
        per_minute: int,
        figures: NodeFigures,
    ) -> None:
        self._writer, self._cluster = writer, cluster
        self._view, self._ruling = view, ruling
        self._guard, self._clock = guard, clock
        self._policy, self._tainter = policy, tainter
        self._figures = figures
        self._per_minute = per_minute
        self._fleet = self._full_bucket()
        self._term = 0
        self._since = 0.0
        """Fleet time when this term began to look: an agent that was never heard is silent since then."""
        self._memories: dict[str, _Memory] = {}
        self._rests = dict.fromkeys((CONDITIONS, TAINT, EVENT), pace.RESTED)

    def _full_bucket(self) -> Bucket:
        return pace.full(min(BURST, self._per_minute), 60.0 / self._per_minute, self._clock.monotonic())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                self._figures.failed_looks += 1
                _LOG.exception("look at the nodes failed")
            await asyncio.sleep(TICK_SECONDS)

    async def look(self) -> None:
        """Look once and write what is due."""
        term, view, now = self._guard.leadership.term, self._view(), self._clock.monotonic()
        if term != self._term:
            self._begin(term, view)
        if not term:
            self._figures.scene = None
            return
        if not self._cluster.is_synced or self._cluster.age() > BLIND_SECONDS:
            return
        ruling = self._ruling()
        words = self._words(view)
        facts = self._facts(words, now)
        writes = self._due(words, facts, ruling, now)
        taints = await self._tainter.changes(words, facts, self._cluster, view, ruling, now=now)
        self._show(facts, len(writes) + len(taints), now)
        await self._send_all(writes, taints, term)

    def _begin(self, term: int, view: ClusterView) -> None:
        self._term, self._since = term, view.now
        self._memories.clear()
        self._tainter.forget()
        self._rests = dict.fromkeys(self._rests, pace.RESTED)

    def _words(self, view: ClusterView) -> dict[str, Word]:
        """Return the word on every Node that the API server has."""
        words = {}
        for name in self._cluster.nodes():
            state = view.nodes.get(name)
            heard_at = self._since if state is None else state.heard_at
            report = None if state is None else state.report
            words[name] = Word(report=report, silent_seconds=max(0.0, view.now - heard_at))
        return words

    def _facts(self, words: Mapping[str, Word], now: float) -> dict[str, Facts]:
        """Return what is on the Nodes that are ours to write on: those of agents, and those that we have written on."""
        nodes = self._cluster.nodes()
        for gone in self._memories.keys() - nodes.keys():
            del self._memories[gone]
        result = {}
        for name, node in nodes.items():
            memory = self._memories.get(name)
            seen = _facts_of(node, memory, now)
            if words[name].report is not None or seen.conditions or seen.taint:
                if memory is None:
                    memory = self._memories[name] = _Memory(history=nodestatus.fresh(self._policy, now))
                result[name] = _echoed(memory, seen, now)
        return result

    def _due(self, words: Mapping[str, Word], facts: Mapping[str, Facts], ruling: Ruling, now: float) -> list[Write]:
        moment = Moment(now=now, utc=self._clock.utc(), held=ruling.nodes)
        nodes, result = self._cluster.nodes(), []
        for name, fact in facts.items():
            memory, word = self._memories[name], words[name]
            state = (nodes[name], word.report, word.silent_seconds > self._policy.silent_seconds, name in moment.held)
            if memory.quiet is not None and all(a is b for a, b in zip(memory.quiet, state, strict=True)):
                continue
            seen = nodestatus.look(word, fact, memory.history, self._policy, moment)
            memory.history = seen.history
            memory.quiet = state if seen.is_at_rest and memory.echo is None and not fact.foreign else None
            if seen.write is not None:
                result.append(seen.write)
        return sorted(result, key=lambda write: (not write.is_urgent, write.node))

    async def _send_all(self, writes: Iterable[Write], taints: Iterable[TaintChange], term: int) -> None:
        for write in writes:
            if self._may_send(CONDITIONS):
                await self._send_conditions(write, term)
        for change in taints:
            if self._may_send(TAINT):
                await self._send_taint(change, term)

    def _may_send(self, kind: str) -> bool:
        """Take a token of the fleet's, unless this kind of request rests."""
        now = self._clock.monotonic()
        left = self._fleet.take(now) if now >= self._rests[kind].until else None
        if left is None:
            return False
        self._fleet = left
        return True

    async def _send_conditions(self, write: Write, term: int) -> None:
        memory, now = self._memories[write.node], self._clock.monotonic()
        memory.history = nodestatus.sent(memory.history, write, self._policy, now)
        # Once in a while: who keeps changing a condition of ours gets it.
        may_retake = now - memory.retaken_at >= FOREIGN_SECONDS
        sent = self._counted(CONDITIONS, await self._writer.set_conditions(write, term, may_retake=may_retake))
        if sent.retaken:
            memory.retaken_at = now
            _LOG.warning("conditions of ours were changed: put right", node=write.node, types=sorted(sent.retaken))
        if sent.foreign:
            memory.foreign, memory.foreign_until = sent.foreign, now + FOREIGN_SECONDS
            _LOG.warning("conditions of ours are another writer's", node=write.node, types=sorted(sent.foreign))
        if sent.outcome is not Outcome.DONE:
            return
        written = {name: item for name, item in write.conditions.items() if name not in sent.foreign}
        memory.echo = (Facts(node=write.node, uid=write.uid, conditions=written), self._clock.monotonic())
        await self._send_notes(write.node, write.uid, write.notes, term)

    async def _send_taint(self, change: TaintChange, term: int) -> None:
        sent = self._counted(TAINT, await self._writer.change_taint(change, term))
        if sent.outcome is not Outcome.DONE:
            return
        self._memories[change.node].taint_echo = (change.value, self._clock.monotonic())
        await self._send_notes(change.node, change.uid, (self._tainter.done(change),), term)

    async def _send_notes(self, node: str, uid: str, notes: Iterable[Note], term: int) -> None:
        """Send Events, as well as may be: what is lost stands in the conditions all the same."""
        for note in notes:
            if self._clock.monotonic() >= self._rests[EVENT].until:
                self._counted(EVENT, await self._writer.send_note(node, uid, note, term))

    def _counted(self, kind: str, sent: Sent) -> Sent:
        """Count a request, and let its kind rest, or every kind, where the answer asks for that."""
        self._figures.requests[kind, sent.outcome.value] += 1
        match sent.outcome:
            case Outcome.BUSY:
                resting: Iterable[str] = tuple(self._rests)
            case Outcome.REFUSED:
                resting = (kind,)
            case _:
                resting = ()
        for each in resting:
            self._rests[each] = self._rests[each].failed(self._clock.monotonic())
        if resting:
            _LOG.warning("not written", kind=kind, outcome=sent.outcome.value, detail=sent.detail)
        elif sent.outcome is Outcome.DONE:
            self._rests[kind] = pace.RESTED
        return sent

    def _show(self, facts: Mapping[str, Facts], due: int, now: float) -> None:
        counts: dict[tuple[str, str], int] = {}
        for fact in facts.values():
            for name, condition in fact.conditions.items():
                key = (name.value, condition.status.value)
                counts[key] = counts.get(key, 0) + 1
        self._figures.scene = NodeScene(
            conditions=counts,
            tainted=sum(bool(fact.taint) for fact in facts.values()),
            cap=self._tainter.cap,
            withheld=self._tainter.withheld,
            backlog=max(0, due - int(self._fleet.available(now))),
            foreign=sum(len(fact.foreign) for fact in facts.values()),
            resting={kind: max(0.0, rest.until - now) for kind, rest in self._rests.items()},
        )


def _facts_of(node: KubeNode, memory: _Memory | None, now: float) -> Facts:
    if memory is None:
        return nodestatus.facts_of(node)
    if memory.foreign and now >= memory.foreign_until:
        memory.foreign = frozenset()
    if memory.seen is None or memory.seen[0] is not node or memory.seen[1].foreign != memory.foreign:
        memory.seen = (node, nodestatus.facts_of(node, memory.foreign))
    return memory.seen[1]


def _echoed(memory: _Memory, seen: Facts, now: float) -> Facts:
    """Return what was written last, until the watch shows it."""
    if memory.echo is not None:
        sent, at = memory.echo
        is_shown = sent.conditions.keys() == seen.conditions.keys() and all(
            item.says_the_same(seen.conditions[name]) for name, item in sent.conditions.items()
        )
        if is_shown or sent.uid != seen.uid or now - at > ECHO_SECONDS:
            memory.echo = None
        else:
            seen = dataclasses.replace(seen, conditions=sent.conditions)
    if memory.taint_echo is not None:
        value, at = memory.taint_echo
        if value == seen.taint or now - at > ECHO_SECONDS:
            memory.taint_echo = None
        else:
            seen = dataclasses.replace(seen, taint=value)
    return seen
