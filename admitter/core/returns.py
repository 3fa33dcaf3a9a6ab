"""What the fleet gets back when gangs end, holder after holder, in the order in which they say they end.

Input: the holdings, the settings, the clock. Output: for any number of holders, or any moment, the supply as it will be.

Invariant: those who have said when they end come first, by that moment; those who have not come after them, the oldest
first, and nothing that is promised counts on them. A node with a fault gives its devices back to nobody. Units of pods that
are no gang's are never waited for.

Why rows are remembered: what one gang holds is the same on every pass, and thousands of gangs hold something.
"""

import bisect
import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from admitter.core import holdings
from admitter.core import supply as supplies
from admitter.core.supply import Supply
from admitter.core.table import Numbers, Table
from admitter.model.decision import Policy
from admitter.model.queue import Holding
from muster.model.reading import Known, Unknown

_Part: TypeAlias = Mapping[str, tuple[Numbers, Numbers]]
"""Resource -> rows, units."""
_Joined: TypeAlias = Mapping[str, tuple[Numbers, Numbers, Numbers]]
"""Resource -> turns, rows, units."""


class Returns:
    """The rows of what gangs hold, from pass to pass."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._parts: dict[str, tuple[Holding, _Part]] = {}
        self._last: tuple[list[_Part], _Joined] = ([], {})

    def joined(self, held: Sequence[Holding], table: Table) -> _Joined:
        """Return by resource: the turns of the holders, the rows and the units that they give back, in order of turns."""
        parts = self._of(held, table)
        if len(parts) != len(self._last[0]) or not all(map(operator.is_, parts, self._last[0])):
            self._last = parts, _joined(parts)
        return self._last[1]

    def _of(self, held: Sequence[Holding], table: Table) -> list[_Part]:
        """Return what each holder gives back."""
        if self._names is not table.names:
            self._names, self._parts = table.names, {}
        before, self._parts = self._parts, {}
        for holding in held:
            name = holding.gang.full_name
            known = before.get(name)
            if known is None or known[0].placements is not holding.placements:
                amounts = supplies.amounts(holding.gang, holding.placements, table)
                known = holding, {resource: (rows, units) for resource, rows, units in amounts}
            self._parts[name] = known
        return [self._parts[holding.gang.full_name][1] for holding in held]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Future:
    """The supply as it will be, holder after holder."""

    supply: Supply
    """Now."""
    ends: Sequence[float]
    """Of the holders in order; inf: not known."""
    given: _Joined
    """Resource -> turns of the holders, rows and units that they give back, in order of turns."""
    kept: dict[int, Supply] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """What was worked out: every blocked gang of a pass asks for the same ends."""

    @property
    def holders(self) -> int:
        """All of them."""
        return len(self.ends)

    @property
    def declared(self) -> int:
        """Those that have said when they end."""
        return bisect.bisect_left(self.ends, math.inf)

    def after(self, holders: int) -> Supply:
        """Return the supply when so many holders, in order, have given back what they hold."""
        if holders not in self.kept:
            self.kept[holders] = self._after(holders)
        return self.kept[holders]

    def of(self, supply: Supply) -> "Future":
        """Return the same future of what is left of the supply."""
        return self if supply is self.supply else dataclasses.replace(self, supply=supply, kept={})

    def _after(self, holders: int) -> Supply:
        more = [(resource, *self._given(resource, holders)) for resource in self.given]
        return dataclasses.replace(self.supply, table=self.supply.table.changed(more))

    def _given(self, resource: str, holders: int) -> tuple[Numbers, Numbers]:
        """Return rows and units that the first holders give back."""
        turns, rows, units = self.given[resource]
        count, traits = int(np.searchsorted(turns, holders)), self.supply.table.traits.get(resource)
        if traits is None:
            return rows[:count], units[:count]
        gives = (traits.grows | ~traits.is_reported)[rows[:count]]
        return rows[:count], np.where(gives, units[:count], 0)

    def by(self, moment: float) -> Supply:
        """Return the supply when all have ended that say they end by then."""
        return self.after(bisect.bisect_right(self.ends, moment))

    def end_of(self, holders: int) -> float | None:
        """Return when so many holders have ended; None: one of them has not said when."""
        if holders > self.declared:
            return None
        return self.ends[holders - 1] if holders else -math.inf


def future(supply: Supply, held: Sequence[Holding], policy: Policy, now: float, returns: Returns) -> Future:
    """Return what becomes of a supply when its holders end."""
    ends = [_end(holding, policy, now) for holding in held]
    order = sorted(range(len(held)), key=lambda at: (ends[at], held[at].since, held[at].gang.full_name))
    given = returns.joined([held[at] for at in order], supply.table)
    return Future(supply=supply, ends=tuple(ends[at] for at in order), given=given)


def _end(holding: Holding, policy: Policy, now: float) -> float:
    match holdings.end(holding, policy.queue, now):
        case Known(moment):
            return moment
        case Unknown():
            return math.inf


def _joined(parts: Sequence[_Part]) -> _Joined:
    joined = {}
    for resource in sorted({name for part in parts for name in part}):
        found = [(turn, *part[resource]) for turn, part in enumerate(parts) if resource in part]
        turns = np.repeat([turn for turn, _, _ in found], [len(rows) for _, rows, _ in found])
        rows = np.concatenate([rows for _, rows, _ in found])
        joined[resource] = (turns, rows, np.concatenate([units for _, _, units in found]))
    return joined
