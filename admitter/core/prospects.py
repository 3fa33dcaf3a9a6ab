"""Could a gang ever get a place: on the nodes as they are known, all idle, well, and open?

Input: a gang and the ideal supply. Output: the Shortfall that says why it never can, or None.

Invariant: "never" means no set of the known nodes, with every GPU they have free and working, nobody cordoned, and the
labels and lasting taints they carry now. A node that joins, a label that is set, make it ask again.

Why remembered: the ideal supply changes only when a node changes its size, its labels or its shape, and a queue asks for
the same few kinds of gangs on every pass.

Why a share of the memory for each namespace: whoever may make pods may ask for as many kinds as he likes, and must not make
everybody else's be worked out anew. When a share is full, what the last pass did not ask for is forgotten at the next.
"""

import collections
import dataclasses
from collections.abc import Hashable

from admitter.core import admit, pack, signature
from admitter.core.supply import Supply
from admitter.core.table import Table
from admitter.model.decision import Policy, Shortfall
from admitter.model.gang import Gang

KEPT = 4096
KEPT_EACH = 1024
"""For one namespace."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    why: Shortfall | None
    is_certain: bool
    """No search for a place can find one."""
    namespace: str
    """Who asked first."""


class Prospects:
    """Of one fleet."""

    def __init__(self) -> None:
        self._table: Table | None = None
        self._known: dict[Hashable, _Known] = {}
        self._shares: collections.Counter[str] = collections.Counter()
        self._asked: set[Hashable] = set()
        """In this pass."""
        self._is_full = False
        self.has_learned = False
        """Something in this pass that the next one need not work out."""

    def begin(self, ideal: Supply) -> None:
        """Begin a pass over the queue."""
        if self._table is not ideal.table:
            self._table = ideal.table
            self._known.clear()
        elif self._is_full:
            self._known = {kind: known for kind, known in self._known.items() if kind in self._asked}
        self._shares = collections.Counter(known.namespace for known in self._known.values())
        self._asked.clear()
        self._is_full = self.has_learned = False

    def is_known(self, kind: Hashable) -> bool:
        """Return whether `never` has its answer already."""
        return kind in self._known

    def is_hopeless(self, kind: Hashable) -> bool:
        """Return whether it is known, and certain, that no gang of this kind can ever fit: nobody need look for a place."""
        known = self._known.get(kind)
        return known is not None and known.why is not None and known.is_certain

    def never(self, gang: Gang, ideal: Supply, policy: Policy, tally: pack.Tally | None = None) -> Shortfall | None:
        """Return why the gang can never fit; None: it could. `tally` counts the steps of searches."""
        if self._table is not ideal.table:
            self.begin(ideal)
        kind = signature.of(gang)
        self._asked.add(kind)
        if kind in self._known:
            return self._known[kind].why
        found = _work_out(gang, ideal, policy, tally)
        if len(self._known) < KEPT and self._shares[gang.namespace] < KEPT_EACH:
            self._known[kind] = found
            self._shares[gang.namespace] += 1
            self.has_learned = True
        else:
            self._is_full = True
        return found.why


def _work_out(gang: Gang, ideal: Supply, policy: Policy, tally: pack.Tally | None) -> _Known:
    plan = None if admit.fits(gang, ideal, policy, tally) else admit.plan(gang, ideal, policy, tally=tally)
    why = plan if isinstance(plan, Shortfall) else None
    # Where each podset fits alone, the search for all of them together may have ended before it came to their places.
    is_certain = why is not None and any(
        not admit.fits(dataclasses.replace(gang, podsets=(podset,)), ideal, policy) for podset in gang.podsets
    )
    return _Known(why=why, is_certain=is_certain, namespace=gang.namespace)
