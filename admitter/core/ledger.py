"""What all gangs of the book hold, kept by node and by gang from pass to pass.

Input: the records. Output: leases and claims by node, and Holdings, as of the last `sync`.

Invariant: what it says is what the records say; a record that has not changed is not looked into again, and a node whose
leases are the same gets the same tuple, so that whoever lays nodes out sees at once what has changed.

Why kept: a fleet runs thousands of gangs with hundreds of members, and a pass concerns one of them.
"""

from collections.abc import Iterable, Mapping

from admitter.model.nodefacts import Claim
from admitter.model.queue import Holding, runtime_seconds
from admitter.model.record import GangRecord, node_leases
from muster.model.lease import NodeLease
from muster.model.reading import Known, Unknown


class Ledger:
    """Belongs to one book."""

    def __init__(self) -> None:
        self.leases: dict[str, tuple[NodeLease, ...]] = {}
        self.claims: dict[str, tuple[Claim, ...]] = {}
        self.holdings: tuple[Holding, ...] = ()
        """In order of the records."""
        self._known: dict[str, GangRecord] = {}
        self._held: dict[str, Holding] = {}
        self._on: dict[str, dict[str, tuple[tuple[NodeLease, ...], tuple[Claim, ...]]]] = {}
        """Node -> gang -> its leases and claims there."""
        self._nodes: dict[str, frozenset[str]] = {}
        """Gang -> its nodes."""

    def sync(self, records: Mapping[str, GangRecord]) -> None:
        """Take the records as they are now."""
        changed = [record for key, record in records.items() if self._known.get(key) is not record]
        gone = self._known.keys() - records.keys()
        if not changed and not gone:
            return
        touched: set[str] = set()
        for key in gone:
            touched |= self._drop(key)
            del self._known[key]
        for record in changed:
            before = self._known.get(record.key)
            self._known[record.key] = record
            if before is None or (before.lease, before.members) != (record.lease, record.members):
                touched |= self._drop(record.key) | self._put(record)
            self._hold(record)
        for node in touched:
            self._add_up(node)
        holdings = tuple(self._held[key] for key in records if key in self._held)
        if holdings != self.holdings:
            self.holdings = holdings

    def claims_of_others(self, key: str, nodes: Iterable[str]) -> dict[str, tuple[Claim, ...]]:
        """Return what the pods of every other gang take on these nodes."""
        return {
            node: tuple(
                claim for gang, (_, claims) in self._on.get(node, {}).items() if gang != key for claim in claims
            )
            for node in nodes
        }

    def _hold(self, record: GangRecord) -> None:
        self._held.pop(record.key, None)
        if record.lease is not None:
            self._held[record.key] = Holding(
                gang=record.gang,
                placements=record.lease.placements,
                since=_since(record),
                started_at=_started(record),
                runtime_seconds=runtime_seconds(record.gang),
            )

    def _drop(self, key: str) -> frozenset[str]:
        self._held.pop(key, None)
        nodes = self._nodes.pop(key, frozenset())
        for node in nodes:
            del self._on[node][key]
        return nodes

    def _put(self, record: GangRecord) -> frozenset[str]:
        leases, claims = node_leases(record), claims_of(record)
        for node, mine in leases.items():
            self._on.setdefault(node, {})[record.key] = (mine, claims[node])
        self._nodes[record.key] = frozenset(leases)
        return self._nodes[record.key]

    def _add_up(self, node: str) -> None:
        parts = self._on.get(node)
        if not parts:
            self._on.pop(node, None)
            self.leases.pop(node, None)
            self.claims.pop(node, None)
            return
        self.leases[node] = tuple(lease for leases, _ in parts.values() for lease in leases)
        self.claims[node] = tuple(claim for _, claims in parts.values() for claim in claims)


def claims_of(record: GangRecord) -> dict[str, tuple[Claim, ...]]:
    """Return what a gang's leased pods take beside devices, by node."""
    requests = {podset.name: podset.requests for podset in record.gang.podsets}
    uids: dict[tuple[str, str], list[str]] = {}
    for member in record.members:
        uids.setdefault((member.node, member.podset), []).append(member.uid)
    found: dict[str, tuple[Claim, ...]] = {}
    for place in record.lease.placements if record.lease is not None else ():
        claim = Claim(
            pods=place.pods,
            requests=requests.get(place.podset, {}),
            pod_uids=tuple(sorted(uids.get((place.node, place.podset), ()))),
        )
        found[place.node] = (*found.get(place.node, ()), claim)
    return found


def _since(record: GangRecord) -> float:
    match record.timeline.admitted:
        case Known(stamp):
            return stamp.at
        case Unknown():
            return record.timeline.asked.at


def _started(record: GangRecord) -> float | None:
    """Return since when it runs; a gang that was taken over ran before anybody here saw it."""
    began = [member.started_at for member in record.members]
    known = [at for at in began if at is not None]
    if record.is_taken_over and known and len(known) == len(began):
        return max(known)
    match record.timeline.has_devices:
        case Known(stamp):
            return stamp.at
        case Unknown():
            return None
