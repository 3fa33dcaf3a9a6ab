"""A gang under its lease: who is let go where, who is on a node, whose units go back.

Input: the group, its record in the queue, what is remembered. Output: what to remember, what is said of it, what is wanted.

Invariants: a held member is let go to its own place of the lease, and to no node that takes nothing now. A place whose node is gone
is nobody's for ever: who has waited for one as long as a scheduler is given is asked for anew, around those that run, once nobody
of the gang who was let go may still be bound.

Not here: which place (seats.py), before the lease (gates.py), what was refused (strikes.py).
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from admitter.core import grouprequest, obstacles, seats
from admitter.model.cluster import KubePod
from admitter.model.gang import Member
from admitter.model.group import Group, GroupMember
from admitter.model.hold import GatePolicy, Hold, HoldReason, Intent, Join, Leave, Release, Seat, Told, Withdraw
from admitter.model.lease import Lease
from admitter.model.record import GangRecord
from muster.model import codec
from muster.model.reading import Known

RELEASED = Told(reason=HoldReason.RELEASED, summary="all its pods have their places")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What of a step's scene is looked at here."""

    owner_runtime: str
    began: Mapping[str, float]
    """UID -> when its kubelet took notice of it."""
    barrier: Callable[[KubePod, str], str]
    """Why a pod is not to be pinned to a node; empty: it may be."""
    is_busy: Callable[[str], bool]
    """Whether a patch is on its way to a pod."""
    now: float


def follow(
    group: Group, record: GangRecord, lease: Lease, hold: Hold, policy: GatePolicy, moment: Moment
) -> tuple[Hold, Told | None, tuple[Intent, ...]]:
    """Return what to remember, what is said of the gang (None: nothing new), and what is wanted."""
    done = seats.done(group, hold)
    taken, since = _kept(group, hold, done), dict[str, float]()
    if not hold.yields:
        taken = seats.take(
            group,
            record.gang,
            lease,
            hold,
            policy,
            done=done,
            owner_runtime=moment.owner_runtime,
            barrier=moment.barrier,
            now=moment.now,
        )
        since = {uid: hold.unseated.get(uid, moment.now) for uid in _unseated(group, taken, policy)}
    pods = [member.pod for member in group.members]
    is_late = any(moment.now - at > policy.bind_patience_seconds for at in since.values())
    if is_late and not seats.is_awaited(pods, taken, policy.gate, moment.is_busy):
        back = Withdraw(detail=_lost(group, since, lease, moment), has_run=hold.has_run)
        return seats.given_back(hold), None, (back,)
    joined = frozenset(
        Member(
            podset=taken[member.pod.uid].podset,
            uid=member.pod.uid,
            node=member.pod.node,
            started_at=moment.began.get(member.pod.uid),
        )
        for member in group.members
        if member.pod.node and member.pod.uid in taken
    )
    intents: tuple[Intent, ...] = (
        *(() if hold.yields else _releases(group, lease, taken, policy)),
        *(Join(member=member) for member in sorted(joined - hold.joined, key=lambda each: each.uid)),
        *(Leave(uid=uid) for uid in sorted(done - hold.left)),
    )
    told = _missing(group, policy) or RELEASED
    if hold.yields:
        words = f"its lease goes back once those that were let go are bound or gone: {hold.yields}"
        told = Told(reason=HoldReason.ON_STRIKE, summary=words[:512])
    elif since:
        told = Told(reason=HoldReason.NO_PLACE, summary=_lost(group, since, lease, moment))
    hold = dataclasses.replace(
        hold,
        seats=taken,
        unseated=codec.freeze(since),
        joined=hold.joined | joined,
        left=hold.left | done,
        paused=None,
        pauses=0,
    )
    return hold, told, intents


def is_steady(group: Group, hold: Hold, policy: GatePolicy) -> bool:
    """Return whether nothing of a gang that has started can come due by itself: only a change makes it worth another look."""
    open_ends = (hold.strikes, hold.paused, hold.stays, hold.yields, hold.unseated, hold.astray, hold.unpulled)
    is_whole = all(member.pod.node and policy.gate not in member.pod.gates for member in group.members)
    return hold.told == RELEASED and is_whole and not any(open_ends)


def _releases(group: Group, lease: Lease, taken: Mapping[str, Seat], policy: GatePolicy) -> Iterator[Release]:
    for member in group.members:
        if policy.gate not in member.pod.gates or obstacles.foreign_gates(member.pod, policy):
            continue
        seat = taken.get(member.pod.uid)
        if seat is not None:
            yield Release(uid=member.pod.uid, nodes=seats.pin(lease.placements, seat), lease_id=lease.id)
        elif not _needs_device(member, policy):
            yield Release(uid=member.pod.uid, nodes=(), lease_id=lease.id)


def _unseated(group: Group, taken: Mapping[str, Seat], policy: GatePolicy) -> list[str]:
    """Return the held members that wait for a place and have none."""
    return [
        member.pod.uid
        for member in group.members
        if policy.gate in member.pod.gates and member.pod.uid not in taken and _needs_device(member, policy)
    ]


def _kept(group: Group, hold: Hold, done: frozenset[str]) -> dict[str, Seat]:
    """Return the seats of those that are there or done: nobody else is let go under a lease that goes back."""
    present = done | {member.pod.uid for member in group.members}
    return {uid: seat for uid, seat in hold.seats.items() if uid in present}


def _lost(group: Group, since: Mapping[str, float], lease: Lease, moment: Moment) -> str:
    """Say who has no place, and what is the matter with the places of the lease."""
    pods = sorted((member.pod for member in group.members if member.pod.uid in since), key=lambda pod: pod.name)
    barred = sorted(f"{place.node} {why}" for place in lease.placements if (why := moment.barrier(pods[0], place.node)))
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    found = "; ".join(barred[:3]) or "all places of its lease have a pod"
    return f"{pods[0].name}{more} has no place under the gang's lease: {found}; another one is asked for soon"[:512]


def _missing(group: Group, policy: GatePolicy) -> Told | None:
    match group.wanted:
        case Known(value=wanted) if len(group.members) < wanted:
            return Told(
                reason=HoldReason.INCOMPLETE,
                summary=f"{len(group.members)} of {wanted} pods exist; places are held for the others",
            )
    foreign = [member.pod.name for member in group.members if obstacles.foreign_gates(member.pod, policy)]
    return Told(reason=HoldReason.FOREIGN_GATE, summary=f"another gate is on {foreign[0]}") if foreign else None


def _needs_device(member: GroupMember, policy: GatePolicy) -> bool:
    return any(units and grouprequest.is_device(name, policy.devices) for name, units in member.pod.requests.items())
