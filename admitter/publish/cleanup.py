"""Take away everything that Muster has put on the cluster's Nodes: for an uninstall, or with no admitter alive.

In: a client with a person's rights. Out: a line for each thing that was taken away or had to stay.

Invariants: nothing of others is touched: a condition of our name that another field manager owns stays, and is named.
Repeating it is harmless. One Node that fails does not keep the others from being cleaned.

Why not the leader's own way, an apply with nothing in it: that needs the server's memory of who owns what, and somebody
may have wiped it.
"""

import dataclasses
import datetime
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import lightkube
from lightkube.models import meta_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.model.nodestatus import TaintChange
from admitter.publish import nodes
from admitter.publish.nodes import Failed, NodeWriter, Outcome, Sent
from muster.model import labels
from muster.model.nodeconditions import FIELD_MANAGER, ConditionType

TRIES = 5
"""At a taint, while somebody else keeps changing the Node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One line."""

    node: str
    text: str
    is_left: bool = False
    """It had to stay."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is ours on one Node."""

    node: str
    uid: str
    conditions: tuple[str, ...]
    foreign: tuple[str, ...]
    """Conditions of our names that another writer owns."""
    taint: str | None


async def clean(
    client: lightkube.AsyncClient, utc: Callable[[], datetime.datetime], *, is_trial: bool
) -> AsyncIterator[Done]:
    """Yield a line for each thing that is taken away (on trial: would be), or has to stay."""
    # A person leads nobody and is led by nobody.
    writer = NodeWriter(client, lambda _: True, utc, reporter="cleanup")
    async for node in client.list(core.Node):
        found = find(node)
        for name in found.foreign:
            yield Done(node=found.node, text=f"condition {name} belongs to another writer", is_left=True)
        if found.conditions:
            sent = Sent(outcome=Outcome.DONE) if is_trial else await _remove_conditions(client, found)
            yield _line(found.node, f"conditions {', '.join(found.conditions)}", sent, is_trial=is_trial)
        if found.taint is not None:
            sent = Sent(outcome=Outcome.DONE) if is_trial else await _remove_taint(writer, found)
            yield _line(found.node, f"taint {labels.UNTRUSTED.full}={found.taint}", sent, is_trial=is_trial)


def find(node: core.Node) -> Found:
    """Return what is ours on a Node."""
    assert node.metadata is not None
    listed = (node.status.conditions if node.status is not None else None) or []
    present = {condition.type for condition in listed} & set(ConditionType)
    foreign = present & set(_owned_by_others(node.metadata.managedFields or ()))
    taints = (node.spec.taints if node.spec is not None else None) or []
    return Found(
        node=node.metadata.name or "",
        uid=node.metadata.uid or "",
        conditions=tuple(sorted(present - foreign)),
        foreign=tuple(sorted(foreign)),
        taint=next((taint.value or "" for taint in taints if taint.key == labels.UNTRUSTED.full), None),
    )


def _owned_by_others(entries: Iterable[meta_v1.ManagedFieldsEntry]) -> Iterable[str]:
    for entry in entries:
        if entry.manager != FIELD_MANAGER:
            fields: Mapping[str, Any] = entry.fieldsV1 or {}
            owned = fields.get("f:status", {}).get("f:conditions", {})
            yield from (name.value for name in ConditionType if f'k:{{"type":"{name.value}"}}' in owned)


async def _remove_conditions(client: lightkube.AsyncClient, found: Found) -> Sent:
    body = {"status": {"conditions": [{"type": name, "$patch": "delete"} for name in found.conditions]}}
    try:
        await client.patch(
            core.NodeStatus, found.node, body, patch_type=PatchType.STRATEGIC, field_manager=FIELD_MANAGER
        )
    except Failed as error:
        return nodes.failure(error)
    return Sent(outcome=Outcome.DONE)


async def _remove_taint(writer: NodeWriter, found: Found) -> Sent:
    change = TaintChange(node=found.node, uid=found.uid, value="", why="cleanup")
    sent = Sent(outcome=Outcome.CONFLICT)
    for _ in range(TRIES):
        sent = await writer.change_taint(change, 0)
        if sent.outcome is not Outcome.CONFLICT:
            break
    return sent


def _line(node: str, what: str, sent: Sent, *, is_trial: bool) -> Done:
    if sent.outcome is Outcome.GONE:
        return Done(node=node, text=f"{what}: the node is gone")
    if sent.outcome is not Outcome.DONE:
        return Done(node=node, text=f"{what}: {sent.detail or sent.outcome.value}", is_left=True)
    return Done(node=node, text=f"{'would remove' if is_trial else 'removed'} {what}")
