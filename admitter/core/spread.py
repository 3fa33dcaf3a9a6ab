"""Put the podsets of a gang on the nodes of one domain: fewest nodes, least damage.

Input: the rows of a domain and the gang's questions in order. Output: placements of all podsets, or the question that
failed and what the ones before it had taken.

A podset fills the nodes that the gang has already, then those that take most of it; the last node is the one on which the
rest of it does least damage. Damage is what shapes of 2, 4 and 8 units lose (topology.md section 5.1 and 5.2, FGD): a
single GPU is taken from an odd one out rather than from a pair.

Invariant: deterministic; the order depends on numbers and, where those are equal, on names.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from admitter.core import domains, fit
from admitter.core.fit import Limits, Option, Question, Rooms
from admitter.core.supply import Supply
from admitter.core.table import Mask, Numbers
from admitter.model.decision import Policy
from admitter.model.lease import Placement

_SHAPES = (2, 4, 8)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No room for a podset, beside those before it."""

    question: Question
    rooms: Rooms
    """Of all rows."""
    used: fit.Used


def damage(units: Numbers, taken: int | Numbers) -> Numbers:
    """Return the units that useful shapes lose when `taken` are taken of `units`.

    >>> [int(damage(np.array(units), 1)) for units in (1, 2, 3, 8)]
    [0, 2, 0, 14]
    """
    lost = np.zeros_like(units)
    for shape in _SHAPES:
        lost += (units // shape - np.maximum(units - taken, 0) // shape) * shape
    return lost


def within(
    rows: Numbers,
    asked: Sequence[Question],
    alone: Sequence[Rooms],
    supply: Supply,
    policy: Policy,
    limits: Limits | None,
    penalty: Numbers | None = None,
) -> tuple[Placement, ...] | Failure:
    """Return places for all podsets on these rows; a penalty by row counts as units among nodes that take as many pods."""
    size = len(supply.table.names)
    used: dict[str, Numbers] = {}
    touched = np.zeros(size, dtype=np.bool_)
    placements: list[Placement] = []
    for question, found in zip(asked, alone, strict=True):
        rooms = fit.rooms(question, supply, used, rows=rows, limits=limits) if used else _of(found, rows)
        chosen = _chosen(question, rooms, rows, supply, policy)
        if chosen is None:
            whole = fit.rooms(question, supply, used, limits=limits)
            return Failure(question=question, rooms=whole, used=used)
        slow = np.zeros(len(chosen), dtype=np.int64) if penalty is None else penalty[rows[chosen]]
        places, pods = _shares(question, rooms, chosen, touched[rows], slow)
        touched[rows[places]] = True
        placements += _placed(question, supply, rooms, rows, places, pods, used)
    return tuple(placements)


def pinned(
    placements: Sequence[Placement], asked: Sequence[Question], alone: Sequence[Rooms], supply: Supply, policy: Policy
) -> tuple[Placement, ...]:
    """Return the placements; those of pods that ask for something unmodelled are pinned to a set of nodes.

    The set holds the nodes of the placement first, then others that have room for such a pod, of the required domain.
    """
    pins: dict[str, tuple[str, ...]] = {}
    for question, rooms in zip(asked, alone, strict=True):
        podset = question.podset
        if podset.constraints.unmodelled:
            own = sorted({place.node for place in placements if place.podset == podset.name})
            codes = domains.of_level(question.level, question.resource, supply.table, policy).codes
            near = (codes == codes[supply.table.row[own[0]]]) & (rooms.pods > 0)
            names = [supply.table.names[row] for row in np.flatnonzero(near)[: policy.pinned_nodes + len(own)]]
            pins[podset.name] = (*own, *(name for name in names if name not in own))[: policy.pinned_nodes]
    if not pins:
        return tuple(placements)
    return tuple(dataclasses.replace(place, pin=pins.get(place.podset, ())) for place in placements)


def _of(rooms: Rooms, rows: Numbers) -> Rooms:
    return Rooms(
        options=tuple(
            Option(resource=option.resource, pods=option.pods[rows], units=option.units[rows])
            for option in rooms.options
        ),
        pods=rooms.pods[rows],
        units=rooms.units[rows],
    )


def _chosen(question: Question, rooms: Rooms, rows: Numbers, supply: Supply, policy: Policy) -> Numbers | None:
    """Return the places in `rows` that the podset may spread over: those of the best domain of its level."""
    count = question.podset.count
    if question.level == domains.EVERYTHING:
        return np.flatnonzero(rooms.pods) if rooms.pods.sum() >= count else None
    codes = domains.of_level(question.level, question.resource, supply.table, policy).codes[rows]
    size = int(codes.max(initial=-1)) + 1
    fitting = np.flatnonzero(np.bincount(codes, weights=rooms.pods, minlength=size) >= count)
    if not len(fitting):
        return None
    units = np.bincount(codes, weights=rooms.units, minlength=size)[fitting]
    first = np.full(size, len(codes), dtype=np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    best = fitting[np.lexsort((first[fitting], units))[0]]
    return np.flatnonzero((codes == best) & (rooms.pods > 0))


def _shares(question: Question, rooms: Rooms, chosen: Numbers, touched: Mask, slow: Numbers) -> tuple[Numbers, Numbers]:
    """Return places in rows and their pods: nodes that the gang has first, then the largest, the last where it hurts least."""
    pods, units, is_new = rooms.pods[chosen], rooms.units[chosen], ~touched[chosen]
    order = np.lexsort((chosen, units + slow, -pods, is_new))
    sums = np.cumsum(pods[order])
    last = int(np.searchsorted(sums, question.podset.count))
    left = question.podset.count - (int(sums[last - 1]) if last else 0)
    rest = order[last:]
    rest = rest[(pods[rest] >= left) & (is_new[rest] == is_new[order[last]])]
    hurt = damage(units[rest], left * question.podset.units_per_pod) + slow[rest]
    best = rest[np.lexsort((chosen[rest], units[rest], hurt))[0]]
    filled = order[:last]
    return np.append(chosen[filled], chosen[best]), np.append(pods[filled], left)


def _placed(
    question: Question,
    supply: Supply,
    rooms: Rooms,
    rows: Numbers,
    places: Numbers,
    pods: Numbers,
    used: dict[str, Numbers],
) -> list[Placement]:
    """Put pods on places, on each one's resources smallest shape first, and note what they take."""
    table, each, left = supply.table, question.podset.units_per_pod, pods
    at, placements = rows[places], []
    for option in rooms.options:
        taken = np.minimum(left, option.pods[places])
        left = left - taken
        before = used.setdefault(option.resource, np.zeros(len(table.names), dtype=np.int64))
        for row, count in zip(at[taken > 0].tolist(), taken[taken > 0].tolist(), strict=True):
            first = int(before[row])
            placements.append(fit.place(question, supply, option.resource, row, count, first))
        before[at] += taken * each
    for resource, need in fit.beside(question, table):
        used.setdefault(resource, np.zeros(len(table.names), dtype=np.int64))[at] += need * pods
    return placements
