"""One decision pass at a time: wake, look once, decide, tell.

In: the feed's view, what clients say, the clock. Out: leases to the agents, records to the clients' streams, decisions to
the log, the scene to the metrics and the watchers.

Invariants: a pass works on one view and waits for nothing, so no request or delta can come between looking and deciding.
Any number of wake-ups while a pass runs make one more pass. A pass that fails is logged and changes nothing that was told;
the next wake-up tries again. A standby has no gangs and tells nobody anything; a leader whose guard says no does not either.

Not here: any rule (core), any message (services), any socket.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from admitter import confined
from admitter.core.book import Book
from admitter.core.safeguard import Safeguard
from admitter.model.gang import Gang, Member
from admitter.model.leadership import Guard, NotLeading
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodefacts import NodeFacts
from admitter.model.promise import Rejection
from admitter.model.record import GangRecord, Terms
from admitter.model.ruling import HoldPolicy
from admitter.model.standing import Standing
from admitter.publish.capacity import CapacityBoard
from admitter.publish.decisionlog import DecisionLog
from admitter.publish.figures import Figures, Scene
from muster.clock import Clock
from muster.model import codec
from muster.model.lease import LeaseSet, NodeLease

_LOG = structlog.get_logger(__name__)

NodeLeases = Mapping[str, tuple[NodeLease, ...]]

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
        self.is_lost = False
        """This admitter leads no more."""
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

    def lose(self) -> None:
        """This admitter leads no more: another one has the gang."""
        self.is_lost = self.is_superseded = True
        self._fresh.set()

    async def next(self) -> GangRecord | None:
        """Wait for the next record; None: a newer stream has the gang, or another admitter has it (`is_lost`)."""
        await self._fresh.wait()
        self._fresh.clear()
        return None if self.is_superseded else self._record


class AdmissionLoop:
    """The admitter's only writer of gangs and leases. Belongs to one event loop."""

    def __init__(
        self,
        *,
        make_book: Callable[[Terms], Book],
        guard: Guard,
        feed: Feed,
        clock: Clock,
        log: DecisionLog,
        board: CapacityBoard,
        figures: Figures,
        renew: Callable[[int], Terms | None],
        tick_seconds: float,
        safeguard: Safeguard | None = None,
        facts: Callable[[], Mapping[str, NodeFacts] | None] = lambda: None,
        rejections: Callable[[int], Sequence[Rejection]] = lambda _: (),
    ) -> None:
        """`renew` makes the terms of a new term that must be above the given one; None: they will come with `lead`.

        `facts` is what the API server says about the nodes; None: there is no API server. `rejections` returns what kubelets
        refused since the last call of this term.
        """
        self._make_book, self._guard = make_book, guard
        self._book: Book | None = None
        self._feed, self._clock = feed, clock
        self._log, self._board, self._figures = log, board, figures
        self._renew, self._facts, self._rejections = renew, facts, rejections
        self._tick_seconds = tick_seconds
        self._safeguard = safeguard or Safeguard(HoldPolicy())
        self.believed = feed.view()
        """What the newest pass was decided from: with numbers that stand by the breaker, and without closed nodes."""
        self._wake = asyncio.Event()
        self._attached: dict[str, Attachment] = {}
        self._shown: dict[str, GangRecord] = {}
        self._sent: dict[str, tuple[NodeLease, ...]] = {}

    def lead(self, terms: Terms) -> None:
        """Begin a term: with an empty book, or with what the last term of our own left in it."""
        if self._book is None:
            self._book = self._make_book(terms)
        else:
            self._book.renew(terms)
        self._sent.clear()
        self._feed.set_term(terms.term)
        self._wake.set()

    def stand_by(self) -> None:
        """Lead no more: forget all gangs, and send their clients to whoever leads now."""
        self._book = None
        for attachment in self._attached.values():
            attachment.lose()
        self._attached.clear()
        self._shown.clear()
        self._sent.clear()
        self._feed.set_term(0)
        self._wake.set()

    def wake(self) -> None:
        """Have a pass taken soon."""
        self._wake.set()

    @property
    def book(self) -> Book | None:
        """The leader's book; None: this is a standby."""
        return self._book

    def leading(self) -> Book:
        """Return the book; NotLeading if this admitter may not answer for gangs."""
        book = self._book
        if book is None or not self._guard.may_write(book.terms.term):
            raise NotLeading(self._guard.leadership.leader)
        return book

    def open(self, gang: Gang, owner: str, asked_at: float | None = None) -> Attachment:
        """Attach a client's stream to its gang; core.register.Conflict if it may not be, NotLeading in a standby."""
        self.leading().open(gang, owner, self._clock.monotonic(), asked_at)
        older = self._attached.get(gang.full_name)
        if older is not None:
            older.supersede()
        attachment = self._attached[gang.full_name] = Attachment(gang.full_name)
        self._shown.pop(gang.full_name, None)
        self._wake.set()
        return attachment

    def join(self, attachment: Attachment, member: Member) -> None:
        """Take the client's word that a pod exists."""
        book = self._book_of(attachment)
        if book is not None:
            book.join(attachment.key, member, self._clock.monotonic())
            self._wake.set()

    def leave(self, attachment: Attachment, uid: str) -> None:
        """Take the client's word that a member is done and nobody comes in its stead."""
        book = self._book_of(attachment)
        if book is not None:
            book.leave(attachment.key, uid)
            self._wake.set()

    def stand(self, attachment: Attachment, standing: Standing) -> None:
        """Take an adapter's word on what the gang was given before."""
        book = self._book_of(attachment)
        if book is not None:
            book.stand(attachment.key, standing)
            self._wake.set()

    def end(self, attachment: Attachment, detail: str, *, has_run: bool = True) -> None:
        """Take the client's word that the gang is over; one that has not run keeps its place in the queue for a while."""
        book = self._book_of(attachment)
        if book is not None:
            book.end(attachment.key, detail, self._clock.monotonic(), has_run=has_run)
            self._wake.set()

    def close(self, attachment: Attachment) -> None:
        """The client's stream is gone."""
        if self._attached.get(attachment.key) is attachment:
            del self._attached[attachment.key]
            if self._book is not None:
                self._book.detach(attachment.key, self._clock.monotonic())

    def records(self) -> tuple[GangRecord, ...]:
        """Return every gang that can be asked about."""
        return tuple(self._book.records.values()) if self._book is not None else ()

    def record(self, key: str) -> GangRecord | None:
        """Return one gang."""
        return self._book.records.get(key) if self._book is not None else None

    def requests_of_leases(self) -> dict[str, str]:
        """Return lease id -> request id of every lease that is known."""
        return self._book.requests_of_leases() if self._book is not None else {}

    def grants_on(self, node: str) -> bool:
        """Return whether anything may be granted on a node: its agent is heard, and nothing bars it."""
        view = self.believed
        return node in view.nodes and not view.is_stale(node) and node not in view.barred

    def kept_nodes(self) -> frozenset[str]:
        """Return the nodes that are leased, or on which a place is kept."""
        return self._book.kept_nodes() if self._book is not None else frozenset()

    def is_open(self) -> bool:
        """Return whether the term grants, and so knows of everything that is leased."""
        return self._book is not None and self._book.is_open(self._clock.monotonic())

    @property
    def term(self) -> int:
        """The present term; 0: this is a standby."""
        return self._book.terms.term if self._book is not None else 0

    def _book_of(self, attachment: Attachment) -> Book | None:
        """Return the book that an attachment may still change."""
        is_there = self._book is not None and attachment.key in self._book.records
        return self._book if is_there and not attachment.is_superseded else None

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
        view, now = dataclasses.replace(self._feed.view(), facts=self._facts()), self._clock.monotonic()
        # A standby looks on as well: when it comes to lead it knows what was good.
        admitted = self._safeguard.admit_from(view)
        book = self._book
        if book is None or not self._guard.may_write(book.terms.term):
            self._safeguard.events.clear()
            self._show(view, now, None)
            return
        rejections = self._rejections(book.terms.term)
        book.decide(admitted, now, paused_by=self._safeguard.paused_by, rejections=rejections)
        for key, error in book.failing.taken():
            self._figures.confined.note(confined.ASK, key, error)
        view, self.believed = book.trust.bar(view), book.trust.bar(admitted)
        if book.estate.overtaken_by:
            self._take_new_term(book)
        leases = book.leases()
        self._tell_agents(view, leases)
        self._tell_clients(book)
        self._board.update(view, leases)
        self._figures.passes.observe(self._clock.monotonic() - now)
        self._note_decisions(book, now)
        self._show(view, now, book, leases)

    def _show(self, view: ClusterView, now: float, book: Book | None, leases: NodeLeases = codec.EMPTY) -> None:
        self._figures.scene = Scene(
            view=view,
            records=tuple(book.records.values()) if book is not None else (),
            leases=leases,
            orphans=len(book.estate.orphans) if book is not None else 0,
            term=book.terms.term if book is not None else 0,
            is_open=book is not None and book.is_open(now),
            at=now,
        )

    def _note_decisions(self, book: Book, now: float) -> None:
        events = (*self._safeguard.events, *book.events)
        self._safeguard.events.clear()
        book.events.clear()
        for event in events:
            self._figures.decisions[event.kind] += 1
            if event.kind == "broken-promise":
                self._figures.broken_promises[event.reason] += 1
            if event.kind == "leased":
                self._figures.waits.observe(now - book.records[event.gang].timeline.asked.at)
        self._log.write(events, term=book.terms.term, view=self.believed)

    def _take_new_term(self, book: Book) -> None:
        known = book.estate.overtaken_by
        terms = self._renew(known)
        if terms is not None:
            _LOG.warning("agents know a later term: the counter was lost", known=known, term=terms.term)
            self.lead(terms)

    def _tell_agents(self, view: ClusterView, leases: dict[str, tuple[NodeLease, ...]]) -> None:
        for node, state in view.nodes.items():
            mine = leases.get(node, ())
            # Before its own Snapshot of this term a node may hold leases that nobody here has heard of.
            if state.snapshot_term == self.term and self._sent.get(node) != mine:
                self._sent[node] = mine
                send = functools.partial(self._feed.send_leases, node, LeaseSet(term=self.term, leases=mine))
                self._figures.confined.attempt(confined.SLICE, node, send)
        # The feed has forgotten these, with what was sent to them: who comes back is told anew.
        for gone in self._sent.keys() - view.nodes.keys():
            del self._sent[gone]

    def _tell_clients(self, book: Book) -> None:
        for key, attachment in self._attached.items():
            record = book.records.get(key)
            if record is not None and self._shown.get(key) is not record:
                self._shown[key] = record
                attachment.put(record)
        self._shown = {key: record for key, record in self._shown.items() if key in self._attached}
