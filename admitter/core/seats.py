"""Who of a gang sits where under its lease.

Input: the group, the gang that was asked for, its lease, the seats that were given. Output: the seats now.

Invariants: a place of the lease has one pod at a time. A pod keeps its seat until it is gone; a pod that comes in its stead
takes the place that is held, unless its node takes nothing now. Nobody is let go first while another one has no such place. A pod
that has succeeded keeps its seat from others once its units were given back.

Why podsets are matched by what a pod asks for: a pod that was replaced has a new name and UID, and what the lease holds for
it is a place for a pod like it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from admitter.core import grouprequest
from admitter.model.cluster import KubePod
from admitter.model.gang import Gang
from admitter.model.group import Group, GroupMember
from admitter.model.hold import GatePolicy, Hold, Seat
from admitter.model.lease import Lease, Placement
from admitter.model.record import GangRecord
from muster.model import codec, kube, labels
from muster.model.reading import Known, Unknown


def done(group: Group, hold: Hold) -> frozenset[str]:
    """Return the members that have succeeded and whose seat nobody needs any more.

    A work queue goes on with other pods in the same seats: only what is more than the group still wants is given back.
    """
    match group.wanted:
        case Known(value=wanted):
            live = sum(member.pod.uid in hold.seats for member in group.members)
            succeeded = sorted(
                pod.uid
                for pod in group.ended
                if pod.uid in hold.seats and pod.phase is kube.PodPhase.SUCCEEDED and pod.uid not in hold.left
            )
            return hold.left | frozenset(succeeded[: max(0, live + len(succeeded) - wanted)])
        case Unknown():
            return hold.left


def take(
    group: Group,
    gang: Gang,
    lease: Lease,
    hold: Hold,
    policy: GatePolicy,
    *,
    done: frozenset[str],
    owner_runtime: str,
    barrier: Callable[[KubePod, str], str],
    now: float,
) -> dict[str, Seat]:
    """Give every held member a free seat of its podset; who has one keeps it.

    A seat is free again when its pod failed or was deleted: the pod that replaces it takes the place that is held. `barrier`
    says why a pod is not to be pinned to a node; empty: it may be.
    """
    live = {member.pod.uid: member for member in group.members}
    seats = {uid: seat for uid, seat in hold.seats.items() if uid in live or uid in done}
    podsets = {
        uid: _podset(member, group, gang, owner_runtime, policy) for uid, member in live.items() if uid not in seats
    }
    for uid, podset in podsets.items():
        node = _seat_of_an_earlier_leader(live[uid].pod, podset, lease)
        if node:
            seats[uid] = Seat(node=node, podset=podset, lease_id=lease.id, at=now)
    taken: dict[tuple[str, str], int] = {}
    for seat in seats.values():
        taken[seat.podset, seat.node] = taken.get((seat.podset, seat.node), 0) + 1
    free = {podset: _free_places(podset, lease.placements, taken) for podset in set(podsets.values())}
    is_short = False
    for uid, podset in podsets.items():
        if uid not in seats and policy.gate in live[uid].pod.gates:
            # Pods of one podset are alike: what takes one of them takes the next.
            for node in free[podset]:
                if not barrier(live[uid].pod, node):
                    seats[uid] = Seat(node=node, podset=podset, lease_id=lease.id, at=now)
                    break
                is_short = True
    if is_short and not hold.seats:
        return {uid: seat for uid, seat in seats.items() if uid in live and policy.gate not in live[uid].pod.gates}
    return seats


def given_back(hold: Hold) -> Hold:
    """Return what is remembered once the lease goes back: who has no place is asked for around those that run."""
    return dataclasses.replace(
        hold, request_id="", seats={}, joined=frozenset(), left=frozenset(), unseated=codec.EMPTY, stays=None, yields=""
    )


def is_awaited(pods: Iterable[KubePod], taken: Mapping[str, Seat], gate: str, is_busy: Callable[[str], bool]) -> bool:
    """Return whether a scheduler may bind one of these at any moment, or will once our patch is through.

    Their places are nobody else's until then: what is granted a second time stays unbound, for no fault of its own.
    """
    return any(pod.uid in taken and not pod.node and (gate not in pod.gates or is_busy(pod.uid)) for pod in pods)


def remembered(group: Group, record: GangRecord, lease: Lease, hold: Hold, now: float) -> Hold:
    """Return what is remembered with the seats that pods had when the lease was taken over from an earlier term."""
    live = {member.pod.uid: member.pod.node for member in group.members}
    found = {
        member.uid: Seat(node=member.node, podset=member.podset, lease_id=lease.id, at=now)
        for member in record.members
        if member.uid not in hold.seats and live.get(member.uid) == member.node
    }
    return dataclasses.replace(hold, seats={**found, **hold.seats}) if found else hold


def _podset(member: GroupMember, group: Group, gang: Gang, owner_runtime: str, policy: GatePolicy) -> str:
    """Return the podset of the question that the pod is like; empty: none of them."""
    asked = grouprequest.ask(group, [member], "seat", owner_runtime=owner_runtime, devices=policy.devices)
    if not isinstance(asked, grouprequest.Asked) or not asked.gang.podsets:
        return ""
    mine = asked.gang.podsets[0]
    alike = (
        podset.name
        for podset in gang.podsets
        if dataclasses.replace(podset, count=1, name=mine.name) == mine and podset.name.startswith(mine.name)
    )
    return next(alike, "")


def _seat_of_an_earlier_leader(pod: KubePod, podset: str, lease: Lease) -> str:
    """Return the node of a pod that was let go under this lease by a process that is gone; empty: it was not."""
    if lease_of(pod) != lease.id or not podset:
        return ""
    if pod.node:
        return pod.node
    pins = set(pod.constraints.node_selector.values())
    for term in pod.constraints.required:
        pins.update(value for each in (*term.labels, *term.fields) for value in each.values)
    return next((place.node for place in lease.placements if place.podset == podset and place.node in pins), "")


def _free_places(podset: str, placements: Sequence[Placement], taken: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Yield the node of every place of a podset that nobody has, in the lease's order."""
    for place in placements:
        if place.podset == podset:
            for _ in range(place.pods - taken.get((podset, place.node), 0)):
                yield place.node


def pin(placements: Sequence[Placement], seat: Seat) -> tuple[str, ...]:
    """Return the nodes that the pod in this seat is pinned to."""
    for place in placements:
        if (place.podset, place.node) == (seat.podset, seat.node):
            return place.pin or (place.node,)
    return (seat.node,)


def lease_of(pod: KubePod) -> str:
    """Return the lease id that was written with the pod's pin; empty: none."""
    return pod.annotations.get(labels.LEASE.full, "")
