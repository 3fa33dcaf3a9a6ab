"""The book of one term: every gang, every lease, every orphan, and the decision pass over them.

Input: what clients say (register.py) and cluster views. Output: records that have changed, and an Event for
every decision, for the decision log.

Invariant: one pass takes all its answers from one view; the leases of records and orphans together are all that is
subtracted. A gang holds one lease at most. Nothing new is granted before `opens_at`.

Why a mutable book around pure functions: each step of a gang's life is a function of its record (lifecycle.py), and the
book is no more than the table in which the newest record stands.
"""

import dataclasses
import functools
from collections.abc import Sequence

from admitter.core import failing, lifecycle, likely, offers, order, recover
from admitter.core.answered import Answered
from admitter.core.failing import Failing
from admitter.core.hints import Likely
from admitter.core.ledger import Ledger
from admitter.core.readiness import Readiness
from admitter.core.recover import Fate, Orphan
from admitter.core.register import Register
from admitter.model.decision import Explanation, Grant, Policy
from admitter.model.gang import Gang, Member
from admitter.model.lease import Lease
from admitter.model.nodecapacity import ClusterView
from admitter.model.promise import Rejection
from admitter.model.queue import Ask, QueueState
from admitter.model.record import GangRecord, GangState, Terms
from muster.model.lease import NodeLease
from muster.model.vocabulary import EndReason, WaitReason

_MAX_ENDED = 10_000
HELD_SECONDS = 1.0
"""Between two looks at a gang that has a place and waits for its images."""


