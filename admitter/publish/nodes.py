"""Write on Nodes: conditions by server-side apply, the taint by a patch, Events. One request each; nothing is decided here.

In: a Write, TaintChange or Note, and the term it was decided in. Out: `Sent`: what became of it, and the Node as it is
after it. No request raises.

Invariants. A request leaves only while the guard still allows its term. Conditions are applied under our own field manager
and without force: conditions of others are not in the request, and one of our names that somebody else made is theirs. What
was ours and somebody changed is taken back where the caller allows it, by force and with nothing else in the request.
The apply carries the Node's UID, so that a Node made anew under the name is left alone; the taint's patch carries the
resourceVersion of the Node that it was made from, so that nobody's taint is lost.

Not here: when and how often (nodeloop.py).
"""

import dataclasses
import datetime
import enum
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx2
import lightkube
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import events_v1 as events
from lightkube.types import PatchType

from admitter.core import microtime
from admitter.core.keepnodes import KeepChange
from admitter.model.nodestatus import Condition, Conditions, Note, TaintChange, Write
from muster.model import labels
from muster.model.nodeconditions import FIELD_MANAGER, ConditionType

CONTROLLER = "muster.dev/admitter"
EVENTS_NAMESPACE = "default"
"""Where Events about Nodes, which have no namespace, are kept and looked for."""
EFFECT = "NoSchedule"
_CONDITION_PATH = re.compile(r'\.status\.conditions\[type="([^"]+)"\]')
_FORGOTTEN = "before-first-apply"
"""Whom the API server takes for the owner of what nobody is known to own, at the first apply."""
_NOT_FOUND, _CONFLICT, _INVALID, _TOO_MANY = 404, 409, 422, 429
_FORBIDDEN, _UNKNOWN = 403, 401


class Outcome(enum.StrEnum):
    """What became of a request: what the caller does next follows from it."""

    DONE = "done"
    GONE = "gone"
    """There is no such Node any more."""
    CONFLICT = "conflict"
    """Somebody else changed or owns what we would write: look again, later."""
    REFUSED = "refused"
    """The API server will not have it from us: rights are missing."""
    INVALID = "invalid"
    """It finds fault with this one request."""
    BUSY = "busy"
    """No answer, or one that says later: everybody pauses."""
    NOT_LEADING = "not-leading"
    """It was not sent."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    outcome: Outcome
    detail: str = ""
    foreign: frozenset[ConditionType] = frozenset()
    """Conditions of our names that somebody else owns; they were left out."""
    retaken: frozenset[ConditionType] = frozenset()
    """Conditions of ours that somebody had changed; they are ours again."""


Failed = (httpx2.HTTPError, exceptions.ConfigError, OSError, ValueError)
"""What a request can raise: no answer, a refusal, an answer that cannot be decoded."""


class NodeWriter:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: lightkube.AsyncClient,
        may_write: Callable[[int], bool],
        utc: Callable[[], datetime.datetime],
        *,
        reporter: str,
    ) -> None:
        """`may_write` is the guard's; `reporter` is this admitter's name, which Events show."""
        self._client = client
        self._may_write = may_write
        self._utc = utc
        self._reporter = reporter

    async def set_conditions(self, write: Write, term: int, *, may_retake: bool = False) -> Sent:
        """Apply our conditions of one Node, in place of those that we applied before.

        `may_retake`: a condition that is ours, and that somebody has changed since, is made ours again.
        """
        sent = await self._send(term, lambda: self._apply(write.node, write.uid, write.conditions))
        if not sent.foreign:
            return sent
        owned = await self._owned(write.node) if may_retake else frozenset()
        retaken, foreign = sent.foreign & owned, sent.foreign - owned
        ours = {name: item for name, item in write.conditions.items() if name not in foreign}
        if not ours:
            return dataclasses.replace(sent, foreign=foreign)
        again = await self._send(term, lambda: self._apply(write.node, write.uid, ours, force=bool(retaken)))
        return dataclasses.replace(again, foreign=foreign, retaken=retaken, detail=again.detail or sent.detail)

    async def change_taint(self, change: TaintChange, term: int) -> Sent:
        """Read the Node, then put our taint on it or take it away."""
        return await self._send(term, lambda: self._patch_taint(change, term))

    async def annotate(self, change: KeepChange, term: int) -> Sent:
        """Put annotations on the Node as it was seen, or take them away."""
        body = {
            "metadata": {
                "uid": change.uid,
                "resourceVersion": change.resource_version,
                "annotations": dict(change.annotations),
            }
        }
        return await self._send(
            term, lambda: self._client.patch(core.Node, change.node, body, patch_type=PatchType.MERGE)
        )

    async def send_note(self, node: str, uid: str, note: Note, term: int) -> Sent:
        """Create an Event about the Node."""
        return await self._send(term, lambda: self._client.create(event(node, uid, note, self._utc(), self._reporter)))

    async def _send(self, term: int, request: Callable[[], Any]) -> Sent:
        if not self._may_write(term):
            return Sent(outcome=Outcome.NOT_LEADING)
        try:
            answer = await request()
        except Failed as error:
            return failure(error)
        return answer if isinstance(answer, Sent) else Sent(outcome=Outcome.DONE)

    async def _owned(self, node: str) -> frozenset[ConditionType]:
        """Return the conditions that were ours before somebody else wrote on them."""
        try:
            found = await self._client.get(core.Node, node)
        except Failed:
            return frozenset()
        assert found.metadata is not None
        owned = owners(found.metadata).items()
        return frozenset(name for name, managers in owned if FIELD_MANAGER in managers or not managers)

    async def _apply(self, node: str, uid: str, conditions: Conditions, *, force: bool = False) -> None:
        await self._client.patch(
            core.NodeStatus,
            node,
            applied(node, uid, conditions, self._utc()),
            patch_type=PatchType.APPLY,
            field_manager=FIELD_MANAGER,
            force=force,
        )

    async def _patch_taint(self, change: TaintChange, term: int) -> Sent | None:
        node = await self._client.get(core.Node, change.node)
        assert node.metadata is not None
        if change.uid and node.metadata.uid != change.uid:
            return Sent(outcome=Outcome.GONE, detail="another Node has its name")
        found = (node.spec.taints if node.spec is not None else None) or []
        wanted = tainted(found, change.value, self._utc())
        if wanted is None:
            return None
        # Reading took its time.
        if not self._may_write(term):
            return Sent(outcome=Outcome.NOT_LEADING)
        body = {
            "metadata": {"resourceVersion": node.metadata.resourceVersion},
            "spec": {"taints": [taint.to_dict() for taint in wanted] or None},
        }
        await self._client.patch(core.Node, change.node, body, patch_type=PatchType.MERGE, field_manager=FIELD_MANAGER)
        return None


def owners(metadata: meta_v1.ObjectMeta) -> dict[ConditionType, frozenset[str]]:
    """Return the field managers that own something of each condition of our names; none: it is nobody's, so ours."""
    found: dict[ConditionType, set[str]] = {name: set() for name in ConditionType}
    for entry in metadata.managedFields or ():
        if entry.manager == _FORGOTTEN:
            continue
        fields: Mapping[str, Any] = entry.fieldsV1 or {}
        listed = fields.get("f:status", {}).get("f:conditions", {})
        for name in ConditionType:
            if f'k:{{"type":"{name.value}"}}' in listed:
                found[name].add(entry.manager or "")
    return {name: frozenset(managers) for name, managers in found.items()}


