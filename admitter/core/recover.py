"""Take over the leases of an earlier term, without a database.

Input: what the agents say they were last told, and the clients that come back. Output: orphans (leases without a client),
and what becomes of a gang whose client is back.

Invariants: a lease that an agent reports is held from that moment, whether or not its client is back. A gang gets the
lease of its own request again only if every place of it was heard of, or all its pods run: pods of its namespace that have
what they ask for, and that nobody else speaks for, so that a client's word alone takes no unit from anybody. A gang with pods on a node
that is not heard yet is given no other place. Until `opens_at` nothing new is granted at all, so that a node or client
that is slow to return finds its units still there; a start with an empty state directory has no earlier term to wait for.

Why ids and not terms decide what is ours: a state directory can be lost, and a counter then starts again.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from admitter.core import explain, shapes
from admitter.model import nodecapacity
from admitter.model.decision import Explanation
from admitter.model.gang import Gang, GpuRequest, Member, MigRequest, Podset, ResourceRequest
from admitter.model.lease import Lease, Placement
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import GangRecord, GangState
from muster.model.lease import NodeLease

_NAMED_IN_LINE = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A lease that agents hold and nobody here has asked for."""

    id: str
    gang: str
    """namespace/name"""
    request_id: str
    parts: Mapping[str, tuple[NodeLease, ...]]
    """By node, as far as the nodes have been heard."""
    heard_at: float
    """When the first part was heard of."""

    @property
    def has_members(self) -> bool:
        """True if a pod of it had appeared."""
        return any(part.pod_uids for parts in self.parts.values() for part in parts)


class Fate(enum.StrEnum):
    """What becomes of a gang whose client came back for an orphan."""

    ADOPT = "adopt"
    WAIT = "wait"
    """Places are missing and may still be heard of."""
    REPLAN = "replan"
    """Places are missing for good, and nothing of the gang exists."""
    LOST = "lost"
    """Places are missing for good, and pods exist: the admitter cannot vouch for them."""


def opens_at(started_at: float, grace_seconds: float, *, is_first_term: bool) -> float:
    """Return when a new term may grant: after the old term's leases have had their time."""
    return started_at if is_first_term else started_at + grace_seconds


def heard(orphans: Mapping[str, Orphan], node: str, leases: Iterable[NodeLease], now: float) -> dict[str, Orphan]:
    """Return the orphans with what one node has just said of itself."""
    result = dict(orphans)
    parts: dict[str, tuple[NodeLease, ...]] = {}
    for lease in leases:
        parts[lease.id] = (*parts.get(lease.id, ()), lease)
    for identifier, mine in parts.items():
        known = result.get(identifier)
        if known is None:
            known = Orphan(id=identifier, gang=mine[0].gang, request_id=mine[0].request_id, parts={}, heard_at=now)
        # A node speaks for the lease's owner only as long as it agrees with those that spoke before it.
        agreeing = tuple(part for part in mine if (part.gang, part.request_id) == (known.gang, known.request_id))
        if agreeing:
            result[identifier] = dataclasses.replace(known, parts={**known.parts, node: agreeing})
    return result


def claimed(orphans: Mapping[str, Orphan], gang: Gang) -> Orphan | None:
    """Return the orphan that is this gang's own: same name, same request.

    Of several (an agent was away when the older one was given up, or invents one) the whole one, then the one whose pods
    exist.
    """
    mine = [
        orphan for orphan in orphans.values() if (orphan.gang, orphan.request_id) == (gang.full_name, gang.request_id)
    ]
    return min(
        mine,
        key=lambda orphan: (not is_whole(gang, orphan), not orphan.has_members, -len(orphan.parts), orphan.id),
        default=None,
    )


def contested(
    records: Iterable[GangRecord], orphans: Iterable[Orphan], view: ClusterView
) -> frozenset[tuple[str, str]]:
    """Return the (node, UID) that more than one request speaks for: of those nobody knows whose they are."""
    whose: dict[tuple[str, str], tuple[str, str]] = {}
    found = set()
    for pod, request in _spoken_for(records, orphans, view):
        if whose.setdefault(pod, request) != request:
            found.add(pod)
    return frozenset(found)


def having(
    gang: Gang,
    members: Sequence[Member],
    view: ClusterView,
    gpu_resource: str,
    contested: Set[tuple[str, str]] = frozenset(),
) -> tuple[tuple[Member, str], ...]:
    """Return the members that have all that their podset asks for, each with the resource it has it of.

    The newest ones, and of each podset no more than it has pods. Of fewer members than the gang has pods nobody needs to know.
    """
    if len(members) < gang.pods:
        return ()
    podsets = {podset.name: podset for podset in gang.podsets}
    left = {podset.name: podset.count for podset in gang.podsets}
    found = []
    for member in reversed(tuple(members)):
        if left.get(member.podset, 0) < 1 or (member.node, member.uid) in contested:
            continue
        if not _may_be_of(gang.namespace, member.node, member.uid, view):
            continue
        resource = _resource(podsets[member.podset], member, view, gpu_resource)
        if resource:
            left[member.podset] -= 1
            found.append((member, resource))
    return tuple(found)