class Book(Register):
    """Belongs to one event loop; nothing in here waits."""

    def __init__(self, terms: Terms, policy: Policy, images: Readiness | None = None) -> None:
        super().__init__(terms, policy)
        self._images = images or Readiness(policy.images)
        self._looked: tuple[tuple[Ask, ...], order.Scene] | None = None
        """The queue and the scene of the last pass that answered it."""
        self._heard_images = 0
        self._layout = offers.Layout(policy)
        self._ledger = Ledger()
        self._memory = order.Memory()
        self._queue = QueueState()
        self.failing = Failing()
        self._answered: Answered | None = None
        """The last question that the queue put: the same one gets the same answer."""
        self._lease_number = 0
        self._doubts: dict[str, float] = {}
        """Since when a lease would not be granted any more."""

    def renew(self, terms: Terms) -> None:
        """Go on under a higher term: listen to everybody anew. Leases keep their ids."""
        self.terms = dataclasses.replace(terms, prefix=self.terms.prefix)
        self.estate.listen_anew()
        self._answered = None

    def likely(self, held: likely.Places) -> tuple[Likely, ...]:
        """Return where the gangs at the head of the queue will likely be, as of the last pass."""
        if self._looked is None:
            return ()
        asks, scene = self._looked
        return likely.of(asks, scene, self._queue, held, self._policy, self._memory)

    def is_open(self, now: float) -> bool:
        """Return whether the term grants anything yet."""
        return now >= self.terms.opens_at

    def leases(self) -> dict[str, tuple[NodeLease, ...]]:
        """Return all leases by node."""
        self._ledger.sync(self.records)
        result = dict(self._ledger.leases)
        for orphan in self.estate.orphans.values():
            for node, leases in orphan.parts.items():
                result[node] = (*result.get(node, ()), *leases)
        return result

    def kept_nodes(self) -> frozenset[str]:
        """Return the nodes that are leased, or on which a place is kept."""
        kept = self._queue.reservation
        reserved = (place.node for place in kept.placements) if kept is not None else ()
        return frozenset((*self.leases(), *reserved))

    def decide(
        self, view: ClusterView, now: float, *, paused_by: str = "", rejections: Sequence[Rejection] = ()
    ) -> None:
        """Take one decision pass over everything from one view; `paused_by`: why nothing new is granted in it.

        `rejections` are the pods that kubelets have refused since the last pass.
        """
        self.trust.hear(rejections, view, now, self.estate.orphans)
        self.trust.look(view)
        view = self._of_this_term(self.trust.bar(view))
        held = {record.lease.id for record in self.records.values() if record.lease is not None}
        self.estate.hear(view, self.terms.term, held, now)
        if self.estate.overtaken_by:
            # This term is no term: whoever owns the book renews it, and it listens before it grants.
            return
        view = self.estate.obeying(view)
        claiming = self._claim(view, now)
        self._forget(view, now)
        self._recheck(view, now)
        for record in list(self.records.values()):
            try:
                self._observe(record, view, now)
            except Exception as error:  # noqa: BLE001 -- one gang's bug (failing.py)
                self.failing.note(record.gang, error, now)
        self._serve(view, now, claiming, paused_by)

    def _observe(self, record: GangRecord, view: ClusterView, now: float) -> None:
        observed = lifecycle.observed(record, view, now)
        if observed is not record:
            self._keep(observed)
            if observed.state is GangState.STARTED:
                self._note("started", observed, "admitter", "lifecycle", "every member has its devices")

    def _fail(self, gang: Gang, error: BaseException, now: float) -> None:
        """Leave a gang out for a while, and what came to be remembered with it: it may be half of something."""
        self.failing.note(gang, error, now)
        self._memory = order.Memory()
        record = self.records.get(gang.full_name)
        if record is not None and record.state is GangState.WAITING:
            self._refuse(record, failing.told(error))

    def _serve(self, view: ClusterView, now: float, claiming: frozenset[str], paused_by: str) -> None:
        """Answer the queue."""
        asks, self._looked = self._asks(claiming, now), None
        if all(ask.is_away for ask in asks):
            return
        if self.is_open(now) and paused_by:
            self._answered = None
            answers = order.closed(asks, self._policy, now, None, paused_by, WaitReason.BREAKER_HOLDING)
        elif self.is_open(now):
            leases, held = self.leases(), self._ledger.holdings
            supply, ideal = self._layout.supply(view, leases, self._ledger.claims)
            self._images.look(view)
            scene = order.Scene(supply=supply, ideal=ideal, holdings=held, starts=self._images.starts, now=now)
            self._looked = asks, scene
            is_same = self._heard_images == self._images.version
            if is_same and self._answered is not None and self._answered.covers(asks, supply, held, now):
                return
            self._heard_images = self._images.version
            asks, outcome = failing.decided(
                asks,
                lambda left: order.decide(left, scene, self._policy, self._queue, self._memory),
                lambda gang, error: self._fail(gang, error, now),
            )
            self._queue, answers = outcome.state, outcome.answers
            self._answered = Answered(asks=asks, supply=supply, holdings=held, again_at=outcome.again_at)
        else:
            detail = (
                f"term {self.terms.term} listens to the nodes and clients of the last one before it grants anything"
            )
            answers = order.closed(asks, self._policy, now, self.terms.opens_at, detail)
        self._take(answers, view, now)

    def _take(self, answers: Sequence[order.Answer], view: ClusterView, now: float) -> None:
        """Grant and refuse; a gang with a place may still wait for its images."""
        is_held = is_gone = False
        for answer in answers:
            record = self.records[answer.gang.full_name]
            is_grant = isinstance(answer.answer, Grant)
            try:
                why = self._given(record, answer.answer, view, now)
            except Exception as error:  # noqa: BLE001 -- one gang's bug (failing.py)
                self._fail(record.gang, error, now)
                continue
            if why is not None:
                self._refuse(record, why)
                is_held, is_gone = is_held or is_grant, is_gone or why.reason is WaitReason.IMAGE_UNAVAILABLE
        if is_gone:
            # What was kept for it in this pass is for the others in the next one.
            self._answered = None
        if is_held and self._answered is not None:
            # It has a place and waits for images, which get warm without a change of the supply.
            self._answered = dataclasses.replace(self._answered, again_at=now + HELD_SECONDS)

    def _asks(self, claiming: frozenset[str], now: float) -> tuple[Ask, ...]:
        """Return the queue: those that wait, and those that left a moment ago."""
        self.places.forget(now)
        absent = {record.key: self._images.unavailable(record.gang, now) for record in self.waiting()}
        for key, why in absent.items():
            if why is not None and key not in claiming:
                self._refuse(self.records[key], why)
        present = {record.key for record in self.records.values() if record.state is not GangState.ENDED}
        asks = [
            Ask(
                gang=record.gang,
                arrival=record.arrival,
                asked_at=record.timeline.asked.at,
                standing=record.standing,
            )
            for record in self.waiting()
            if record.key not in claiming and absent[record.key] is None
        ]
        asks += self.places.away(present, now)
        if not asks and self._queue.reservation is not None:
            self._queue = dataclasses.replace(self._queue, reservation=None)
        return tuple(ask for ask in asks if not self.failing.is_out(ask.gang, now))

    def _given(
        self, record: GangRecord, answer: Grant | Explanation, view: ClusterView, now: float
    ) -> Explanation | None:
        """Grant, or return why it waits: for a place or for its images."""
        if isinstance(answer, Explanation):
            return answer
        why = self._images.judge(record.gang, answer, now)
        if why is None:
            self._grant(record, answer, view, now)
        return why

    def _grant(self, record: GangRecord, grant: Grant, view: ClusterView, now: float) -> None:
        self._answered = None
        lease = Lease(
            id=self._next_lease_id(),
            term=self.terms.term,
            snapshot_version=view.version,
            placements=grant.placements,
        )
        record = self._keep(lifecycle.leased(record, grant, lease, view, now))
        self.trust.note_lease(record.key, lease)
        nodes = len({placement.node for placement in grant.placements})
        detail, waived = f"{record.gang.pods} pods on {nodes} nodes", self._images.waived.pop(record.key, "")
        self._note("leased", record, "admitter", "admit", f"{detail}; {waived}" if waived else detail)

    def _refuse(self, record: GangRecord, why: Explanation) -> None:
        if record.why != why:
            self._keep(lifecycle.refused(record, why))
            if record.why is None or record.why.reason is not why.reason:
                self._note("waiting", record, "admitter", "order", f"{why.reason}: {why.summary}")

    def _of_this_term(self, view: ClusterView) -> ClusterView:
        """Return the view of the nodes that have said in this term what they hold: nothing is granted on another."""
        if all(state.snapshot_term == self.terms.term for state in view.nodes.values()):
            return view
        nodes = {name: state for name, state in view.nodes.items() if state.snapshot_term == self.terms.term}
        return dataclasses.replace(view, nodes=nodes)

    def _claim(self, view: ClusterView, now: float) -> frozenset[str]:
        """Give orphans back to the gangs that came for them; return the gangs that wait for the rest of theirs."""
        waiting = set()
        # Once for all of them, and seldom at all: it looks at every pod that anybody speaks for.
        contested = functools.cache(
            lambda: recover.contested(self.records.values(), self.estate.orphans.values(), view)
        )
        for record in self.waiting():
            orphan = recover.claimed(self.estate.orphans, record.gang)
            silent = {member.node for member in record.members} - view.nodes.keys()
            having = recover.having(record.gang, record.members, view, self._policy.gpu_resource)
            if len(having) == record.gang.pods:
                having = recover.having(record.gang, record.members, view, self._policy.gpu_resource, contested())
            is_running = len(having) == record.gang.pods
            if orphan is None and not silent and not is_running:
                continue
            fate = recover.fate(
                record.gang,
                orphan,
                has_members=bool(record.members),
                is_running=is_running,
                may_hear_more=bool(silent) or not self.is_open(now),
            )
            if fate is Fate.WAIT:
                waiting.add(record.key)
                self._refuse(record, recover.incomplete(record.gang, orphan, silent, self.terms.opens_at))
                continue
            if orphan is not None:
                self.estate.release(orphan, fate.value)
            if fate is Fate.ADOPT:
                self._adopt(record, orphan, having, view, now)
            elif fate is Fate.LOST:
                detail = "places of its lease are missing on nodes that were not heard in this term"
                self._end(record, EndReason.LEASE_LOST, detail, now)
        return frozenset(waiting)

    def _adopt(
        self,
        record: GangRecord,
        orphan: Orphan | None,
        having: Sequence[tuple[Member, str]],
        view: ClusterView,
        now: float,
    ) -> None:
        if orphan is None or not recover.is_whole(record.gang, orphan):
            identifier = self._next_lease_id() if orphan is None else orphan.id
            orphan = recover.running(record.gang, having, identifier, now)
        record = lifecycle.adopted(record, recover.lease(orphan, self.terms.term, view.version), now)
        for node, part in ((node, part) for node, parts in orphan.parts.items() for part in parts):
            for uid in part.pod_uids:
                record = lifecycle.joined(record, Member(podset=part.podset, uid=uid, node=node), now)
        if record.lease is not None:
            self.trust.note_lease(record.key, record.lease)
        self._keep(dataclasses.replace(record, is_taken_over=True))
        self._note("adopted", record, "admitter", "recover", f"from {len(orphan.parts)} nodes")

    def _next_lease_id(self) -> str:
        self._lease_number += 1
        return f"{self.terms.prefix}-{self._lease_number}"

    def _recheck(self, view: ClusterView, now: float) -> None:
        """Give up the leases of gangs of which nothing was seen and whose nodes would not be granted for some time."""
        if not any(record.state is GangState.LEASED and not record.members for record in self.records.values()):
            self._doubts = {}
            return
        leases = self.leases()
        members = frozenset(member.uid for record in self.records.values() for member in record.members)
        doubts: dict[str, float] = {}
        # Of two that do not fit together any more the later one goes.
        for record in sorted(self.records.values(), key=lambda record: -record.arrival):
            if record.state is not GangState.LEASED or record.members:
                continue
            assert record.lease is not None
            mine = record.lease.id
            nodes = {place.node for place in record.lease.placements}
            others = {node: tuple(lease for lease in leases[node] if lease.id != mine) for node in nodes}
            claims = self._ledger.claims_of_others(record.key, nodes)
            # A client that says nothing for so long has no pods there.
            is_awaited = lifecycle.leased_for(record, now) <= self.terms.lease_grace_seconds
            if lifecycle.still_stands(
                record, view, others, self._policy, members, claims=claims, is_awaited=is_awaited
            ):
                continue
            # An agent that starts anew, a read that fails once: the client may be starting its pods there by now.
            doubts[mine] = self._doubts.get(mine, now)
            if now - doubts[mine] >= self.terms.replan_patience_seconds:
                self._note("revoked", record, "admitter", "admit", "its places no longer stand and no pod has appeared")
                self.estate.close(mine)
                self._keep(lifecycle.revoked(record))
                leases = self.leases()
        self._doubts = doubts

    def _forget(self, view: ClusterView, now: float) -> None:
        """End what nobody comes back for, and drop what ended long ago."""
        for orphan in list(self.estate.orphans.values()):
            is_late = recover.is_expired(orphan, now, self.terms.opens_at, self.terms.lease_grace_seconds)
            if is_late and not recover.is_running(orphan, view):
                self.estate.release(orphan, "nobody came for it")
        for record in list(self.records.values()):
            if record.ending is not None:
                if now - record.ending.at > self.terms.ended_kept_seconds or len(self.records) > _MAX_ENDED:
                    del self.records[record.key]
            elif lifecycle.is_abandoned(record, view, now, self.terms.lease_grace_seconds):
                self._end(record, EndReason.CLIENT_GONE, "its client did not come back", now)
