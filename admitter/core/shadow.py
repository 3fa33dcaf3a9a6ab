"""When and where the first blocked gang can start, if those that hold its place end when they said.

Input: the supply now, what every gang holds and until when. Output: a Reservation, or None.

The holders are given back one after the other, by their declared ends, until the gang fits: that moment is its start, and
the place that fits is kept for it (EASY, topology.md section 5.3). The place is the engine's own answer, so a domain
counts only if it holds the gang.

Invariant: a start rests on declared ends alone. Where only holders without one could make room, no start is promised:
what is free of the nearest place is kept for a while, bounded in share and time, and then for somebody else. Units of pods
that are no gang's are never waited for.

Why the place is kept from pass to pass: a place chosen anew each time drifts, and what was kept free yesterday is given away.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from admitter.core import admit
from admitter.core import supply as supplies
from admitter.core.supply import Supply
from admitter.core.table import Numbers
from admitter.model.decision import Grant, Policy
from admitter.model.gang import Gang
from admitter.model.lease import Placement
from admitter.model.queue import Holding, Reservation
from muster.model.reading import Known, Unknown


class Future:
    """The supply as it will be, holder after holder."""

    def __init__(self, supply: Supply, holdings: Sequence[Holding]) -> None:
        self._supply = supply
        ends = [(_end(holding), holding.gang.full_name, holding) for holding in holdings]
        self.declared = sorted(
            ((end, name, holding) for end, name, holding in ends if end is not None), key=lambda entry: entry[:2]
        )
        endless = sorted(
            (holding for end, _, holding in ends if end is None), key=lambda held: (held.since, held.gang.full_name)
        )
        order = [*(holding for _, _, holding in self.declared), *endless]
        self.holders = len(order)
        self._given: Mapping[str, tuple[Numbers, Numbers, Numbers]] = _given_back(order, supply)

    def after(self, holders: int) -> Supply:
        """Return the supply when so many holders, in order, have given back what they hold."""
        more = []
        for resource, (turns, rows, units) in self._given.items():
            count = int(np.searchsorted(turns, holders))
            more.append((resource, rows[:count], units[:count]))
        return dataclasses.replace(self._supply, table=self._supply.table.changed(more))

    def end_of(self, holders: int) -> float | None:
        """Return when so many holders have ended; None: one of them has not said when."""
        if holders > len(self.declared):
            return None
        return self.declared[holders - 1][0] if holders else -math.inf

    def by(self, moment: float) -> Supply:
        """Return the supply when all have ended that say they end by then."""
        return self.after(sum(end <= moment for end, _, _ in self.declared))


def reserve(
    gang: Gang, future: Future, before: Reservation | None, policy: Policy, now: float, waited: float
) -> Reservation | None:
    """Return the place that is kept for the gang from now on; None: there is none that gangs could clear.

    `before` is what was kept for this same gang in the last pass.
    """
    if before is not None and _stands(gang, before, future, policy, now):
        return before
    turn = _first(lambda supply: isinstance(admit.plan(gang, supply, policy), Grant), future)
    if turn is None:
        return None
    start = future.end_of(turn)
    if before is not None and before.starts_at is not None:
        # Somebody is late. The place is left only for one that is free earlier.
        same = _first(lambda supply: admit.holds(gang, before.placements, supply, policy), future)
        late = None if same is None else future.end_of(same)
        if late is not None and (start is None or late <= start):
            return dataclasses.replace(before, starts_at=late)
    plan = admit.plan(gang, future.after(turn), policy)
    assert isinstance(plan, Grant)
    made = Reservation(
        gang=gang.full_name,
        request_id=gang.request_id,
        placements=plan.placements,
        made_at=now,
        starts_at=start,
    )
    if start is not None:
        return made
    if before is not None and before.expires_at is not None:
        return dataclasses.replace(made, made_at=before.made_at, expires_at=before.expires_at)
    # For as long as it has waited: whoever waits longer may keep its place together for longer.
    queue = policy.queue
    lasts = min(max(queue.hold_seconds, waited), max(queue.hold_seconds, queue.ageing_seconds))
    return dataclasses.replace(made, expires_at=now + lasts)


def spare(
    reservation: Reservation,
    gang: Gang,
    supply: Supply,
    future: Future,
    ideal: Supply,
    policy: Policy,
    *,
    is_aged: bool,
) -> Supply:
    """Return what others may take for as long as they like, as far as it is free."""
    share = 1.0 if is_aged else policy.queue.reserved_share
    places = _bounded(reservation, supply, ideal, share)
    later = supply if reservation.starts_at is None else future.by(reservation.starts_at)
    return later.less(gang, places)


def _stands(gang: Gang, kept: Reservation, future: Future, policy: Policy, now: float) -> bool:
    """Return whether the place is still as near as it was."""
    if kept.starts_at is not None:
        return kept.starts_at >= now and admit.holds(gang, kept.placements, future.by(kept.starts_at), policy)
    is_near = admit.holds(gang, kept.placements, future.after(future.holders), policy)
    return is_near and not admit.holds(gang, kept.placements, future.after(len(future.declared)), policy)


def _first(fits: Callable[[Supply], bool], future: Future) -> int | None:
    """Return how many holders must have ended for it to fit: more units never turn a yes into a no."""
    if not fits(future.after(future.holders)):
        return None
    low, high = 0, future.holders
    while low < high:
        middle = (low + high) // 2
        if fits(future.after(middle)):
            high = middle
        else:
            low = middle + 1
    return high


def _bounded(reservation: Reservation, supply: Supply, ideal: Supply, share: float) -> tuple[Placement, ...]:
    """Return as much of the place as may be kept idle, in order."""
    left: dict[str, int] = {}
    kept = []
    for place in reservation.placements:
        row = supply.table.row.get(place.node)
        if row is None:
            continue
        if place.resource not in left:
            left[place.resource] = int(share * int(ideal.table.column(place.resource).sum()))
        idle = min(place.units, int(supply.table.column(place.resource)[row]))
        if idle <= left[place.resource]:
            left[place.resource] -= idle
            kept.append(place)
    return tuple(kept)


def _end(holding: Holding) -> float | None:
    match holding.ends_at:
        case Known(moment):
            return moment
        case Unknown():
            return None


def _given_back(order: Sequence[Holding], supply: Supply) -> dict[str, tuple[Numbers, Numbers, Numbers]]:
    """Return by resource: the turns of the holders, the rows and the units that they give back, in order of turns."""
    table = supply.table
    parts: dict[str, list[tuple[int, Numbers, Numbers]]] = {}
    for turn, holding in enumerate(order):
        for resource, rows, units in supplies.amounts(holding.gang, holding.placements, table):
            traits = table.traits.get(resource)
            # A node with a fault gives its devices back to nobody.
            gives = np.ones(len(rows), dtype=np.bool_) if traits is None else (traits.grows | ~traits.is_reported)[rows]
            parts.setdefault(resource, []).append((turn, rows, np.where(gives, units, 0)))
    return {
        resource: (
            np.concatenate([np.full(len(rows), turn) for turn, rows, _ in found]),
            np.concatenate([rows for _, rows, _ in found]),
            np.concatenate([units for _, _, units in found]),
        )
        for resource, found in parts.items()
    }
