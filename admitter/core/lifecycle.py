"""A gang's life: WAITING, LEASED, STARTED, ENDED, and back to WAITING while nothing of it exists.

Input: the gang's record and what happened. Output: the next record.

Invariant: a lease is given up only by the gang's end, or while not one member has appeared; nothing here ever takes a
place from a pod that exists. ENDED is final.

Why the members' word and the agent's are kept apart: a client says that a pod exists, only the node's agent says that it
has its devices. STARTED needs the second.
"""

import dataclasses
from collections.abc import Iterable

from admitter.core import admit, offers
from admitter.core.offers import Claims, Leases
from admitter.model import nodecapacity
from admitter.model.decision import Explanation, Grant, Policy
from admitter.model.gang import Gang, Member
from admitter.model.lease import Lease
from admitter.model.members import Members
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import Ending, GangRecord, GangState
from admitter.model.timeline import Stamp, StampedBy, Timeline
from muster.model.reading import Known, Unknown
from muster.model.vocabulary import EndReason

_MEMBERS_PER_POD = 4


def opened(gang: Gang, owner: str, arrival: int, now: float) -> GangRecord:
    """Return the record of a gang that has just asked."""
    timeline = Timeline(asked=Stamp(at=now, by=StampedBy.ADMITTER))
    return GangRecord(gang=gang, owner=owner, arrival=arrival, timeline=timeline)


def attached(record: GangRecord) -> GangRecord:
    """Its client is there."""
    return dataclasses.replace(record, detached_at=None)


def detached(record: GangRecord, now: float) -> GangRecord:
    """Its client's stream has gone."""
    return dataclasses.replace(record, detached_at=now)


def refused(record: GangRecord, why: Explanation) -> GangRecord:
    """It waits, for this reason."""
    return dataclasses.replace(record, why=why)


def leased(record: GangRecord, grant: Grant, lease: Lease, view: ClusterView, now: float) -> GangRecord:
    """All its places are held."""
    strangers = frozenset(
        uid for placement in grant.placements for uid in nodecapacity.holders(view, placement.node, placement.resource)
    )
    return dataclasses.replace(
        adopted(record, lease, now), strangers=strangers - {member.uid for member in record.members}
    )


def adopted(record: GangRecord, lease: Lease, now: float) -> GangRecord:
    """A lease of an earlier term is its lease again."""
    timeline = dataclasses.replace(record.timeline, admitted=Known(Stamp(at=now, by=StampedBy.ADMITTER)))
    return dataclasses.replace(record, state=GangState.LEASED, lease=lease, why=None, timeline=timeline)


def revoked(record: GangRecord) -> GangRecord:
    """Its places are given up; it waits where it waited before."""
    assert not record.members
    timeline = Timeline(asked=record.timeline.asked)
    return dataclasses.replace(record, state=GangState.WAITING, lease=None, strangers=frozenset(), timeline=timeline)


def joined(record: GangRecord, member: Member, now: float) -> GangRecord:
    """Its client has seen a pod of it; the last word on a UID counts."""
    members = record.members if isinstance(record.members, Members) else Members(record.members)
    # A Job that restarts its pods for ever reports UIDs for ever; the oldest are long gone.
    grown = dataclasses.replace(record, members=members.joined(member, _MEMBERS_PER_POD * record.gang.pods + 1))
    is_enough = record.state is GangState.LEASED and len(grown.members) >= record.gang.pods
    if is_enough and _is_complete(grown, {m.uid for m in grown.members}):
        stamp = Known(Stamp(at=now, by=StampedBy.CLIENT))
        grown = dataclasses.replace(grown, timeline=dataclasses.replace(grown.timeline, bound=stamp))
    return grown


def left(record: GangRecord, uid: str) -> GangRecord:
    """A member of a gang that has started is done, and nobody comes in its stead: its place is given back."""
    member = next((each for each in record.members if each.uid == uid), None)
    if member is None or record.lease is None or record.state is not GangState.STARTED:
        return record
    mine = next(
        (place for place in record.lease.placements if (place.node, place.podset) == (member.node, member.podset)), None
    )
    places = tuple(
        dataclasses.replace(place, pods=place.pods - 1) if place is mine else place
        for place in record.lease.placements
        if place is not mine or place.pods > 1
    )
    return dataclasses.replace(
        record,
        members=tuple(each for each in record.members if each.uid != uid),
        lease=dataclasses.replace(record.lease, placements=places),
    )


