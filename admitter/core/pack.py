"""Search exactly for a place for several podsets that compete for the same nodes.

Input: the podsets' questions and a supply. Output: placements, or None.

Invariant: finds a place whenever one exists and the search ends within its bound of steps. The order of the search
depends on names alone, so the same question gets the same answer.

Why bounded: packing is hard in the worst case, and an admitter that thinks for a minute admits nobody. Past the bound the
answer is no, which is safe; best fit has already said the same.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from admitter.core import fit
from admitter.core.fit import Limits, Option, Question, Room
from admitter.model.lease import Placement
from admitter.model.supply import NodeOffers, Supply

MAX_NODES = 300
"""The search goes one call deeper for each node; Python's stack ends near 1,000."""


class _OutOfSteps(Exception):
    pass


def search(
    asked: Sequence[Question], supply: Supply, steps: int, limits: Limits | None = None
) -> tuple[Placement, ...] | None:
    """Return places for all podsets, or None if there are none or the bound was reached."""
    domains = [_domains(question, supply, limits) for question in asked]
    budget = itertools.count()
    try:
        for chosen in itertools.product(*(sorted(names) for names in domains)):
            packing = _Packing(asked, chosen, supply, limits, budget, steps)
            if (found := packing.place()) is not None:
                return found
    except _OutOfSteps:
        return None
    return None


def _domains(asked: Question, supply: Supply, limits: Limits | None) -> set[str]:
    """Return the domains that would hold the podset if it were alone."""
    pods: dict[str, int] = {}
    for node in supply.nodes.values():
        for name in {fit.domain(asked, node.node, offer) for offer in node.offers.values()} - {""}:
            room = fit.room(asked, node, within=name, limits=limits)
            if isinstance(room, Room):
                pods[name] = pods.get(name, 0) + room.pods
    return {name for name, count in pods.items() if count >= asked.podset.count}


class _Packing:
    """One choice of domains: fill node after node."""

    def __init__(
        self,
        asked: Sequence[Question],
        chosen: Sequence[str],
        supply: Supply,
        limits: Limits | None,
        budget: "itertools.count[int]",
        steps: int,
    ) -> None:
        self._asked = asked
        self._chosen = chosen
        self._limits = limits
        self._budget = budget
        self._steps = steps
        self._dead: set[tuple[int, tuple[int, ...]]] = set()
        alone = {
            name: tuple(self._alone(node, index) for index in range(len(asked))) for name, node in supply.nodes.items()
        }
        self._nodes = [supply.nodes[name] for name in sorted(alone) if any(alone[name])]
        self._ahead = [(0,) * len(asked)]
        for node in reversed(self._nodes):
            self._ahead.append(tuple(map(sum, zip(self._ahead[-1], alone[node.node], strict=True))))
        self._ahead.reverse()

    def place(self) -> tuple[Placement, ...] | None:
        """Return places for all podsets in the chosen domains, or None."""
        if len(self._nodes) > MAX_NODES:
            return None
        return self._from(0, tuple(question.podset.count for question in self._asked))

    def _alone(self, node: NodeOffers, index: int) -> int:
        room = fit.room(self._asked[index], node, within=self._chosen[index], limits=self._limits)
        return room.pods if isinstance(room, Room) else 0

    def _from(self, position: int, left: tuple[int, ...]) -> tuple[Placement, ...] | None:
        if not any(left):
            return ()
        if (position, left) in self._dead or any(
            need > most for need, most in zip(left, self._ahead[position], strict=True)
        ):
            return None
        for here, counts in self._fillings(self._nodes[position], left, 0, {}):
            if next(self._budget) >= self._steps:
                raise _OutOfSteps
            rest = self._from(position + 1, tuple(map(int.__sub__, left, counts)))
            if rest is not None:
                return here + rest
        self._dead.add((position, left))
        return None

    def _fillings(
        self, node: NodeOffers, left: tuple[int, ...], index: int, used: Mapping[tuple[str, str], int]
    ) -> Iterator[tuple[tuple[Placement, ...], tuple[int, ...]]]:
        """Yield the ways to fill a node, fullest first; the last podset takes all it can."""
        if index == len(self._asked):
            yield (), ()
            return
        room = fit.room(self._asked[index], node, used, within=self._chosen[index], limits=self._limits)
        most = min(left[index], room.pods) if isinstance(room, Room) else 0
        fewest = most if index == len(self._asked) - 1 else 0
        for pods in range(most, fewest - 1, -1):
            options = room.options if isinstance(room, Room) else ()
            here = tuple(fill(self._asked[index], options, node.node, pods))
            after = dict(used)
            for placement in here:
                key = (placement.node, placement.resource)
                after[key] = after.get(key, 0) + placement.units
            for more, counts in self._fillings(node, left, index + 1, after):
                yield here + more, (pods, *counts)


def fill(asked: Question, options: Sequence[Option], node: str, pods: int) -> Iterator[Placement]:
    """Put pods on a node's options, smallest shape first."""
    for option in options:
        taken = min(pods, option.pods)
        if taken:
            yield Placement(
                podset=asked.podset.name,
                node=node,
                resource=option.offer.resource,
                pods=taken,
                units_per_pod=asked.podset.units_per_pod,
                forecast=option.offer.devices[: taken * asked.podset.units_per_pod],
            )
            pods -= taken