def applied(node: str, uid: str, conditions: Conditions, now: datetime.datetime) -> dict[str, Any]:
    """Return the object of a server-side apply: our conditions and nothing else."""
    metadata = {"name": node} | ({"uid": uid} if uid else {})
    listed = [_form(name, conditions[name], now) for name in sorted(conditions)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"conditions": listed} if listed else {},
    }


def _form(name: ConditionType, condition: Condition, now: datetime.datetime) -> dict[str, str]:
    return {
        "type": name.value,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": _time(condition.since or now),
        "lastHeartbeatTime": _time(now),
    }


def tainted(found: Sequence[core_v1.Taint], value: str, now: datetime.datetime) -> list[core_v1.Taint] | None:
    """Return a Node's taints with ours of that value (empty: without it); None: they are so already."""
    others = [taint for taint in found if taint.key != labels.UNTRUSTED.full]
    ours = [taint for taint in found if taint.key == labels.UNTRUSTED.full]
    if not value:
        return others if ours else None
    if [(taint.value, taint.effect) for taint in ours] == [(value, EFFECT)]:
        return None
    added = ours[0].timeAdded if ours and ours[0].effect == EFFECT else now
    return [*others, core_v1.Taint(key=labels.UNTRUSTED.full, value=value, effect=EFFECT, timeAdded=added)]


def event(node: str, uid: str, note: Note, now: datetime.datetime, reporter: str) -> events.Event:
    """Return the Event of a note. Its name has the instant in it: equal notes at different times are different Events."""
    mark = hashlib.sha256(f"{note.action}{note.reason}{note.text}{now.isoformat()}".encode()).hexdigest()[:16]
    return events.Event(
        metadata=meta_v1.ObjectMeta(name=f"{node}.{mark}", namespace=EVENTS_NAMESPACE),
        # lightkube leaves the fraction of a whole second out, and the API server then refuses the time.
        eventTime=microtime.of(now),
        reportingController=CONTROLLER,
        reportingInstance=reporter[:128],
        action=note.action,
        reason=note.reason,
        note=note.text,
        type="Warning" if note.is_warning else "Normal",
        regarding=core_v1.ObjectReference(apiVersion="v1", kind="Node", name=node, uid=uid or None),
    )


def failure(error: BaseException) -> Sent:
    """Return what a failed request comes to."""
    status = 0
    if isinstance(error, exceptions.ApiError):
        status = error.status.code or error.response.status_code
    elif isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
    detail = f"{status or type(error).__name__}: {error}"[:300]
    causes = _causes(error)
    if status == _NOT_FOUND or (status == _INVALID and any(cause.field == "metadata.uid" for cause in causes)):
        return Sent(outcome=Outcome.GONE, detail=detail)
    if status == _CONFLICT:
        return Sent(outcome=Outcome.CONFLICT, detail=detail, foreign=_foreign(causes))
    # Who does not know us for a moment has not refused: a token is renewed, and read anew.
    if status in (0, _TOO_MANY, _UNKNOWN) or status >= 500:
        return Sent(outcome=Outcome.BUSY, detail=detail)
    return Sent(outcome=Outcome.REFUSED if status == _FORBIDDEN else Outcome.INVALID, detail=detail)


def _causes(error: BaseException) -> Sequence[meta_v1.StatusCause]:
    details = error.status.details if isinstance(error, exceptions.ApiError) else None
    return (details.causes if details is not None else None) or []


def _foreign(causes: Sequence[meta_v1.StatusCause]) -> frozenset[ConditionType]:
    """Return the conditions that an apply did not get because another field manager owns them."""
    found = {
        match[1]
        for cause in causes
        if cause.reason == "FieldManagerConflict" and (match := _CONDITION_PATH.search(cause.field or ""))
    }
    return frozenset(name for name in ConditionType if name.value in found)


def _time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
