"""What a decision sees: the nodes' offers and the same by column, from one version of the view.

Invariant: a Supply never changes; what is taken or given back makes another one. The offers stay as the view has them,
so that an explanation can tell what a node gives from what this pass has taken of it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from admitter.core.table import Numbers, Table
from admitter.model.gang import Gang
from admitter.model.lease import Placement
from admitter.model.nodefacts import POD_SLOTS
from admitter.model.supply import NodeOffers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Supply:
    version: int
    """Of the ClusterView it was made from."""
    nodes: Mapping[str, NodeOffers]
    table: Table
    start: Table
    """As it was before this pass took or set aside anything."""

    def less(self, gang: Gang, placements: Iterable[Placement]) -> "Supply":
        """Return the supply without what new placements of the gang take."""
        taken = [(resource, rows, -units) for resource, rows, units in amounts(gang, placements, self.table)]
        return dataclasses.replace(self, table=self.table.changed(taken))

    def least(self, other: "Supply") -> "Supply":
        """Return what is in both."""
        return dataclasses.replace(self, table=self.table.least(other.table))


def amounts(gang: Gang, placements: Iterable[Placement], table: Table) -> Iterator[tuple[str, Numbers, Numbers]]:
    """Yield (resource, rows, units) that the placements take: devices, and what the pods ask for beside them."""
    podsets = {podset.name: podset for podset in gang.podsets}
    grouped: dict[str, list[tuple[int, int]]] = {}
    for place in placements:
        row = table.row.get(place.node)
        if row is None:
            continue
        grouped.setdefault(place.resource, []).append((row, place.units))
        beside = podsets[place.podset].requests if place.podset in podsets else {}
        for resource, units in {**beside, POD_SLOTS: 1}.items():
            grouped.setdefault(resource, []).append((row, units * place.pods))
    for resource, pairs in grouped.items():
        yield resource, np.array([row for row, _ in pairs]), np.array([units for _, units in pairs], dtype=np.int64)
