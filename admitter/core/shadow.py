"""When and where the first blocked gang can start, if those that hold its place end when they said.

Input: the supply now, what every gang holds and until when. Output: a Reservation, or None.

The holders are given back one after the other, by their declared ends, until the gang fits: that moment is its start, and
the place that fits is kept for it (EASY, topology.md section 5.3). The place is the engine's own answer, so a domain
counts only if it holds the gang.

Invariant: a start rests on declared ends alone. Where only holders without one could make room, no start is promised:
what is free of the nearest place is kept for a while, bounded in share and time, and then for somebody else.

Why the place is kept from pass to pass: a place chosen anew each time drifts, and what was kept free yesterday is given away.
"""

import dataclasses
from collections.abc import Callable

from admitter.core import admit
from admitter.core.returns import Future
from admitter.core.supply import Supply
from admitter.model.decision import Grant, Policy
from admitter.model.gang import Gang
from admitter.model.lease import Placement
from admitter.model.queue import Reservation


def reserve(
    gang: Gang, future: Future, before: Reservation | None, policy: Policy, now: float, waited: float
) -> Reservation | None:
    """Return the place that is kept for the gang from now on; None: there is none that gangs could clear.

    `before` is what was kept for this same gang in the last pass.
    """
    if before is not None and _stands(gang, before, future, policy, now):
        return before
    turn = _first(lambda supply: admit.fits(gang, supply, policy), future)
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
    return is_near and not admit.holds(gang, kept.placements, future.after(future.declared), policy)


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
