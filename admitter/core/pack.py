"""Search exactly for a place for several podsets that compete for the same nodes.

Input: the podsets' questions, the room that each has alone, and the supply. Output: placements, or None.

Invariant: finds a place whenever one exists and the search ends within its bound of steps. The order of the search
depends on names alone, so the same question gets the same answer.

Why bounded: packing is hard in the worst case, and an admitter that thinks for a minute admits nobody. Past the bound the
answer is no, which is safe; best fit has already said the same.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from admitter.core import domains, fit
from admitter.core.fit import Question, Rooms
from admitter.core.supply import Supply
from admitter.core.table import Mask, Numbers
from admitter.model.decision import Policy
from admitter.model.lease import Placement

MAX_NODES = 300
"""The search goes one call deeper for each node; Python's stack ends near 1,000."""


class _OutOfSteps(Exception):
    pass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    row: int
    free: Mapping[str, int]
    """Units of every resource that a podset asks for."""
    most: tuple[Mapping[str, int], ...]
    """By podset: pods on each of its resources, if it were alone; empty: the node may not take it."""
    pods: tuple[int, ...]
    """By podset, if it were alone."""
    aligned: frozenset[str]
    """Resources whose devices the kubelet gives by NUMA node: each unit taken may cost another podset a whole pod."""


def search(
    asked: Sequence[Question],
    alone: Sequence[Rooms],
    supply: Supply,
    policy: Policy,
    budget: "Budget",
    *,
    rows: Numbers | None = None,
    most_nodes: int = MAX_NODES,
) -> tuple[Placement, ...] | None:
    """Return places for all podsets on so many nodes (of `rows`), or None if there are none or the bound was reached."""
    within = np.zeros(len(supply.table.names), dtype=np.bool_)
    within[slice(None) if rows is None else rows] = True
    masks = [
        list(_domains(question, rooms, within, supply, policy)) for question, rooms in zip(asked, alone, strict=True)
    ]
    try:
        for chosen in itertools.product(*masks):
            budget.spend()
            packing = _Packing(asked, alone, chosen, supply, budget)
            if (found := packing.place(most_nodes)) is not None:
                return found
    except _OutOfSteps:
        return None
    return None


class Tally:
    """Steps that were taken, in all searches that share it."""

    def __init__(self) -> None:
        self.steps = 0


class Budget:
    """Steps that may still be taken."""

    def __init__(self, steps: int, tally: Tally | None = None) -> None:
        self.steps = steps
        self._tally = Tally() if tally is None else tally

    def spend(self) -> None:
        """Take one step, if there is one left."""
        if self.steps <= 0:
            raise _OutOfSteps
        self.steps -= 1
        self._tally.steps += 1


def _domains(asked: Question, rooms: Rooms, within: Mask, supply: Supply, policy: Policy) -> Iterator[Mask]:
    """Yield the rows of each domain that would hold the podset if it were alone."""
    codes = domains.of_level(asked.level, asked.resource, supply.table, policy).codes
    sums = np.bincount(codes, weights=np.where(within, rooms.pods, 0))
    enough = sums[codes] >= asked.podset.count
    for code in dict.fromkeys(codes[enough & within].tolist()):
        yield (codes == code) & within


