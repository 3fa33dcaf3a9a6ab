"""Accept or refuse one message of a node's feed.

In: what is known of the node, the stream's Hello, one decoded message, fleet time. Out: the node's next state, or a
Refusal that says why and what becomes of the stream.

Invariants: the state is always the last accepted report of the live epoch. A delta is accepted only on the very state
that it was computed from. A refusal changes nothing: it neither replaces a state nor makes it younger, so a node that
sends nonsense grows stale with its last good numbers.

Why epochs and not time: an agent's wall clock may jump, and a message may be late. (boot id, start counter) orders an
agent's lives without either.

Not here: whether a report is possible (check.py); sockets and streams (sources/feeds.py).
"""

import dataclasses
import enum

from admitter.core import check
from admitter.model.feedmessages import Heartbeat, Hello, Snapshot
from admitter.model.nodecapacity import Epoch, NodeState
from muster.model import delta as deltas
from muster.model import protocol
from muster.model import warmth as warmths
from muster.model.delta import Delta

_MAX_AGES = 64
_MAX_LEASES = 4096
_SHOWN = 8
"""Problems that a refusal names; the rest are counted."""


class Reason(enum.StrEnum):
    """Why a message was refused: a metric's label, and in a Resync the agent's hint."""

    UNKNOWN_BASE = "UnknownBase"
    BAD_SEQUENCE = "BadSequence"
    AWAITING_SNAPSHOT = "AwaitingSnapshot"
    MALFORMED = "Malformed"
    OVERSIZED = "Oversized"
    IMPOSSIBLE_REPORT = "ImpossibleReport"
    WRONG_NODE = "WrongNode"
    NO_NAME = "NoName"
    NOT_REVIEWED = "NotReviewed"
    NO_HELLO = "NoHello"
    OLD_EPOCH = "OldEpoch"
    PROTOCOL_SKEW = "ProtocolSkew"
    SUPERSEDED = "Superseded"


CURABLE = frozenset({Reason.UNKNOWN_BASE, Reason.BAD_SEQUENCE, Reason.AWAITING_SNAPSHOT})
"""A fresh Snapshot cures these; every other refusal ends the stream, and the agent's back-off paces the next try."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: Reason
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """The live epoch of a node, and the boots that are over."""

    live: Epoch
    ended_boots: tuple[str, ...] = ()
    """Newest first, bounded."""


_REMEMBERED_BOOTS = 16


def greet(lives: Lives | None, node: str, hello: Hello) -> Lives | Refusal:
    """Decide whether a stream may speak for the authenticated `node`; the result is the node's lives from now on."""
    if hello.node != node:
        return Refusal(reason=Reason.WRONG_NODE, detail=f"the certificate is {node}'s, the hello says {hello.node!r}")
    if not protocol.is_compatible(hello.protocol):
        return Refusal(
            reason=Reason.PROTOCOL_SKEW,
            detail=f"feed protocol {hello.protocol} is more than {protocol.MAX_SKEW} from {protocol.MINOR}",
        )
    if not hello.boot_id or max(len(hello.boot_id), len(hello.agent_version)) > check.MAX_NAME:
        return Refusal(reason=Reason.MALFORMED, detail="boot_id or agent_version is empty or too long")
    epoch = Epoch(boot_id=hello.boot_id, start_counter=hello.start_counter)
    if lives is None:
        return Lives(live=epoch)
    if epoch.boot_id in lives.ended_boots:
        return Refusal(reason=Reason.OLD_EPOCH, detail=f"boot {epoch.boot_id} is over")
    if epoch.boot_id != lives.live.boot_id:
        return Lives(live=epoch, ended_boots=(lives.live.boot_id, *lives.ended_boots)[:_REMEMBERED_BOOTS])
    if epoch.start_counter < lives.live.start_counter:
        return Refusal(
            reason=Reason.OLD_EPOCH,
            detail=f"start {epoch.start_counter} is over, {lives.live.start_counter} is live",
        )
    return dataclasses.replace(lives, live=epoch)


