"""What the nodes can give, by column: one number a node for each resource.

Input: the offers of every node (core/offers.py). Output: a Table whose rows are the nodes by name, and the next Table from
the last and the few nodes that changed.

Invariant: a table never changes; `less`, `plus` and `renewed` return another one and share every column that is the same.
Two tables of the same nodes answer every question alike, however they came about.

Why columns: a gang is held against 5,000 nodes in some ten numpy operations. A loop over nodes that does as much takes
40 ms (docs/benchmarks.md).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from admitter.core.marks import Marks
from admitter.model.supply import NodeOffers, Offer
from muster.model import codec

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Columns: TypeAlias = Mapping[str, Numbers]

_NUMA_NODES = 8
"""Most NUMA nodes with devices that are told apart; no machine of topology.md section 2 has more than 4."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the offers of one resource are, by row."""

    is_reported: Mask
    is_shared: Mask
    is_whole: Mask
    slices: Numbers
    memory: Numbers
    has_island: Mask
    """All free devices are of one NVLink island."""
    clique: Numbers
    """Code of the one clique of all free devices; -1: none."""
    grows: Mask
    reason: Numbers
    """Code of why a row gives nothing."""
    numa_size: Numbers
    """0: the kubelet does not care."""
    has_numa_islands: Mask
    is_single_numa: Mask
    numa: Numbers
    """Two-dimensional: row, NUMA node."""


class Names:
    """Codes of texts, given in order of appearance; shared by all tables of one line."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the text's code."""
        if text not in self._codes:
            self._codes[text] = len(self.texts)
            self.texts.append(text)
        return self._codes[text]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    names: tuple[str, ...]
    row: Mapping[str, int]
    units: Columns
    """By resource: what may be taken, by the node's agent where it reports the resource, by the API server elsewhere."""
    risky: Columns
    """Where it differs: what a podset may take that takes a risk."""
    traits: Mapping[str, Traits]
    marks: Marks | None
    """None: there is no API server, and nothing is known of labels and taints."""
    texts: Names

    def column(self, resource: str, *, takes_risk: bool = False) -> Numbers:
        """Return what is left of a resource; 0 where there is none of it."""
        found = self.risky.get(resource) if takes_risk else None
        if found is None:
            found = self.units.get(resource)
        return np.zeros(len(self.names), dtype=np.int64) if found is None else found

    def changed(self, amounts: Iterable[tuple[str, Numbers, Numbers]]) -> "Table":
        """Return the table with (resource, rows, units) added; units may be negative. Nothing falls below 0."""
        more: dict[str, Numbers] = {}
        for resource, rows, units in amounts:
            if resource in self.units:
                sums = more.setdefault(resource, np.zeros(len(self.names), dtype=np.int64))
                np.add.at(sums, rows, units)

        def added(columns: Columns) -> Columns:
            fresh = {name: _sealed(np.maximum(columns[name] + more[name], 0)) for name in more.keys() & columns.keys()}
            return codec.freeze({**columns, **fresh})

        return dataclasses.replace(self, units=added(self.units), risky=added(self.risky))

    def only(self, rows: Numbers) -> "Table":
        """Return the table with nothing on all other rows."""
        mask = np.zeros(len(self.names), dtype=np.int64)
        mask[rows] = 1
        units = {name: _sealed(column * mask) for name, column in self.units.items()}
        risky = {name: _sealed(column * mask) for name, column in self.risky.items()}
        return dataclasses.replace(self, units=codec.freeze(units), risky=codec.freeze(risky))

    def least(self, other: "Table") -> "Table":
        """Return the table with the smaller of both numbers everywhere; both are of the same nodes."""

        def smaller(mine: Columns, others: Columns) -> Columns:
            return codec.freeze(
                {
                    name: column if column is others[name] else _sealed(np.minimum(column, others[name]))
                    for name, column in mine.items()
                }
            )

        return dataclasses.replace(self, units=smaller(self.units, other.units), risky=smaller(self.risky, other.risky))


