"""Which nodes are near each other: the domains of one topology level, as a code for each row.

Levels, finest first: island and node (one node), clique (one NVLink fabric, as the agents measured it), the configured
levels of the network (node labels), and everything.

Invariant: a node that lacks what a level goes by is a domain of its own, never one of a shared "unknown". NVLink reach is
taken from the feed and never from a label, which may be stale (topology.md section 4).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from admitter.core.table import Numbers, Table
from admitter.model.decision import Policy
from admitter.model.gang import Gang, Level

EVERYTHING = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    codes: Numbers
    """By row; not negative."""
    name: Callable[[int], str]
    """Of a row's domain."""


def levels(policy: Policy) -> tuple[str, ...]:
    """Return the levels that are searched, finest first."""
    return (Level.NODE, Level.CLIQUE, *(level.name for level in policy.levels), EVERYTHING)


def unknown(gang: Gang, policy: Policy) -> str:
    """Return a level that the gang asks for and nobody has configured; empty: none."""
    known = {Level.ISLAND, *levels(policy)}
    return next((p.topology.level for p in gang.podsets if p.topology and p.topology.level not in known), "")


def of_level(level: str, resource: str, table: Table, policy: Policy) -> Domains:
    """Return the domains of a level for who asks for a resource."""
    rows = np.arange(len(table.names), dtype=np.int64)
    if level == EVERYTHING:
        return Domains(codes=np.zeros_like(rows), name=lambda _: "")
    labels = tuple(entry.label for entry in policy.levels)
    names = [entry.name for entry in policy.levels]
    if level in names and table.marks is not None:
        codes, texts = table.marks.domains(labels[names.index(level) :])
        return Domains(codes=codes, name=lambda row: texts[codes[row]])
    traits = table.traits.get(resource)
    if level == Level.CLIQUE and traits is not None and (traits.clique >= 0).any():
        known = table.texts.texts
        cliques = np.where(traits.clique >= 0, traits.clique, len(known) + rows)
        return Domains(
            codes=cliques, name=lambda row: known[cliques[row]] if traits.clique[row] >= 0 else table.names[row]
        )
    return Domains(codes=rows, name=lambda row: table.names[row])