def accept_snapshot(
    known: NodeState | None, hello: Hello, message: Snapshot, *, now: float, term: int
) -> NodeState | Refusal:
    """Return the state that the snapshot starts; `known` is of the same epoch or None."""
    if message.sequence < 0 or (known is not None and message.sequence <= known.sequence):
        return Refusal(reason=Reason.BAD_SEQUENCE, detail=f"snapshot {message.sequence} is not new")
    if message.report.node != hello.node:
        return Refusal(reason=Reason.WRONG_NODE, detail=f"the report is on {message.report.node[:80]!r}")
    problems = (*check.check(message.report), *check.check_topology(message.topology), *_lease_problems(message))
    if message.warmth is not None:
        problems += warmths.problems(message.warmth)
    if problems:
        return _impossible(problems)
    return NodeState(
        node=hello.node,
        epoch=Epoch(boot_id=hello.boot_id, start_counter=hello.start_counter),
        sequence=message.sequence,
        report=message.report,
        topology=message.topology,
        heard_at=now,
        agent_version=hello.agent_version,
        leases=message.leases.leases,
        lease_term=message.leases.term,
        snapshot_term=term,
        warmth=message.warmth,
    )


def accept_delta(known: NodeState | None, message: Delta, *, now: float) -> NodeState | Refusal:
    """Return the state after the delta."""
    if known is None or message.base != known.sequence:
        return Refusal(reason=Reason.UNKNOWN_BASE, detail=f"base {message.base} is not the accepted state")
    if message.sequence != message.base + 1:
        return Refusal(reason=Reason.BAD_SEQUENCE, detail=f"sequence {message.sequence} does not follow {message.base}")
    problems = check.check_delta(message)
    if not problems and message.topology is not None and message.topology.generation < known.topology.generation:
        problems = (f"topology.generation: {message.topology.generation} is older than the known one",)
    if not problems:
        report = deltas.apply(known.report, message)
        problems = check.check_size(report)
    warmth = known.warmth
    if not problems and message.warmth is not None:
        warmth = warmths.apply(known.warmth or warmths.NOTHING, message.warmth)
        problems = warmths.problems(warmth)
    if problems:
        return _impossible(problems)
    return NodeState(
        node=known.node,
        epoch=known.epoch,
        sequence=message.sequence,
        report=report,
        topology=known.topology if message.topology is None else message.topology,
        heard_at=now,
        plane_age_ms=known.plane_age_ms,
        agent_version=known.agent_version,
        leases=known.leases,
        lease_term=known.lease_term,
        snapshot_term=known.snapshot_term,
        warmth=warmth,
    )


def accept_heartbeat(known: NodeState | None, message: Heartbeat, *, now: float) -> NodeState | Refusal:
    """Return the same state, heard just now."""
    if known is None or message.sequence != known.sequence:
        return Refusal(reason=Reason.BAD_SEQUENCE, detail=f"heartbeat of {message.sequence}, which is not accepted")
    if len(message.plane_age_ms) > _MAX_AGES or any(len(plane) > check.MAX_NAME for plane in message.plane_age_ms):
        return _impossible(("plane_age_ms: too many or too long",))
    return dataclasses.replace(known, heard_at=now, plane_age_ms=message.plane_age_ms)


def _lease_problems(message: Snapshot) -> tuple[str, ...]:
    if len(message.leases.leases) > _MAX_LEASES:
        return (f"leases: more than {_MAX_LEASES}",)
    if message.leases.term > check.MAX_COUNT:
        return ("leases.term: is out of bounds",)
    return tuple(
        f"leases[{index}]: units or names are out of bounds"
        for index, lease in enumerate(message.leases.leases)
        if not (0 <= lease.units <= check.MAX_COUNT and 0 <= lease.units_per_pod <= check.MAX_COUNT)
        or len(lease.pod_uids) > _MAX_LEASES
        or max(map(len, (lease.id, lease.gang, lease.resource, lease.podset, lease.request_id, *lease.pod_uids)))
        > check.MAX_NAME
    )


def _impossible(problems: tuple[str, ...]) -> Refusal:
    more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return Refusal(reason=Reason.IMPOSSIBLE_REPORT, detail="; ".join(problems[:_SHOWN]) + more)