def observed(record: GangRecord, view: ClusterView, now: float) -> GangRecord:
    """Compare its members with what is counted on their nodes; STARTED when all were seen."""
    if record.state is not GangState.LEASED:
        return record
    seen = record.seen | _counted(record, view)
    if seen != record.seen:
        record = dataclasses.replace(record, seen=seen)
    if not _is_complete(record, seen):
        return record
    stamp = Known(Stamp(at=now, by=StampedBy.AGENT))
    return dataclasses.replace(
        record,
        state=GangState.STARTED,
        lease=_filled(record),
        timeline=dataclasses.replace(record.timeline, has_devices=stamp),
    )


def ended(record: GangRecord, reason: EndReason, detail: str, now: float) -> GangRecord:
    """It is over and holds nothing."""
    ending = Ending(reason=reason, detail=detail, at=now)
    return dataclasses.replace(record, state=GangState.ENDED, lease=None, why=None, ending=ending)


def is_abandoned(record: GangRecord, view: ClusterView, now: float, lease_grace_seconds: float) -> bool:
    """Return whether its client has been away for longer than a lease lives without it, and no pod of it has devices."""
    if record.detached_at is None or now - record.detached_at <= lease_grace_seconds:
        return False
    return not _counted(record, view)


def leased_for(record: GangRecord, now: float) -> float:
    """Return since how many seconds it has its lease."""
    match record.timeline.admitted:
        case Known(stamp):
            return now - stamp.at
        case Unknown():
            return 0.0


def still_stands(
    record: GangRecord,
    view: ClusterView,
    leases: Leases,
    policy: Policy,
    others: frozenset[str] = frozenset(),
    *,
    claims: Claims = offers.NO_CLAIMS,
    is_awaited: bool = True,
) -> bool:
    """Return whether the lease of a gang without members would be granted today.

    `leases` and `claims` are those of everybody else, `others` the UIDs of their members. While its client `is_awaited`, another pod
    that was counted since the lease was made may be a member that is not reported yet: its units count as the gang's own.
    """
    assert record.lease is not None
    nodes = {placement.node for placement in record.lease.placements}
    asked = {(placement.node, placement.resource) for placement in record.lease.placements}
    asked |= {(node, resource) for node in nodes & view.nodes.keys() for resource in view.nodes[node].report.resources}
    not_ours = record.strangers | others
    back = {
        (node, resource): sum(
            units for uid, units in nodecapacity.holders(view, node, resource).items() if uid not in not_ours
        )
        for node, resource in (asked if is_awaited else ())
    }
    supply = offers.of_view(view, leases, policy, nodes=nodes, back=back, claims=claims)
    return admit.holds(record.gang, record.lease.placements, supply, policy)


def _filled(record: GangRecord) -> Lease:
    """Return the lease without the places that its pods did not take: they went elsewhere, where they are counted."""
    assert record.lease is not None
    kept = []
    for place in record.lease.placements:
        here = sum(1 for member in record.members if (member.node, member.podset) == (place.node, place.podset))
        if here:
            kept.append(dataclasses.replace(place, pods=min(place.pods, here)))
    return dataclasses.replace(record.lease, placements=tuple(kept))


def _counted(record: GangRecord, view: ClusterView) -> frozenset[str]:
    """Return the UIDs of the members that have devices: by the agents, or by the API server for what no agent reports."""
    if not record.members:
        return frozenset()
    leased: dict[str, set[str]] = {}
    for place in record.lease.placements if record.lease is not None else ():
        leased.setdefault(place.podset, set()).add(place.resource)
    return frozenset(
        member.uid for member in record.members if _is_counted(member, view, leased.get(member.podset, frozenset()))
    )


def _is_counted(member: Member, view: ClusterView, leased: Iterable[str]) -> bool:
    state = view.nodes.get(member.node)
    if state is None:
        return False
    reported = state.report.resources
    return any(nodecapacity.units_of(view, member.node, name, member.uid) > 0 for name in {*reported, *leased})


def _is_complete(record: GangRecord, uids: set[str] | frozenset[str]) -> bool:
    """Return whether these UIDs fill every podset."""
    if len(uids) < record.gang.pods:
        return False
    return all(
        sum(1 for member in record.members if member.podset == podset.name and member.uid in uids) >= podset.count
        for podset in record.gang.podsets
    )