def running(gang: Gang, having: Iterable[tuple[Member, str]], identifier: str, now: float) -> Orphan:
    """Return what a gang has of which no agent holds a lease any more: what its pods have, as their nodes count them."""
    units = {podset.name: podset.units_per_pod for podset in gang.podsets}
    uids: dict[tuple[str, str, str], list[str]] = {}
    for member, resource in having:
        uids.setdefault((member.node, resource, member.podset), []).append(member.uid)
    parts: dict[str, tuple[NodeLease, ...]] = {}
    for (node, resource, podset), found in sorted(uids.items()):
        part = NodeLease(
            id=identifier,
            gang=gang.full_name,
            resource=resource,
            units=units[podset] * len(found),
            pod_uids=tuple(sorted(found)),
            request_id=gang.request_id,
            podset=podset,
            units_per_pod=units[podset],
        )
        parts[node] = (*parts.get(node, ()), part)
    return Orphan(id=identifier, gang=gang.full_name, request_id=gang.request_id, parts=parts, heard_at=now)


def fate(gang: Gang, orphan: Orphan | None, *, has_members: bool, is_running: bool, may_hear_more: bool) -> Fate:
    """Decide what becomes of a gang that claims the orphan, or whose pods are where no agent has spoken yet.

    `is_running`: all its pods have their devices, so that it needs no other place, wherever its lease was.
    """
    if is_running or (orphan is not None and is_whole(gang, orphan)):
        return Fate.ADOPT
    if may_hear_more:
        return Fate.WAIT
    return Fate.LOST if has_members or (orphan is not None and orphan.has_members) else Fate.REPLAN


def incomplete(gang: Gang, orphan: Orphan | None, silent: Set[str], opens_at: float) -> Explanation:
    """Say what the gang's lease waits for."""
    parts = []
    if silent:
        named = sorted(silent)[:_NAMED_IN_LINE]
        more = f" and {len(silent) - len(named)} more" if len(silent) > len(named) else ""
        parts.append(f"it has pods on {', '.join(named)}{more}, not heard in this term")
    if orphan is not None:
        parts.append(f"its lease {orphan.id} is not complete: {len(orphan.parts)} nodes heard")
    # A node that is late is waited for even after the term has opened.
    return explain.new_term(gang, 1, None if silent else opens_at, "; ".join(parts))


def is_whole(gang: Gang, orphan: Orphan) -> bool:
    """Return whether every place of the gang is in the lease, and no other."""
    wanted = {podset.name: (podset.count, podset.units_per_pod) for podset in gang.podsets}
    pods = dict.fromkeys(wanted, 0)
    for part in (part for parts in orphan.parts.values() for part in parts):
        if part.podset not in wanted or wanted[part.podset][1] != part.units_per_pod:
            return False
        if part.units % part.units_per_pod:
            return False
        pods[part.podset] += part.units // part.units_per_pod
    return all(pods[name] == count for name, (count, _) in wanted.items())


def lease(orphan: Orphan, term: int, version: int) -> Lease:
    """Return the gang's lease, taken over."""
    return Lease(
        id=orphan.id,
        term=term,
        snapshot_version=version,
        placements=tuple(
            Placement(
                podset=part.podset,
                node=node,
                resource=part.resource,
                pods=part.units // part.units_per_pod,
                units_per_pod=part.units_per_pod,
            )
            for node, parts in sorted(orphan.parts.items())
            for part in parts
        ),
    )


def is_running(orphan: Orphan, view: ClusterView) -> bool:
    """Return whether a pod of it still has its devices: no client's absence takes a place from a pod that exists."""
    return any(
        pod.uid in part.pod_uids
        for node, parts in orphan.parts.items()
        if node in view.nodes
        for part in parts
        for report in view.nodes[node].report.resources.values()
        for pod in report.counted
    )


def is_expired(orphan: Orphan, now: float, opens: float, lease_grace_seconds: float) -> bool:
    """Return whether nobody came for it in the time that a lease lives without its client."""
    return now > opens and now - orphan.heard_at > lease_grace_seconds


def _spoken_for(
    records: Iterable[GangRecord], orphans: Iterable[Orphan], view: ClusterView
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield (node, UID) and the request that says it is its own."""
    for record in records:
        gang = record.gang
        for member in record.members if record.state is not GangState.ENDED else ():
            if _may_be_of(gang.namespace, member.node, member.uid, view):
                yield (member.node, member.uid), (gang.full_name, gang.request_id)
    for orphan in orphans:
        for node, parts in orphan.parts.items():
            for uid in (uid for part in parts for uid in part.pod_uids):
                yield (node, uid), (orphan.gang, orphan.request_id)


def _may_be_of(namespace: str, node: str, uid: str, view: ClusterView) -> bool:
    """Return whether a pod is one of the namespace, as far as there is an API server to say so."""
    if view.facts is None:
        return True
    facts = view.facts.get(node)
    pod = facts.counted.get(uid) if facts is not None else None
    return pod is not None and pod.namespace == namespace


def _resource(podset: Podset, member: Member, view: ClusterView, gpu_resource: str) -> str:
    """Return the resource of which a member has what its podset asks for; empty: it has not."""
    match podset.request:
        case GpuRequest():
            names = [gpu_resource]
        case ResourceRequest(name=name):
            names = [name]
        case MigRequest(compute_slices=slices):
            names = _cut_in(slices, member.node, view)
    units = podset.units_per_pod
    return next((name for name in names if nodecapacity.units_of(view, member.node, name, member.uid) >= units), "")


def _cut_in(slices: int, node: str, view: ClusterView) -> list[str]:
    """Return the resources of a node that may stand for MIG instances of so many slices."""
    state = view.nodes.get(node)
    if state is None:
        return []
    named = {name: shapes.mig_shape(name) for name in sorted(state.report.resources)}
    is_cut = bool(shapes.cuts_of(state.report))
    return [name for name, shape in named.items() if (is_cut if shape is None else shape.compute_slices >= slices)]
