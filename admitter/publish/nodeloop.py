"""The leader's loop over all Nodes: look at the feed and the API server's objects, write what is due, remember what was sent.

In: the feed's view, the cluster's objects, what the breaker holds, which DaemonSets serve devices. Out: requests through a
`Writer`, decisions to the log, figures.

Invariants. A standby writes nothing and remembers nothing. At most `per_minute` writes leave in a minute, those that turn a
condition False first. After no answer, or one that says later, nothing leaves for a rest that doubles up to a minute; what
the API server refuses rests alone, since rights may be given for conditions and not for taints.
While the objects are older than `BLIND_SECONDS` nothing is written from them.

Why one request after the other: a fleet's worth of writes takes minutes by the limit anyway, and what is decided is sent
at once, not from a queue.

Not here: what is due (core/nodestatus.py, core/taints.py), requests (nodes.py).
"""

import asyncio
import collections
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from admitter.core import nodestatus, pace
from admitter.core.nodestatus import Moment
from admitter.core.pace import Bucket
from admitter.model.cluster import Cluster, KubeNode
from admitter.model.leadership import Guard
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodestatus import Facts, Note, StatusPolicy, TaintChange, Word, Write
from admitter.model.ruling import Ruling
from admitter.publish import nodememory
from admitter.publish.nodefigures import NodeFigures, NodeScene
from admitter.publish.nodememory import Memory
from admitter.publish.nodes import Outcome, Sent
from admitter.publish.nodetaints import Tainter

_LOG = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
BLIND_SECONDS = 30.0
FOREIGN_SECONDS = 600.0
"""How long a condition that somebody else owns is left alone before it is tried again."""
BURST = 30
"""Writes that may leave in a row, of the fleet's `per_minute`."""
AT_ONCE = 250
"""Nodes looked at before others get their turn on the event loop."""
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
        self._memories: dict[str, Memory] = {}
        self._tally: collections.Counter[tuple[str, str]] = collections.Counter()
        """Nodes by (condition, status), and the figures named beside."""
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
        ruling, nodes = self._ruling(), dict(self._cluster.nodes())
        moment = Moment(now=now, utc=self._clock.utc(), held=ruling.nodes)
        self._forget_all_but(nodes)
        seen = _Seen()
        for count, node in enumerate(nodes.values(), 1):
            self._look_at(node, view, moment, seen)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        seen.writes.sort(key=lambda write: (not write.is_urgent, write.node))
        taints = await self._tainter.changes(seen.words, seen.facts, self._cluster, view, ruling, now=now)
        self._show(len(seen.writes) + len(taints), now)
        await self._send_all(seen.writes, taints, term)

    def _begin(self, term: int, view: ClusterView) -> None:
        self._term, self._since = term, view.now
        self._memories.clear()
        self._tally.clear()
        self._tainter.forget()
        self._rests = dict.fromkeys(self._rests, pace.RESTED)

    def _forget_all_but(self, nodes: Mapping[str, KubeNode]) -> None:
        for gone in self._memories.keys() - nodes.keys():
            self._count(self._memories.pop(gone), None)

    def _look_at(self, node: KubeNode, view: ClusterView, moment: Moment, seen: "_Seen") -> None:
        """Look at one Node; one that is as it was when nothing was to do costs next to nothing."""
        name, state = node.name, view.nodes.get(node.name)
        report, heard_at = (None, self._since) if state is None else (state.report, state.heard_at)
        word = Word(report=report, silent_seconds=max(0.0, view.now - heard_at))
        mark = (node, report, word.silent_seconds > self._policy.silent_seconds, name in moment.held)
        memory, bears = self._memories.get(name), report is not None and report.verdict in self._tainter.verdicts
        if memory is not None and memory.is_quiet(mark) and not bears and not memory.has_taint:
            return
        fact = nodememory.facts_of(node, memory, moment.now)
        if report is None and not fact.conditions and not fact.taint:
            # No agent, and nothing of ours: not a Node to write on.
            return
        if memory is None:
            memory = self._memories[name] = Memory(history=nodestatus.fresh(self._policy, moment.now))
        fact = nodememory.echoed(memory, fact, moment.now)
        if bears or fact.taint:
            seen.words[name], seen.facts[name] = word, fact
        looked = nodestatus.look(word, fact, memory.history, self._policy, moment)
        memory.history = looked.history
        memory.quiet = mark if looked.is_at_rest and not memory.awaits_echo and not fact.foreign else None
        self._count(memory, fact)
        if looked.write is not None:
            seen.writes.append(looked.write)

    def _count(self, memory: Memory, fact: Facts | None) -> None:
        """Keep the fleet's figures as the Nodes change."""
        self._tally.subtract(memory.counted)
        memory.counted = nodememory.figures_of(fact) if fact is not None else ()
        memory.has_taint = fact is not None and bool(fact.taint)
        self._tally.update(memory.counted)

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

    def _show(self, due: int, now: float) -> None:
        tally = {key: number for key, number in self._tally.items() if number}
        self._figures.scene = NodeScene(
            tainted=tally.pop(nodememory.TAINTED, 0),
            foreign=tally.pop(nodememory.FOREIGN, 0),
            conditions=tally,
            cap=self._tainter.cap,
            withheld=self._tainter.withheld,
            backlog=max(0, due - int(self._fleet.available(now))),
            resting={kind: max(0.0, rest.until - now) for kind, rest in self._rests.items()},
        )


@dataclasses.dataclass(slots=True)
class _Seen:
    """What one look at the fleet found to do."""

    writes: list[Write] = dataclasses.field(default_factory=list)
    words: dict[str, Word] = dataclasses.field(default_factory=dict)
    """Of the nodes that bear on the taint, as `facts`."""
    facts: dict[str, Facts] = dataclasses.field(default_factory=dict)
