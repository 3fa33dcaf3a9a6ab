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

import numpy as np

from admitter.core import admit, signature
from admitter.core.returns import Future
from admitter.core.supply import Supply
from admitter.model.decision import Grant, Policy
from admitter.model.gang import Gang
from admitter.model.lease import Placement
from admitter.model.queue import Reservation

_WORTH_MOVING = 0.1
"""A place is left for another only if that spares so much of the rest of the wait."""


def reserve(
    gang: Gang, future: Future, before: Reservation | None, policy: Policy, now: float, waited: float
) -> Reservation | None:
    """Return the place that is kept for the gang from now on; None: there is none that gangs could clear.

    `before` is what was kept for this same gang in the last pass.
    """
    turn = _first(lambda holders: admit.fits(gang, future.after(holders), policy), future.holders)
    if turn is None:
        return None
    start = future.end_of(turn)
    if start is None:
        return _gathered(gang, before, future, turn, policy, now, waited)
    if before is not None and before.starts_at is not None:
        own = _start_of(before, gang, future, turn, policy)
        if own is not None and own - start <= _WORTH_MOVING * (own - now):
            return dataclasses.replace(before, starts_at=own)
    plan = admit.plan(gang, future.after(turn), policy)
    assert isinstance(plan, Grant)
    return _made(gang, plan, now, start)


def _start_of(kept: Reservation, gang: Gang, future: Future, earliest: int, policy: Policy) -> float | None:
    """Return when a kept place is free as things are now: a holder that ends early brings it nearer."""

    def fits(holders: int) -> bool:
        return admit.holds(gang, kept.placements, future.after(holders), policy)

    turn = earliest if fits(earliest) else _first(fits, future.declared)
    return None if turn is None else future.end_of(turn)


def _made(gang: Gang, plan: Grant, now: float, start: float | None) -> Reservation:
    return Reservation(
        gang=gang.full_name,
        shape=signature.of(gang),
        placements=plan.placements,
        nearer_at=now,
        starts_at=start,
    )


def _gathered(
    gang: Gang, before: Reservation | None, future: Future, turn: int, policy: Policy, now: float, waited: float
) -> Reservation:
    """Return the place of which least is missing now, whoever holds the rest: what was gathered stays in it."""
    later = future.after(future.holders)
    table = future.supply.table
    missing = sum(
        (later.table.column(name) - table.column(name) for name in table.traits),
        np.zeros(len(table.names), dtype=np.int64),
    )
    order = np.argsort(missing, kind="stable")

    def near(count: int) -> Supply:
        return dataclasses.replace(later, table=later.table.only(order[:count]))

    count = _first(lambda count: admit.fits(gang, near(count), policy), len(order))
    # A search that is cut off may miss among rows in another order what it found in theirs.
    plan = admit.plan(gang, future.after(turn) if count is None else near(count), policy)
    assert isinstance(plan, Grant)
    made = _made(gang, plan, now, None)
    lacks = _missing(made, future.supply)
    if before is not None and before.expires_at is not None and lacks >= before.missing:
        return dataclasses.replace(
            made, nearer_at=before.nearer_at, expires_at=before.expires_at, missing=before.missing
        )
    return _nearer(made, lacks, policy, now, waited)


def _nearer(kept: Reservation, missing: int, policy: Policy, now: float, waited: float) -> Reservation:
    """Return the reservation after it has gained units: whoever waits longer may keep its place together for longer."""
    queue = policy.queue
    lasts = min(max(queue.hold_seconds, waited), max(queue.hold_seconds, queue.ageing_seconds))
    return dataclasses.replace(kept, nearer_at=now, expires_at=now + lasts, missing=missing)


def _missing(kept: Reservation, supply: Supply) -> int:
    """Return the units of the place that are not free."""
    table, missing = supply.table, 0
    for place in kept.placements:
        row = table.row.get(place.node)
        free = 0 if row is None else int(table.column(place.resource)[row])
        missing += max(0, place.units - free)
    return missing


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


def _first(fits: Callable[[int], bool], most: int) -> int | None:
    """Return the least number that fits: more units never turn a yes into a no."""
    if not fits(most):
        return None
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
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
