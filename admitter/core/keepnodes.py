"""Which nodes an autoscaler is asked to leave alone: those that a gang has a lease on, or that are kept for one.

Input: Nodes as the API server has them, the nodes that are leased or reserved, settings. Output: the changes of annotations.

Leased and reserved nodes carry no pods yet and look empty: an autoscaler takes away in a minute what a gang waited an hour for.

Invariants: only nodes of the pools that settings name; `most` of them at the most, and those that are asked for already first. What
somebody else has written stays: our mark names the annotations that are ours, and no other is taken away.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from admitter.model.cluster import KubeNode
from muster.model import keptnodes, labels


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy:
    pools: tuple[tuple[str, str], ...] = ()
    """(label, value): nodes with one of these; empty: nobody is asked for anything."""
    most: int = 100
    """Nodes that are asked for at a time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeepChange:
    """What to write on one Node."""

    node: str
    uid: str
    resource_version: str | None
    """None: however it stands by then."""
    annotations: Mapping[str, str | None]
    """None: take it away."""
    is_kept: bool


def changes(
    nodes: Iterable[KubeNode], wanted: Collection[str], policy: KeepPolicy, *, may_let_go: bool
) -> tuple[KeepChange, ...]:
    """Return what is to be written; `may_let_go` is False while a new term does not know yet what is leased."""
    in_pools = [node for node in nodes if keptnodes.is_marked(node.object.annotations) or _is_in(node, policy)]
    kept = [node for node in in_pools if node.name in wanted and _is_in(node, policy)]
    # Those that have it keep it: a cap that is reached does not make marks wander.
    kept.sort(key=lambda node: (not keptnodes.is_marked(node.object.annotations), node.name))
    names = {node.name for node in kept[: policy.most]}
    found = []
    for node in sorted(in_pools, key=lambda node: node.name):
        has = keptnodes.is_marked(node.object.annotations)
        if node.name in names and not has:
            # Ours are those that nobody else has written.
            ours = {key: value for key, value in keptnodes.ANNOTATIONS.items() if key not in node.object.annotations}
            if ours:
                found.append(_change(node, {**ours, labels.KEPT.full: ",".join(sorted(ours))}, is_kept=True))
        elif has and node.name not in names and may_let_go:
            found.append(_change(node, keptnodes.released(node.object.annotations), is_kept=False))
    return tuple(found)


def _is_in(node: KubeNode, policy: KeepPolicy) -> bool:
    return any(node.object.labels.get(key) == value for key, value in policy.pools)


def _change(node: KubeNode, annotations: Mapping[str, str | None], *, is_kept: bool) -> KeepChange:
    return KeepChange(
        node=node.name,
        uid=node.uid,
        resource_version=node.resource_version,
        annotations=annotations,
        is_kept=is_kept,
    )
