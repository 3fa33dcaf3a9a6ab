"""Could a gang ever get a place: on the nodes as they are known, all idle, well, and open?

Input: a gang and the ideal supply. Output: the Shortfall that says why it never can, or None.

Invariant: "never" means no set of the known nodes, with every GPU they have free and working, nobody cordoned, and the
labels and lasting taints they carry now. A node that joins, a label that is set, make it ask again.

Why remembered: the ideal supply changes only when a node changes its size, its labels or its shape, and a queue asks for
the same few kinds of gangs on every pass.
"""

from collections.abc import Hashable

from admitter.core import admit, signature
from admitter.core.supply import Supply
from admitter.core.table import Table
from admitter.model.decision import Policy, Shortfall
from admitter.model.gang import Gang

_KEPT = 4096


class Prospects:
    """Of one fleet."""

    def __init__(self) -> None:
        self._table: Table | None = None
        self._known: dict[Hashable, Shortfall | None] = {}

    def never(self, gang: Gang, ideal: Supply, policy: Policy) -> Shortfall | None:
        """Return why the gang can never fit; None: it could."""
        if self._table is not ideal.table or len(self._known) >= _KEPT:
            self._table = ideal.table
            self._known.clear()
        kind = signature.of(gang)
        if kind not in self._known:
            plan = None if admit.fits(gang, ideal, policy) else admit.plan(gang, ideal, policy)
            self._known[kind] = plan if isinstance(plan, Shortfall) else None
        return self._known[kind]
