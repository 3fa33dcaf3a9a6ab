"""When an opinion becomes a condition on the Node: (the agent's word, what is on the Node, history, now) -> one write or none.

Input: `Word`, `Facts`, the node's `NodeHistory`, policy. Output: a `Look`: the next history, and the `Write` that is due. The
caller tells of an attempt with `sent`; nothing else moves the history.

Rules. A turn to False is written at once: the agent held it down long enough. Everything else must be asked for during
`settle_seconds` without a break, so a condition cannot flap faster than that. A change of reason or message alone waits
`refresh_seconds` since the last write. What is on the Node already is never written again, by a new leader neither.

Invariant: whatever the feed, the API server and other writers do, one node gets at most `burst + T / seconds_per_write`
attempts in T seconds, and once all is quiet the Node says what the feed says.

Not here: what a report means (conditions.py), the taint (taints.py), the fleet's own limit and failed requests
(publish/nodeloop.py).
"""

import dataclasses
import datetime
from collections.abc import Mapping

from admitter.core import conditions, pace
from admitter.core.conditions import STANDS, Opinion
from admitter.core.pace import Bucket
from admitter.model.cluster import KubeNode
from admitter.model.nodestatus import Condition, Conditions, Facts, Note, StatusPolicy, Word, Write
from muster.model import codec, labels
from muster.model.nodeconditions import ConditionType, Standing, Status

_TYPES, _STATUSES = frozenset(ConditionType), frozenset(Status)
_NOTHING_KNOWN = frozenset({Standing.AGENT_SILENT, Standing.SETTLING})
"""Reasons that cannot stand once the agent speaks."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """What is remembered of one node between two looks at it."""

    asked: Mapping[ConditionType, tuple[Status, float]] = codec.mapping()
    """The status that the feed asks for, and since when."""
    written_at: float | None = None
    bucket: Bucket
    noted: Mapping[str, float] = codec.mapping()
    """Events of late, and when each was sent."""


def facts_of(node: KubeNode, foreign: frozenset[ConditionType] = frozenset()) -> Facts:
    """Return what is ours on a Node. A condition whose status is no status is none: it is written anew."""
    return Facts(
        node=node.name,
        uid=node.uid,
        conditions={
            ConditionType(item.type): Condition(
                status=Status(item.status), reason=item.reason, message=item.message, since=item.since
            )
            for item in node.conditions
            if item.type in _TYPES and item.type not in foreign and item.status in _STATUSES
        },
        taint=next((taint.value for taint in node.object.taints if taint.key == labels.UNTRUSTED.full), ""),
        foreign=foreign,
    )


def fresh(policy: StatusPolicy, now: float) -> NodeHistory:
    """Return the history of a node that nothing is known of."""
    return NodeHistory(bucket=pace.full(policy.burst, policy.seconds_per_write, now))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is the same for every node of one look."""

    now: float
    """Admitter's monotonic clock."""
    utc: datetime.datetime
    held: frozenset[str] = frozenset()
    """Nodes whose last good decision stands (breaker.py)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at a node comes to."""

    history: NodeHistory
    write: Write | None = None
    is_at_rest: bool
    """The Node says what it should: with the same word and facts nothing can become due by waiting."""


def look(word: Word, facts: Facts, history: NodeHistory, policy: StatusPolicy, moment: Moment) -> Look:
    """Return the history from now on, and what is due on the Node."""
    wanted = _wanted(word, facts, policy, is_held=facts.node in moment.held)
    if wanted is None:
        return Look(history=history, is_at_rest=True)
    asked = {name: _since(history, name, condition, moment.now) for name, condition in wanted.items()}
    history = dataclasses.replace(history, asked=asked)
    if not wanted:
        # A node that has no GPU any more: what we said of it goes.
        is_due = bool(facts.conditions) and _is_rested(history, policy, moment.now)
        write = Write(node=facts.node, uid=facts.uid, conditions={}) if is_due else None
    else:
        write = _write(wanted, facts, history, policy, moment)
    if write is not None and history.bucket.available(moment.now) < 1:
        write = None
    is_same = all(condition.says_the_same(facts.conditions.get(name)) for name, condition in wanted.items())
    return Look(history=history, write=write, is_at_rest=is_same and (bool(wanted) or not facts.conditions))


