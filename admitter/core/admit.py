"""Find a place for every member of a gang, or for none.

Input: a gang and the supply of one view. Output: a Grant with all placements, or the Shortfall of the first podset that
found no place.

Invariant: all placements come from one Supply and together never exceed it; same gang, same supply: same answer. For one
gang alone more units never turn a yes into a no, as long as the exact search stays within `policy.search_steps`.

Why best fit first and an exact search (pack.py) after it: best fit is right for a single podset and nearly always for
several; where several podsets compete for the same nodes it can miss a place that exists.

`holds` checks given places with the same function that found them.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from admitter.core import fit, pack
from admitter.core.fit import Limits, Question, Room
from admitter.model.decision import Exclusion, Grant, Plan, Policy, Shortfall
from admitter.model.gang import Gang, Level, Podset
from admitter.model.lease import Placement
from admitter.model.supply import Supply


def plan(gang: Gang, supply: Supply, policy: Policy, limits: Limits | None = None) -> Plan:
    """Return a place for every member, or why there is none.

    Preferred levels are held if they can all be held, and given up together otherwise.
    """
    answer = _plan(_questions(gang, policy, preferred=True), supply, policy, limits)
    if isinstance(answer, Grant) or not _prefers(gang):
        return answer
    return _plan(_questions(gang, policy, preferred=False), supply, policy, limits)


def holds(gang: Gang, placements: Iterable[Placement], supply: Supply, policy: Policy) -> bool:
    """Return whether the given places would be granted today. `supply` must not have them subtracted."""
    limits: dict[tuple[str, str, str], int] = {}
    for placement in placements:
        key = (placement.podset, placement.node, placement.resource)
        limits[key] = limits.get(key, 0) + placement.pods
    return isinstance(plan(gang, supply, policy, limits), Grant)


def may_use(gang: Gang, supply: Supply, policy: Policy) -> frozenset[tuple[str, str]]:
    """Return the (node, resource) pairs that the gang could use if they had room."""
    asked = _questions(gang, policy, preferred=False)
    return frozenset(
        (name, resource)
        for name, node in supply.nodes.items()
        for resource, offer in node.offers.items()
        if any(not fit.may_use(question, offer) for question in asked)
    )


def _prefers(gang: Gang) -> bool:
    return any(podset.topology is not None and not podset.topology.required for podset in gang.podsets)


def _questions(gang: Gang, policy: Policy, *, preferred: bool) -> tuple[Question, ...]:
    """The podsets in the order in which they are placed: bound to a level first, then large pods first."""
    asked = [
        fit.question(gang, podset, policy.gpu_resource, _level(podset, preferred=preferred)) for podset in gang.podsets
    ]
    return tuple(sorted(asked, key=_hardest_first))


def _level(podset: Podset, *, preferred: bool) -> Level | None:
    wish = podset.topology
    return wish.level if wish is not None and (wish.required or preferred) else None


def _hardest_first(asked: Question) -> tuple[bool, int, int, str]:
    podset = asked.podset
    return (asked.level is None, -podset.units_per_pod, -podset.count, podset.name)


def _plan(asked: Sequence[Question], supply: Supply, policy: Policy, limits: Limits | None) -> Plan:
    used: dict[tuple[str, str], int] = {}
    placements: list[Placement] = []
    for question in asked:
        found = _place(question, supply, used, limits)
        if isinstance(found, Shortfall):
            exact = pack.search(asked, supply, policy.search_steps, limits) if len(asked) > 1 else None
            return found if exact is None else Grant(placements=exact)
        placements += found
        for placement in found:
            key = (placement.node, placement.resource)
            used[key] = used.get(key, 0) + placement.units
    return Grant(placements=tuple(placements))


def _place(
    asked: Question, supply: Supply, used: Mapping[tuple[str, str], int], limits: Limits | None
) -> tuple[Placement, ...] | Shortfall:
    """Place one podset by best fit in the domain that it leaves least of."""
    domains = Domains.of(asked, supply, used, limits)
    sufficient = [
        (sum(room.units for room in rooms), name)
        for name, rooms in domains.rooms.items()
        if sum(room.pods for room in rooms) >= asked.podset.count
    ]
    if not sufficient:
        return domains.shortfall(asked)
    _, best = min(sufficient)
    return tuple(_spread(asked, domains.rooms[best]))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """The rooms for one podset, by domain, and the nodes that have none."""

    rooms: Mapping[str, Sequence[Room]]
    excluded: tuple[Exclusion, ...]

    @classmethod
    def of(
        cls, asked: Question, supply: Supply, used: Mapping[tuple[str, str], int], limits: Limits | None
    ) -> "Domains":
        rooms: dict[str, list[Room]] = {}
        excluded = []
        for node in supply.nodes.values():
            whole = fit.room(asked, node, used, limits=limits)
            if isinstance(whole, Exclusion):
                excluded.append(whole)
                continue
            if asked.level is None:
                rooms.setdefault("any", []).append(whole)
                continue
            for name in sorted({fit.domain(asked, node.node, option.offer) for option in whole.options}):
                part = fit.room(asked, node, used, within=name, limits=limits)
                if isinstance(part, Room):
                    rooms.setdefault(name, []).append(part)
        return cls(rooms=rooms, excluded=tuple(sorted(excluded, key=lambda exclusion: exclusion.node)))

    def shortfall(self, asked: Question) -> Shortfall:
        """Say how near the nearest domain came."""
        pods = {name: sum(room.pods for room in rooms) for name, rooms in self.rooms.items()}
        best = min(pods, key=lambda name: (-pods[name], name), default="")
        nodes = {room.node: room for rooms in self.rooms.values() for room in rooms}
        return Shortfall(
            podset=asked.podset.name,
            placed=pods.get(best, 0),
            units_admissible=sum(room.units for rooms in self.rooms.values() for room in rooms),
            nodes_usable=len(nodes),
            nodes_seen=len(nodes) + sum(exclusion.reason != "NoSuchResource" for exclusion in self.excluded),
            best_domain=best if asked.level is not None else "",
            excluded=self.excluded,
        )


def _spread(asked: Question, rooms: Sequence[Room]) -> Iterator[Placement]:
    """Fill the fullest-fitting nodes, and let the last one be the tightest that holds the rest."""
    left = asked.podset.count
    largest_first = sorted(rooms, key=lambda room: (-room.pods, room.units, room.node))
    start = 0
    while left:
        room = largest_first[start]
        if room.pods >= left:
            enough = (other for other in largest_first[start:] if other.pods >= left)
            last = min(enough, key=lambda room: (room.pods, room.units, room.node))
            yield from pack.fill(asked, last.options, last.node, left)
            return
        yield from pack.fill(asked, room.options, room.node, room.pods)
        left -= room.pods
        start += 1