class _Packing:
    """One choice of domains: fill node after node."""

    def __init__(
        self,
        asked: Sequence[Question],
        alone: Sequence[Rooms],
        chosen: Sequence[Mask],
        supply: Supply,
        budget: Budget,
    ) -> None:
        self._asked = asked
        self._alone = alone
        self._supply = supply
        self._budget = budget
        self._dead: set[tuple[int, int, tuple[int, ...]]] = set()
        useful = np.logical_or.reduce([mask & (rooms.pods > 0) for mask, rooms in zip(chosen, alone, strict=True)])
        self._rows = np.flatnonzero(useful)
        self._nodes = [self._node(int(row), chosen) for row in self._rows[: MAX_NODES + 1]]
        self._ahead = [(0,) * len(asked)]
        for node in reversed(self._nodes):
            self._ahead.append(tuple(map(sum, zip(self._ahead[-1], node.pods, strict=True))))
        self._ahead.reverse()

    def place(self, most_nodes: int) -> tuple[Placement, ...] | None:
        """Return places for all podsets in the chosen domains, or None."""
        if len(self._nodes) > MAX_NODES:
            return None
        return self._from(0, most_nodes, tuple(question.podset.count for question in self._asked))

    def _node(self, row: int, chosen: Sequence[Mask]) -> _Node:
        most = []
        pods = []
        names: set[str] = set()
        for question, rooms, mask in zip(self._asked, self._alone, chosen, strict=True):
            may = bool(mask[row]) and rooms.pods[row] > 0
            options = (
                {option.resource: int(option.pods[row]) for option in rooms.options if option.pods[row]} if may else {}
            )
            most.append(options)
            pods.append(int(rooms.pods[row]) if may else 0)
            names |= options.keys() | {resource for resource, _ in fit.beside(question, self._supply.table)}
        traits = self._supply.table.traits
        aligned = frozenset(name for name in names & traits.keys() if traits[name].numa_size[row])
        risky = any(question.takes_risk for question in self._asked)
        free = {name: int(self._supply.table.column(name, takes_risk=risky)[row]) for name in names}
        return _Node(row=row, free=free, most=tuple(most), pods=tuple(pods), aligned=aligned)

    def _from(self, position: int, nodes: int, left: tuple[int, ...]) -> tuple[Placement, ...] | None:
        """Place what is left on at most `nodes` of the nodes from a position on."""
        if not any(left):
            return ()
        key = (position, nodes, left)
        is_hopeless = any(need > most for need, most in zip(left, self._ahead[position], strict=True))
        if not nodes or is_hopeless or key in self._dead:
            return None
        for here, counts in self._fillings(self._nodes[position], left, 0, {}):
            self._budget.spend()
            rest = self._from(position + 1, nodes - any(counts), tuple(map(int.__sub__, left, counts)))
            if rest is not None:
                return here + rest
        if nodes < MAX_NODES and (rest := self._from(position + 1, nodes, left)) is not None:
            return rest
        self._dead.add(key)
        return None

    def _fillings(
        self, node: _Node, left: tuple[int, ...], index: int, used: Mapping[str, int]
    ) -> Iterator[tuple[tuple[Placement, ...], tuple[int, ...]]]:
        """Yield the ways to fill a node, fullest first; the last podset takes all it can."""
        if index == len(self._asked):
            yield (), ()
            return
        most = self._most(node, index, used)
        top = min(left[index], most)
        fewest = top if index == len(self._asked) - 1 else 0
        for pods in range(top, fewest - 1, -1):
            here, after = self._fill(node, index, pods, used)
            for more, counts in self._fillings(node, left, index + 1, after):
                yield here + more, (pods, *counts)

    def _most(self, node: _Node, index: int, used: Mapping[str, int]) -> int:
        question = self._asked[index]
        pods = sum(self._on(node, index, resource, used) for resource in node.most[index])
        for resource, need in fit.beside(question, self._supply.table) if pods else ():
            pods = min(pods, (node.free[resource] - used.get(resource, 0)) // need)
        return pods

    def _on(self, node: _Node, index: int, resource: str, used: Mapping[str, int]) -> int:
        """Return how many pods of a podset one resource of the node takes."""
        taken, most = used.get(resource, 0), node.most[index][resource]
        if resource in node.aligned:
            most = max(0, most - taken)
        return min(most, (node.free[resource] - taken) // self._asked[index].podset.units_per_pod)

    def _fill(
        self, node: _Node, index: int, pods: int, used: Mapping[str, int]
    ) -> tuple[tuple[Placement, ...], Mapping[str, int]]:
        question = self._asked[index]
        after, placements, left = dict(used), [], pods
        for resource in node.most[index]:
            taken, first = min(left, self._on(node, index, resource, used)), after.get(resource, 0)
            if taken:
                placements.append(fit.place(question, self._supply, resource, node.row, taken, first))
                after[resource] = first + taken * question.podset.units_per_pod
                left -= taken
        for resource, need in fit.beside(question, self._supply.table):
            after[resource] = after.get(resource, 0) + need * pods
        return tuple(placements), after
