"""Take away everything that Muster has put on the cluster's Nodes: for an uninstall, or with no admitter alive.

In: a client with a person's rights. Out: a line for each thing that was taken away or had to stay.

Invariants: nothing of others is touched: a condition of our name that another field manager owns stays, and is named.
Repeating it is harmless. One Node that fails does not keep the others from being cleaned.

Why two ways: an apply with nothing in it takes away what we own and nobody else does, by the server's own memory; what nobody
owns, because somebody has wiped that memory, is deleted.
"""

import dataclasses
import datetime
from collections.abc import AsyncIterator, Callable, Mapping

import lightkube
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.core.keepnodes import KeepChange
from admitter.model.nodestatus import TaintChange
from admitter.publish import nodes
from admitter.publish.nodes import Failed, NodeWriter, Outcome, Sent
from muster.model import codec, keptnodes, labels
from muster.model.nodeconditions import FIELD_MANAGER, ConditionType

_DONE = Sent(outcome=Outcome.DONE)
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
    """What is of our names on one Node."""

    node: str
    uid: str
    ours: frozenset[str]
    """Conditions that we own, or nobody."""
    foreign: frozenset[str]
    """Conditions that somebody else owns, and not we."""
    taint: str | None
    kept: Mapping[str, str | None] = codec.mapping()
    """Annotations of autoscalers that we have set, each to be taken away."""


async def clean(
    client: lightkube.AsyncClient, utc: Callable[[], datetime.datetime], *, is_trial: bool
) -> AsyncIterator[Done]:
    """Yield a line for each thing that is taken away (on trial: would be), or has to stay."""
    # A person leads nobody and is led by nobody.
    writer = NodeWriter(client, lambda _: True, utc, reporter="cleanup")
    async for node in client.list(core.Node):
        found = find(node)
        if found.ours:
            sent, left = (_DONE, found.foreign) if is_trial else await _remove_conditions(client, found, utc())
            yield _line(found.node, f"conditions {', '.join(sorted(found.ours - left))}", sent, is_trial=is_trial)
        else:
            left = found.foreign
        for name in sorted(left):
            yield Done(node=found.node, text=f"condition {name} belongs to another writer", is_left=True)
        if found.taint is not None:
            sent = _DONE if is_trial else await _remove_taint(writer, found)
            yield _line(found.node, f"taint {labels.UNTRUSTED.full}={found.taint}", sent, is_trial=is_trial)
        if found.kept:
            sent = _DONE if is_trial else await _remove_annotations(writer, found)
            yield _line(found.node, f"annotations {', '.join(sorted(found.kept))}", sent, is_trial=is_trial)


def find(node: core.Node | core.NodeStatus) -> Found:
    """Return what is of our names on a Node."""
    assert node.metadata is not None
    listed = (node.status.conditions if node.status is not None else None) or []
    present = {condition.type for condition in listed} & set(ConditionType)
    owners = {name.value: managers for name, managers in nodes.owners(node.metadata).items() if name in present}
    annotations = node.metadata.annotations or {}
    taints = (node.spec.taints if node.spec is not None else None) or []
    return Found(
        node=node.metadata.name or "",
        uid=node.metadata.uid or "",
        ours=frozenset(name for name, managers in owners.items() if FIELD_MANAGER in managers or not managers),
        foreign=frozenset(name for name, managers in owners.items() if managers and FIELD_MANAGER not in managers),
        taint=next((taint.value or "" for taint in taints if taint.key == labels.UNTRUSTED.full), None),
        kept=keptnodes.released(annotations) if keptnodes.is_marked(annotations) else codec.EMPTY,
    )


async def _remove_conditions(
    client: lightkube.AsyncClient, found: Found, now: datetime.datetime
) -> tuple[Sent, frozenset[str]]:
    """Let go of what we own, and delete what nobody owns; return how it went and which conditions are there still."""
    body = nodes.applied(found.node, found.uid, {}, now)
    try:
        after = await client.patch(
            core.NodeStatus, found.node, body, patch_type=PatchType.APPLY, field_manager=FIELD_MANAGER
        )
        left = find(after)
        orphans = [{"type": name, "$patch": "delete"} for name in sorted(left.ours)]
        if orphans:
            body = {"status": {"conditions": orphans}}
            after = await client.patch(
                core.NodeStatus, found.node, body, patch_type=PatchType.STRATEGIC, field_manager=FIELD_MANAGER
            )
    except Failed as error:
        return nodes.failure(error), frozenset()
    left = find(after)
    return _DONE, left.ours | left.foreign


async def _remove_taint(writer: NodeWriter, found: Found) -> Sent:
    change = TaintChange(node=found.node, uid=found.uid, value="", why="cleanup")
    sent = Sent(outcome=Outcome.CONFLICT)
    for _ in range(TRIES):
        sent = await writer.change_taint(change, 0)
        if sent.outcome is not Outcome.CONFLICT:
            break
    return sent


async def _remove_annotations(writer: NodeWriter, found: Found) -> Sent:
    change = KeepChange(node=found.node, uid=found.uid, resource_version=None, annotations=found.kept, is_kept=False)
    return await writer.annotate(change, 0)


def _line(node: str, what: str, sent: Sent, *, is_trial: bool) -> Done:
    if sent.outcome is Outcome.GONE:
        return Done(node=node, text=f"{what}: the node is gone")
    if sent.outcome is not Outcome.DONE:
        return Done(node=node, text=f"{what}: {sent.detail or sent.outcome.value}", is_left=True)
    return Done(node=node, text=f"{'would remove' if is_trial else 'removed'} {what}")
