"""Find a place for every member of a gang, or for none.

Input: a gang and a supply. Output: a Grant with all placements, or the Shortfall of the first podset that found no place.

Order of choice: the finest topology domain that holds the whole gang; of those the one that is left with least; in it the
fewest nodes, and the last of them where it does least damage (spread.py). Equal ones go by name. A penalty by row (slow
starts, starting.py) counts as so many units more that a domain is left with: it never makes a level coarser nor nodes more.

Invariant: all placements come from one Supply and together never exceed it; same gang, same supply: same answer. For one
gang alone more units never turn a yes into a no, as long as the exact search stays within `policy.search_steps`.

Why greedy first and an exact search (pack.py) after it: the greedy choice is exact for a single podset and nearly always
for several; where several podsets compete for the same nodes it can miss a place that exists.

`holds` checks given places with the same function that found them.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from admitter.core import domains, fit, pack, refuse, spread
from admitter.core.fit import Limits, Question, Rooms
from admitter.core.supply import Supply
from admitter.core.table import Numbers
from admitter.model.decision import Grant, Plan, Policy
from admitter.model.gang import Gang, Level, Podset
from admitter.model.lease import Placement

_SMALL_STEPS = 600
"""Of the search that makes a place for several podsets smaller: some milliseconds."""
_SMALL_DOMAIN = 64
"""Most nodes of a domain in which it is tried; on more of them it would not come far."""
_ROWS_A_STEP = 2
"""A greedy choice that failed took as long for so many nodes as an exact search for a step (30 ms for 5,000, 25 ms for 2,000)."""
_TRIES = 12
"""Domains of one level that are tried for several podsets; a single podset finds its place in the first."""


def plan(
    gang: Gang,
    supply: Supply,
    policy: Policy,
    limits: Limits | None = None,
    penalty: Numbers | None = None,
    tally: pack.Tally | None = None,
) -> Plan:
    """Return a place for every member, or why there is none; `tally` counts the steps of searches.

    Preferred levels are held if they can all be held, and given up together otherwise. So is all that pods and nodes
    would rather have (preferred affinity, PreferNoSchedule); a level is given up last.
    """
    asked = _questions(gang, policy, preferred=False, is_wishful=False)
    prefers = any(podset.topology is not None and not podset.topology.required for podset in gang.podsets)
    wishes = fit.has_wishes(asked, supply.table)
    for preferred, is_wishful in ((True, True), (True, False), (False, True)):
        if preferred <= prefers and is_wishful <= wishes:
            wished = _questions(gang, policy, preferred=preferred, is_wishful=is_wishful)
            answer = _plan(wished, supply, policy, limits, penalty, tally)
            if isinstance(answer, Grant):
                return answer
    return _plan(asked, supply, policy, limits, penalty, tally)


def fits(gang: Gang, supply: Supply, policy: Policy, tally: pack.Tally | None = None) -> bool:
    """Return whether `plan` would find a place; quicker where nobody needs to know which."""
    asked = _questions(gang, policy, preferred=False, is_wishful=False)
    if len(asked) == 1:
        return refuse.fits(asked[0], fit.rooms(asked[0], supply), supply, policy)
    return isinstance(_plan(asked, supply, policy, None, None, tally), Grant)


def holds(gang: Gang, placements: Iterable[Placement], supply: Supply, policy: Policy) -> bool:
    """Return whether the given places would be granted today. `supply` must not have them subtracted."""
    limits: dict[tuple[str, str, str], int] = {}
    for placement in placements:
        key = (placement.podset, placement.node, placement.resource)
        limits[key] = limits.get(key, 0) + placement.pods
    return isinstance(plan(gang, supply, policy, limits), Grant)


def _questions(gang: Gang, policy: Policy, *, preferred: bool, is_wishful: bool) -> tuple[Question, ...]:
    """The podsets in the order in which they are placed: bound to a level first, then large pods first."""
    asked = [
        fit.question(gang, podset, policy.gpu_resource, _level(podset, preferred=preferred), is_wishful=is_wishful)
        for podset in gang.podsets
    ]
    return tuple(sorted(asked, key=_hardest_first))


def _level(podset: Podset, *, preferred: bool) -> str:
    wish = podset.topology
    return wish.level if wish is not None and (wish.required or preferred) else domains.EVERYTHING


def _hardest_first(asked: Question) -> tuple[bool, int, int, str]:
    podset = asked.podset
    return (asked.level == domains.EVERYTHING, -podset.units_per_pod, -podset.count, podset.name)


def _plan(
    asked: Sequence[Question],
    supply: Supply,
    policy: Policy,
    limits: Limits | None,
    penalty: Numbers | None,
    tally: pack.Tally | None,
) -> Plan:
    alone = [fit.rooms(question, supply, limits=limits) for question in asked]
    for question, rooms in zip(asked, alone, strict=True):
        if not refuse.fits(question, rooms, supply, policy):
            return refuse.shortfall(question, rooms, supply, policy)
    failed = None
    small = pack.Budget(_SMALL_STEPS, tally)
    for level in domains.levels(policy):
        found = _at_level(level, asked, alone, supply, policy, limits, small, None)
        if isinstance(found, spread.Failure):
            failed = found
        elif found is not None:
            if penalty is not None:
                found = _sooner(found, _at_level(level, asked, alone, supply, policy, limits, small, penalty))
            return Grant(placements=spread.pinned(found, asked, alone, supply, policy))
    assert failed is not None
    if tally is not None:
        tally.steps += len(supply.table.names) // _ROWS_A_STEP
    exact = pack.search(asked, alone, supply, policy, pack.Budget(policy.search_steps, tally))
    if exact is not None:
        return Grant(placements=spread.pinned(exact, asked, alone, supply, policy))
    return refuse.shortfall(failed.question, failed.rooms, supply, policy, failed.used)


def _at_level(
    level: str,
    asked: Sequence[Question],
    alone: Sequence[Rooms],
    supply: Supply,
    policy: Policy,
    limits: Limits | None,
    budget: pack.Budget,
    penalty: Numbers | None,
) -> tuple[Placement, ...] | spread.Failure | None:
    """Return places in the first domain of a level that holds the gang, the last failure, or None: none was tried."""
    failed = None
    for rows in _candidates(level, asked, alone, supply, policy, penalty):
        found = spread.within(rows, asked, alone, supply, policy, limits, penalty)
        if isinstance(found, spread.Failure):
            failed = found
        better = _packed(found, rows, asked, alone, supply, policy, budget)
        if better is not None:
            return better
    return failed


def _sooner(
    plain: tuple[Placement, ...], other: tuple[Placement, ...] | spread.Failure | None
) -> tuple[Placement, ...]:
    """Return the places that start sooner, unless there are none, or on more nodes."""
    if other is None or isinstance(other, spread.Failure):
        return plain
    return other if len({place.node for place in other}) <= len({place.node for place in plain}) else plain


def _packed(
    found: tuple[Placement, ...] | spread.Failure,
    rows: Numbers,
    asked: Sequence[Question],
    alone: Sequence[Rooms],
    supply: Supply,
    policy: Policy,
    budget: pack.Budget,
) -> tuple[Placement, ...] | None:
    """Return the places, on fewer nodes if a short search finds them, or places that the greedy choice missed."""
    best = None if isinstance(found, spread.Failure) else found
    if len(asked) == 1 or len(rows) > _SMALL_DOMAIN:
        return best
    nodes = len(rows) + 1 if best is None else len({place.node for place in best})
    while nodes > 1:
        fewer = pack.search(asked, alone, supply, policy, budget, rows=rows, most_nodes=nodes - 1)
        if fewer is None:
            break
        best, nodes = fewer, len({place.node for place in fewer})
    return best


def _candidates(
    level: str,
    asked: Sequence[Question],
    alone: Sequence[Rooms],
    supply: Supply,
    policy: Policy,
    penalty: Numbers | None,
) -> Iterator[Numbers]:
    """Yield the rows of domains that hold each podset if it were alone, first the one that is left with least.

    Of equal ones the one whose rack, and so on, is left with least: what is whole further up stays whole.
    """
    resource, table = asked[0].resource, supply.table
    codes = domains.of_level(level, resource, table, policy).codes
    size = int(codes.max(initial=-1)) + 1
    enough = np.ones(size, dtype=np.bool_)
    for question, rooms in zip(asked, alone, strict=True):
        enough &= np.bincount(codes, weights=rooms.pods, minlength=size) >= question.podset.count
    fitting = np.flatnonzero(enough)
    if len(fitting) > 1:
        slow = None if penalty is None else _slowness(codes, fitting, penalty, alone[0].pods, asked[0].podset.count)
        fitting = _least_first(level, codes, fitting, asked[0], alone[0].units, supply, policy, slow)
    for code in fitting[:_TRIES]:
        yield np.flatnonzero(codes == code)


def _slowness(codes: Numbers, fitting: Numbers, penalty: Numbers, pods: Numbers, count: int) -> Numbers:
    """Return by domain the penalty of its slowest node, were the pods on its quickest ones."""
    order = np.lexsort((penalty, codes))
    sorted_codes, sums = codes[order], np.cumsum(pods[order])
    starts = np.searchsorted(sorted_codes, fitting)
    before = np.where(starts > 0, sums[starts - 1], 0)
    last = np.searchsorted(sums, before + count)
    return penalty[order[np.minimum(last, len(order) - 1)]]


def _least_first(
    level: str,
    codes: Numbers,
    fitting: Numbers,
    asked: Question,
    units: Numbers,
    supply: Supply,
    policy: Policy,
    slow: Numbers | None,
) -> Numbers:
    """Return domains of a level in the order in which they are tried."""
    # Rows are in the order of names, so a domain's first row speaks for its name.
    first = np.full(int(codes.max()) + 1, len(codes), dtype=np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    rows = first[fitting]
    keys = [rows]
    searched = domains.levels(policy)
    for coarser in searched[: searched.index(level) : -1]:
        above = domains.of_level(coarser, asked.resource, supply.table, policy).codes
        keys.append(np.bincount(above, weights=units).astype(np.int64)[above[rows]])
    left = np.bincount(codes, weights=units).astype(np.int64)[fitting]
    keys.append(left)
    if level == Level.NODE:
        keys.append(spread.damage(left, asked.podset.count * asked.podset.units_per_pod))
    if slow is not None:
        keys[-1] = keys[-1] + slow
    return fitting[np.lexsort(keys)]