def sent(history: NodeHistory, write: Write, policy: StatusPolicy, now: float) -> NodeHistory:
    """Return the history after an attempt at a write, whatever became of it."""
    bucket = history.bucket.take(now)
    assert bucket is not None, "look() offers no write without a token"
    noted = {key: at for key, at in history.noted.items() if now - at < policy.note_gap_seconds}
    noted |= {_key(note): now for note in write.notes}
    return dataclasses.replace(history, bucket=bucket, written_at=now, noted=noted)


def _wanted(word: Word, facts: Facts, policy: StatusPolicy, *, is_held: bool) -> Conditions | None:
    """Return the conditions that the Node should have; None: nobody knows yet."""
    if word.silent_seconds > policy.silent_seconds:
        if word.report is None and not facts.conditions:
            return None
        text = f"the agent was not heard for over {policy.silent_seconds:g} s: what it said last no longer counts"
        silent = Condition(status=Status.UNKNOWN, reason=Standing.AGENT_SILENT.value, message=text)
        opinions: Mapping[ConditionType, Opinion] = dict.fromkeys(ConditionType, silent)
    elif word.report is None:
        return None
    else:
        opinions = conditions.opinions(word.report)
    return {
        name: _resolved(opinion, facts.conditions.get(name), is_held=is_held)
        for name, opinion in opinions.items()
        if name not in facts.foreign
    }


def _resolved(opinion: Opinion, current: Condition | None, *, is_held: bool) -> Condition:
    """Return what an opinion comes to, beside what is on the Node."""
    if is_held and (opinion is STANDS or opinion.status is not Status.TRUE):
        text = "too many nodes changed at once; Muster's last good decision stands (docs/conditions.md)"
        return current or Condition(status=Status.UNKNOWN, reason=Standing.BREAKER_HOLDING.value, message=text)
    if opinion is not STANDS:
        return opinion
    if current is not None and current.reason not in _NOTHING_KNOWN:
        return current
    text = "something passing is under way; the verdict follows"
    return Condition(status=Status.UNKNOWN, reason=Standing.SETTLING.value, message=text)


def _since(history: NodeHistory, name: ConditionType, condition: Condition, now: float) -> tuple[Status, float]:
    known = history.asked.get(name)
    return known if known is not None and known[0] is condition.status else (condition.status, now)


def _write(
    wanted: Conditions, facts: Facts, history: NodeHistory, policy: StatusPolicy, moment: Moment
) -> Write | None:
    """Return the write of all our conditions, if one of them is due."""
    result: dict[ConditionType, Condition] = {}
    notes: list[Note] = []
    due = urgent = False
    for name, condition in wanted.items():
        current = facts.conditions.get(name)
        if condition.says_the_same(current):
            assert current is not None
            result[name] = current
        elif current is None or current.status is not condition.status:
            is_ripe = current is None or _is_ripe(history.asked[name], policy, moment.now)
            due |= is_ripe
            urgent |= is_ripe and condition.status is Status.FALSE
            result[name] = dataclasses.replace(condition, since=moment.utc) if is_ripe or current is None else current
        else:
            due |= _is_rested(history, policy, moment.now)
            result[name] = dataclasses.replace(condition, since=current.since)
        notes += _notes(name, result[name], current, history, policy, moment.now)
    if not due:
        return None
    return Write(node=facts.node, uid=facts.uid, conditions=result, notes=tuple(notes), is_urgent=urgent)


def _is_ripe(asked: tuple[Status, float], policy: StatusPolicy, now: float) -> bool:
    status, since = asked
    return status is Status.FALSE or now - since >= policy.settle_seconds


def _is_rested(history: NodeHistory, policy: StatusPolicy, now: float) -> bool:
    return history.written_at is None or now - history.written_at >= policy.refresh_seconds


def _notes(
    name: ConditionType,
    after: Condition,
    before: Condition | None,
    history: NodeHistory,
    policy: StatusPolicy,
    now: float,
) -> list[Note]:
    """Return the Event of a change; a first word that all is well is no news, and the same news is told once a while."""
    is_good = after.status is Status.TRUE and after.reason != Standing.DEGRADED
    if before is None and is_good:
        return []
    if before is not None and (before.status, before.reason) == (after.status, after.reason):
        return []
    note = Note(
        reason=after.reason,
        action=f"Set{name.value}",
        text=f"{name.value} is {after.status.value}: {after.message}"[:1024],
        is_warning=not is_good,
    )
    told = history.noted.get(_key(note))
    return [] if told is not None and now - told < policy.note_gap_seconds else [note]


def _key(note: Note) -> str:
    return f"{note.action} {note.reason} {note.is_warning}"
