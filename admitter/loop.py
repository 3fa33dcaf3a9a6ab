"""One decision pass at a time: wake, look once, decide, tell.

In: the feed's view, what clients say, the clock. Out: leases to the agents, records to the clients' streams, decisions to
the log, the scene to the metrics and the watchers.

Invariants: a pass works on one view and waits for nothing, so no request or delta can come between looking and deciding.
Any number of wake-ups while a pass runs make one more pass. A pass that fails is logged and changes nothing that was told;
the next wake-up tries again.

Not here: any rule (core), any message (services), any socket.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from admitter.clock import Clock
from admitter.core.book import Book
from admitter.core.safeguard import Safeguard
from admitter.model.feedmessages import LeaseSet
from admitter.model.gang import Gang, Member
from admitter.model.lease import NodeLease
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import GangRecord, Terms
from admitter.model.ruling import HoldPolicy
from admitter.publish.capacity import CapacityBoard
from admitter.publish.decisionlog import DecisionLog
from admitter.publish.figures import Figures, Scene

_LOG = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.01
"""Between two passes: a storm of deltas makes 100 passes a second at most, and a fault is still seen within 250 ms."""


class Feed(Protocol):
    """What the loop needs of the feed's hub."""

    def view(self) -> ClusterView: ...
    async def changed(self, since: int) -> int: ...
    def send_leases(self, node: str, leases: LeaseSet) -> None: ...
    def set_term(self, term: int) -> None: ...


class Attachment:
    """One client stream's hold on its gang. The newest stream of a gang has it; an older one is told so."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_superseded = False
        self._record: GangRecord | None = None
        self._fresh = asyncio.Event()

    def put(self, record: GangRecord) -> None:
        """Hold the newest record; one that was not taken yet is replaced."""
        self._record = record
        self._fresh.set()

    def supersede(self) -> None:
        """A newer stream has the gang."""
        self.is_superseded = True
        self._fresh.set()

    async def next(self) -> GangRecord | None:
        """Wait for the next record; None: a newer stream has the gang."""
        await self._fresh.wait()
        self._fresh.clear()
        return None if self.is_superseded else self._record


class AdmissionLoop:
    """The admitter's only writer of gangs and leases. Belongs to one event loop."""

    def __init__(
        self,
        *,
        book: Book,
        feed: Feed,
        clock: Clock,
        log: DecisionLog,
        board: CapacityBoard,
        figures: Figures,
        renew: Callable[[int], Terms],
        tick_seconds: float,
        safeguard: Safeguard | None = None,
    ) -> None:
        """`renew` makes the terms of a new term that must be above the given one, and puts it on disk."""
        self._book, self._feed, self._clock = book, feed, clock
        self._log, self._board, self._figures = log, board, figures
        self._renew = renew
        self._tick_seconds = tick_seconds
        self._safeguard = safeguard or Safeguard(HoldPolicy())
        self._wake = asyncio.Event()
        self._attached: dict[str, Attachment] = {}
        self._shown: dict[str, GangRecord] = {}
        self._sent: dict[str, tuple[NodeLease, ...]] = {}

    def open(self, gang: Gang, owner: str) -> Attachment:
        """Attach a client's stream to its gang; core.book.Conflict if it may not be."""
        self._book.open(gang, owner, self._clock.monotonic())
        older = self._attached.get(gang.full_name)
        if older is not None:
            older.supersede()
        attachment = self._attached[gang.full_name] = Attachment(gang.full_name)
        self._shown.pop(gang.full_name, None)
        self._wake.set()
        return attachment

    def join(self, attachment: Attachment, member: Member) -> None:
        """Take the client's word that a pod exists."""
        if not attachment.is_superseded and attachment.key in self._book.records:
            self._book.join(attachment.key, member, self._clock.monotonic())
            self._wake.set()

    def end(self, attachment: Attachment, detail: str) -> None:
        """Take the client's word that the gang is over."""
        if not attachment.is_superseded and attachment.key in self._book.records:
            self._book.end(attachment.key, detail, self._clock.monotonic())
            self._wake.set()

    def close(self, attachment: Attachment) -> None:
        """The client's stream is gone."""
        if self._attached.get(attachment.key) is attachment:
            del self._attached[attachment.key]
            self._book.detach(attachment.key, self._clock.monotonic())

    def records(self) -> tuple[GangRecord, ...]:
        """Return every gang that can be asked about."""
        return tuple(self._book.records.values())

    @property
    def term(self) -> int:
        """The present term."""
        return self._book.terms.term

    async def run(self) -> None:
        """Decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._tick())
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    self.decide_once()
                except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next wake-up tries again
                    self._figures.failed_passes += 1
                    _LOG.exception("decision pass failed")
                await asyncio.sleep(PAUSE_SECONDS)

    async def _follow(self) -> None:
        version = -1
        while True:
            version = await self._feed.changed(version)
            self._wake.set()

    async def _tick(self) -> None:
        while True:
            self._wake.set()
            await asyncio.sleep(self._tick_seconds)

    def decide_once(self) -> None:
        """Take one pass and tell everybody whom it concerns."""
        view, now = self._feed.view(), self._clock.monotonic()
        self._book.decide(self._safeguard.admit_from(view), now, paused_by=self._safeguard.paused_by)
        if self._book.estate.overtaken_by:
            self._take_new_term()
        leases = self._book.leases()
        self._tell_agents(view, leases)
        self._tell_clients()
        self._board.update(view, leases)
        self._figures.passes.observe(self._clock.monotonic() - now)
        self._note_decisions(view, now)
        self._figures.scene = Scene(
            view=view,
            records=self.records(),
            leases=leases,
            orphans=len(self._book.estate.orphans),
            term=self.term,
            is_open=self._book.is_open(now),
            at=now,
        )

    def _note_decisions(self, view: ClusterView, now: float) -> None:
        events = (*self._safeguard.events, *self._book.events)
        self._safeguard.events.clear()
        self._book.events.clear()
        for event in events:
            self._figures.decisions[event.kind] += 1
            if event.kind == "leased":
                self._figures.waits.observe(now - self._book.records[event.gang].timeline.asked.at)
        self._log.write(events, term=self.term, version=view.version)

    def _take_new_term(self) -> None:
        terms = self._renew(self._book.estate.overtaken_by)
        _LOG.warning(
            "agents know a later term: the counter was lost", known=self._book.estate.overtaken_by, term=terms.term
        )
        self._book.renew(terms)
        self._sent.clear()
        self._feed.set_term(terms.term)

    def _tell_agents(self, view: ClusterView, leases: dict[str, tuple[NodeLease, ...]]) -> None:
        for node, state in view.nodes.items():
            mine = leases.get(node, ())
            # Before its own Snapshot of this term a node may hold leases that nobody here has heard of.
            if state.snapshot_term == self.term and self._sent.get(node) != mine:
                self._sent[node] = mine
                self._feed.send_leases(node, LeaseSet(term=self.term, leases=mine))

    def _tell_clients(self) -> None:
        for key, attachment in self._attached.items():
            record = self._book.records.get(key)
            if record is not None and self._shown.get(key) is not record:
                self._shown[key] = record
                attachment.put(record)
        self._shown = {key: record for key, record in self._shown.items() if key in self._attached}
