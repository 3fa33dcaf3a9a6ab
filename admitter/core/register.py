"""The gangs of one term as their clients speak of them: open, join, leave, stand, end, detach.

Input: what a client says. Output: records that have changed, and an Event for every decision, for the decision log.

Invariants: one living gang a name, and one client a gang. A gang that is withdrawn before it has run keeps its place in the
queue for a while (places.py), so that its wait counts from the first attempt.

Not here: what the queue and the nodes say (book.py).
"""

import dataclasses

from admitter.core import lifecycle
from admitter.core.estate import Estate
from admitter.core.places import Places
from admitter.core.trust import Trust
from admitter.model.decision import Event, Policy
from admitter.model.gang import Gang, Member
from admitter.model.record import GangRecord, GangState, Terms
from admitter.model.standing import Standing
from muster.model.vocabulary import EndReason, WaitReason


class Conflict(Exception):
    """The request cannot be attached. `reason` is an EndReason, or empty if the caller may not even know why."""

    def __init__(self, reason: EndReason | None, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Register:
    """Belongs to one event loop; nothing in here waits."""

    def __init__(self, terms: Terms, policy: Policy) -> None:
        self.terms = terms
        self.records: dict[str, GangRecord] = {}
        self.events: list[Event] = []
        """Since somebody took them last."""
        self.estate = Estate(terms.prefix, self.events)
        self.places = Places(policy.queue)
        self.trust = Trust(self.events, policy.trust)
        self._policy = policy
        self._arrivals = 0

    def open(self, gang: Gang, owner: str, now: float, asked_at: float | None = None) -> GangRecord:
        """Return the record that the client is attached to now; Conflict if it may not be.

        `asked_at` is when the gang could first have asked, where its client knows: an earlier leader may have seen it.
        """
        known = self.records.get(gang.full_name)
        if known is not None and known.owner != owner and known.state is GangState.ENDED:
            # Over for its client, and nothing to anybody else: the name is free at once.
            known = None
        if known is not None:
            if known.owner != owner:
                raise Conflict(None, f"{gang.full_name} belongs to another client")
            if known.gang.request_id == gang.request_id:
                if known.gang != gang:
                    raise Conflict(EndReason.INVALID_REQUEST, "open: differs from what this request_id asked before")
                return self._keep(lifecycle.attached(known))
            if known.state is not GangState.ENDED:
                raise Conflict(EndReason.DUPLICATE, f"request {known.gang.request_id} of this gang is {known.state}")
        place = self.places.take(gang, now)
        if place is None:
            self._arrivals += 1
        since = min(now, now if asked_at is None else asked_at, now if place is None else place.asked_at)
        arrival = self._arrivals if place is None else place.arrival
        record = lifecycle.opened(gang, owner, arrival, since)
        again = "" if place is None else f", waiting for {now - since:.0f} s already"
        self._note("opened", record, f"client:{owner}", "client", f"{gang.pods} pods, request {gang.request_id}{again}")
        return self._keep(record)

    def join(self, key: str, member: Member, now: float) -> GangRecord:
        """A pod of the gang exists."""
        record = self.records[key]
        return record if record.state is GangState.ENDED else self._keep(lifecycle.joined(record, member, now))

    def leave(self, key: str, uid: str) -> GangRecord:
        """A member is done and gives its units back."""
        return self._keep(lifecycle.left(self.records[key], uid))

    def stand(self, key: str, standing: Standing) -> GangRecord:
        """What the gang was given has been refused, or it has started after all: how it stands with the queue now."""
        return self._keep(dataclasses.replace(self.records[key], standing=standing))

    def requests_of_leases(self) -> dict[str, str]:
        """Return lease id -> request id of every lease that a gang has or an agent reports."""
        known = {orphan.id: orphan.request_id for orphan in self.estate.orphans.values()}
        held = {record.lease.id: record.gang.request_id for record in self.records.values() if record.lease is not None}
        return {**known, **held}

    def end(self, key: str, detail: str, now: float, *, has_run: bool = True) -> GangRecord:
        """The client says that the gang is over; one that has not run keeps its place in the queue for a while."""
        record = self.records[key]
        if record.state is GangState.ENDED:
            return record
        return self._end(record, EndReason.FINISHED, detail, now, actor=f"client:{record.owner}", has_run=has_run)

    def detach(self, key: str, now: float) -> None:
        """The client's stream is gone."""
        if key in self.records:
            self._keep(lifecycle.detached(self.records[key], now))

    def waiting(self) -> list[GangRecord]:
        """Return the gangs of the queue."""
        return [record for record in self.records.values() if record.state is GangState.WAITING]

    def _end(
        self,
        record: GangRecord,
        reason: EndReason,
        detail: str,
        now: float,
        actor: str = "admitter",
        *,
        has_run: bool = True,
    ) -> GangRecord:
        self._note("ended", record, actor, "lifecycle", f"{reason}: {detail}")
        if record.lease is not None:
            self.estate.close(record.lease.id)
        if record.state is GangState.WAITING or not has_run:
            is_gone = record.why is not None and record.why.reason is WaitReason.IMAGE_UNAVAILABLE
            only_waited = record.state is GangState.WAITING and record.standing.may_reserve and not is_gone
            self.places.keep(record.gang, record.arrival, record.timeline.asked.at, now, keeps_turn=only_waited)
        return self._keep(lifecycle.ended(record, reason, detail, now))

    def _keep(self, record: GangRecord) -> GangRecord:
        self.records[record.key] = record
        return record

    def _note(self, kind: str, record: GangRecord, actor: str, rule: str, detail: str) -> None:
        lease_id = record.lease.id if record.lease is not None else ""
        self.events.append(Event(kind=kind, gang=record.key, actor=actor, rule=rule, detail=detail, lease_id=lease_id))