def of_nodes(nodes: Mapping[str, NodeOffers], *, has_facts: bool, is_ideal: bool, texts: Names | None = None) -> Table:
    """Lay a table out from nothing."""
    names = tuple(sorted(nodes))
    rows = range(len(names))
    texts = Names() if texts is None else texts
    resources = sorted({name for node in nodes.values() for name in (*node.offers, *node.rest)})
    reported = sorted({name for node in nodes.values() for name in node.offers})
    units, risky = {}, {}
    for resource in resources:
        amounts = [_amounts(nodes[name], resource) for name in names]
        units[resource] = _sealed(np.array([amount for amount, _ in amounts], dtype=np.int64))
        if any(amount != risk for amount, risk in amounts):
            risky[resource] = _sealed(np.array([risk for _, risk in amounts], dtype=np.int64))
    blank = {resource: _blank(len(names)) for resource in reported}
    traits = {
        resource: _described(blank[resource], rows, [nodes[name].offers.get(resource) for name in names], texts)
        for resource in reported
    }
    return Table(
        names=names,
        row=codec.freeze({name: row for row, name in enumerate(names)}),
        units=codec.freeze(units),
        risky=codec.freeze(risky),
        traits=codec.freeze(traits),
        marks=Marks(names, [nodes[name].facts for name in names], is_ideal=is_ideal) if has_facts else None,
        texts=texts,
    )


def renewed(
    table: Table,
    before: Mapping[str, NodeOffers],
    nodes: Mapping[str, NodeOffers],
    changed: Sequence[str],
    *,
    is_ideal: bool,
) -> Table:
    """Return the next table; `before` are the offers that `table` was laid out from, `changed` the nodes that differ."""
    if not changed and len(nodes) == len(before):
        return table
    new = {resource for name in changed for resource in (*nodes[name].offers, *nodes[name].rest)}
    reported = {resource for name in changed for resource in nodes[name].offers}
    if nodes.keys() != before.keys() or not new <= table.units.keys() or not reported <= table.traits.keys():
        return of_nodes(nodes, has_facts=table.marks is not None, is_ideal=is_ideal, texts=table.texts)
    rows = [table.row[name] for name in changed]
    pairs = [(before[name], nodes[name]) for name in changed]
    units = _rewritten(table.units, rows, pairs, lambda node, resource: _amounts(node, resource)[0])
    # Where no risk was told apart before, one that comes up needs a column of its own.
    risky = {
        resource: table.risky.get(resource, table.units[resource])
        for resource in new | table.risky.keys()
        if resource in table.risky
        or any(left != right for left, right in (_amounts(after, resource) for _, after in pairs))
    }
    risky = dict(_rewritten(risky, rows, pairs, lambda node, resource: _amounts(node, resource)[1]))
    return dataclasses.replace(
        table,
        units=units,
        risky=codec.freeze(risky),
        traits=_retold(table, rows, pairs),
        marks=_remarked(table, pairs, nodes, is_ideal=is_ideal),
    )


def _amounts(node: NodeOffers, resource: str) -> tuple[int, int]:
    """Return the units of a resource, without and with a risk."""
    offer = node.offers.get(resource)
    if offer is None:
        rest = node.rest.get(resource, 0)
        return rest, rest
    return offer.strict, max(offer.strict, offer.lenient)


Pairs: TypeAlias = list[tuple[NodeOffers, NodeOffers]]


def _rewritten(
    columns: Mapping[str, Numbers], rows: list[int], pairs: Pairs, amount: Callable[[NodeOffers, str], int]
) -> Columns:
    """Return the columns with the changed rows rewritten; a column without a new number is shared."""
    result = dict(columns)
    for resource, column in columns.items():
        fresh = [
            (row, new)
            for row, (_, after) in zip(rows, pairs, strict=True)
            if (new := amount(after, resource)) != column[row]
        ]
        if fresh:
            copied = column.copy()
            copied[[row for row, _ in fresh]] = [new for _, new in fresh]
            result[resource] = _sealed(copied)
    return codec.freeze(result)


