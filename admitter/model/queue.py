"""What the queue goes by, and what it remembers from one pass to the next.

Values only; core/order.py makes the next QueueState from the last. Times are of the admitter's monotonic clock.
"""

import dataclasses
from collections.abc import Hashable, Mapping

from admitter.model.gang import Gang
from admitter.model.lease import Placement
from admitter.model.standing import GOOD, Standing
from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    ageing_seconds: float = 86_400.0
    """A gang that has waited for so long goes before all that have not, whatever their priority; 0: never."""
    reserved_share: float = 0.5
    """Most of a resource's units in the fleet that are kept idle for a reservation, until its gang has aged."""
    hold_seconds: float = 3600.0
    """How long units are kept for a gang whose place has no declared end, while it gains none; then it goes without for as
    long."""
    start_seconds: float = 300.0
    """Added to a declared runtime: a cold image takes 4 to 5 minutes (traces.md section 5)."""
    overrun_grace_seconds: float = 60.0
    """A gang may end so much later than it said: pods take 30 s to be told, and some to be gone."""
    overrun_ban_seconds: float = 86_400.0
    """How long a namespace has no backfill right after one of its gangs ran longer than it said."""
    scan_depth: int = 200
    """Most kinds of gangs that a pass tries behind the first blocked one."""
    place_kept_seconds: float = 600.0
    """How long a gang that was withdrawn before it ran keeps its place: ten tries of a launcher that gives up after a minute."""
    places_per_namespace: int = 200
    """Most of these places, the newest."""
    away_seconds: float = 30.0
    """How long the queue keeps for a withdrawn gang what it would give it: it may be made anew at this moment."""
    namespace_limits: Mapping[str, int] = codec.mapping()
    """Namespace -> most whole GPUs that its gangs hold leases on; `*`: every other namespace."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A gang that waits."""

    gang: Gang
    arrival: int
    """Rises with every gang that asks."""
    asked_at: float = 0.0
    """When it asked first."""
    standing: Standing = GOOD
    is_away: bool = False
    """It was withdrawn a moment ago: its turn is kept, and it is given nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a gang has, and what it has said of when it gives it back; core/holdings.py puts the clock to it."""

    gang: Gang
    placements: tuple[Placement, ...]
    since: float
    """When it was given."""
    started_at: float | None
    """When its last member had its devices; None: not yet."""
    runtime_seconds: float | None
    """Declared; None: not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A place that is kept for the first blocked gang."""

    gang: str
    """namespace/name"""
    shape: Hashable
    """What it asks for (core/signature.py): the same question under the same name goes on with the place."""
    placements: tuple[Placement, ...]
    nearer_at: float
    """When it was made, or last gained a unit."""
    starts_at: float | None
    """When all of it is free by the holders' declared ends; None: a holder there has declared none, so that no more is
    kept than is free anyway, and not for long."""
    expires_at: float | None = None
    """Of a place without a start: unless it gains a unit by then."""
    missing: int = 0
    """Of a place without a start: units of it that are not free."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    reservation: Reservation | None = None
    resting: Mapping[str, float] = codec.mapping()
    """Gang -> until when it gets no reservation: the last one expired."""
    banned: Mapping[str, float] = codec.mapping()
    """Namespace -> until when it has no backfill right."""


def runtime_seconds(gang: Gang) -> float | None:
    """Return the declared runtime of a gang; None if a podset has declared none."""
    declared = [podset.max_runtime_seconds for podset in gang.podsets]
    known = [seconds for seconds in declared if seconds is not None]
    return max(known) if len(known) == len(declared) else None
