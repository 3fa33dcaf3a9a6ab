"""What the admitter remembers of one gang, from its first word to some time after its end.

Values only; core/lifecycle.py makes the next one from the last.
"""

import dataclasses
import enum
from collections.abc import Sequence

from admitter.model.decision import Explanation
from admitter.model.gang import Gang, Member
from admitter.model.lease import Lease
from admitter.model.standing import GOOD, Standing
from admitter.model.timeline import Timeline
from muster.model.lease import NodeLease
from muster.model.vocabulary import EndReason


class GangState(enum.StrEnum):
    WAITING = "waiting"
    LEASED = "leased"
    STARTED = "started"
    ENDED = "ended"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    reason: EndReason
    detail: str
    at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GangRecord:
    gang: Gang
    owner: str
    """The client that asked; nobody else may attach to it."""
    arrival: int
    """Rises with every gang that asks."""
    timeline: Timeline
    state: GangState = GangState.WAITING
    lease: Lease | None = None
    members: Sequence[Member] = ()
    """In the order in which they were reported, one a UID."""
    seen: frozenset[str] = frozenset()
    """UIDs of members whose units their node's agent has counted."""
    strangers: frozenset[str] = frozenset()
    """UIDs that the leased nodes had counted when the lease was made: not this gang's."""
    why: Explanation | None = None
    detached_at: float | None = None
    """Since when its client's stream is gone; None while it is there."""
    ending: Ending | None = None
    is_taken_over: bool = False
    """Its lease is an earlier term's: it may have run for long."""
    standing: Standing = GOOD
    """With the queue: strikes, and until when it is not looked at."""

    @property
    def key(self) -> str:
        """namespace/name"""
        return self.gang.full_name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the book knows of its term."""

    term: int
    prefix: str
    """Of the ids of its own leases: the term and something that no other process has."""
    opens_at: float
    lease_grace_seconds: float = 60.0
    """A lease without pods lives as long as its client's stream plus this (design.md section 6)."""
    replan_patience_seconds: float = 15.0
    """How long a lease stands without its units before it is planned anew, while no pod of it was seen."""
    ended_kept_seconds: float = 600.0
    """How long an ended gang can still be asked about."""


def node_leases(record: GangRecord) -> dict[str, tuple[NodeLease, ...]]:
    """Return what each node is told of the gang's lease."""
    result: dict[str, tuple[NodeLease, ...]] = {}
    if record.lease is None:
        return result
    uids: dict[tuple[str, str], list[str]] = {}
    for member in record.members:
        uids.setdefault((member.node, member.podset), []).append(member.uid)
    for placement in record.lease.placements:
        lease = NodeLease(
            id=record.lease.id,
            gang=record.key,
            resource=placement.resource,
            units=placement.units,
            pod_uids=tuple(sorted(uids.get((placement.node, placement.podset), ()))),
            request_id=record.gang.request_id,
            podset=placement.podset,
            units_per_pod=placement.units_per_pod,
        )
        result[placement.node] = (*result.get(placement.node, ()), lease)
    return result