def _retold(table: Table, rows: list[int], pairs: Pairs) -> Mapping[str, Traits]:
    result = dict(table.traits)
    for resource, traits in table.traits.items():
        told = [
            (row, new)
            for row, (old, after) in zip(rows, pairs, strict=True)
            if _traits(new := after.offers.get(resource)) != _traits(old.offers.get(resource))
        ]
        if told:
            result[resource] = _described(traits, [row for row, _ in told], [offer for _, offer in told], table.texts)
    return codec.freeze(result)


def _remarked(table: Table, pairs: Pairs, nodes: Mapping[str, NodeOffers], *, is_ideal: bool) -> Marks | None:
    if table.marks is None or all(_marked(old) == _marked(new) for old, new in pairs):
        return table.marks
    return Marks(table.names, [nodes[name].facts for name in table.names], is_ideal=is_ideal)


def _marked(node: NodeOffers) -> object:
    facts = node.facts
    return None if facts is None else (facts.labels, facts.taints, facts.is_cordoned)


def _traits(offer: Offer | None) -> object:
    return None if offer is None else (offer.shape, offer.grows, offer.reason)


def _blank(rows: int) -> Traits:
    return Traits(
        is_reported=np.zeros(rows, dtype=np.bool_),
        is_shared=np.zeros(rows, dtype=np.bool_),
        is_whole=np.zeros(rows, dtype=np.bool_),
        slices=np.zeros(rows, dtype=np.int64),
        memory=np.zeros(rows, dtype=np.int64),
        has_island=np.zeros(rows, dtype=np.bool_),
        clique=np.full(rows, -1, dtype=np.int64),
        grows=np.zeros(rows, dtype=np.bool_),
        reason=np.full(rows, -1, dtype=np.int64),
        numa_size=np.zeros(rows, dtype=np.int64),
        has_numa_islands=np.zeros(rows, dtype=np.bool_),
        is_single_numa=np.zeros(rows, dtype=np.bool_),
        numa=np.zeros((rows, _NUMA_NODES), dtype=np.int64),
    )


def _described(traits: Traits, rows: Iterable[int], offers: list[Offer | None], texts: Names) -> Traits:
    """Return the traits with some rows told anew."""
    copied: dict[str, Any] = {field.name: getattr(traits, field.name).copy() for field in dataclasses.fields(Traits)}
    for row, offer in zip(rows, offers, strict=True):
        values = _ABSENT if offer is None else _told(offer, texts)
        for name, value in values.items():
            copied[name][row] = value
    return Traits(**copied)


_ABSENT: Mapping[str, Any] = {field.name: 0 for field in dataclasses.fields(Traits)} | {"clique": -1, "reason": -1}


def _told(offer: Offer, texts: Names) -> Mapping[str, Any]:
    shape = offer.shape
    counts = (*shape.numa, *(0,) * _NUMA_NODES)[:_NUMA_NODES]
    return {
        "is_reported": True,
        "is_shared": shape.is_shared,
        "is_whole": shape.is_whole,
        "slices": shape.mig.compute_slices if shape.mig else 0,
        "memory": shape.mig.memory_bytes if shape.mig else 0,
        "has_island": bool(shape.island),
        "clique": texts.code(shape.clique) if shape.clique else -1,
        "grows": offer.grows,
        "reason": texts.code(offer.reason),
        "numa_size": shape.numa_size,
        "has_numa_islands": shape.has_numa_islands,
        "is_single_numa": shape.is_single_numa,
        "numa": counts,
    }


def _sealed(column: Numbers) -> Numbers:
    column.flags.writeable = False
    return column
