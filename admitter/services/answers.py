"""Records of gangs as messages: what a client's stream is told, and what Why and Status say.

Invariant: a stream hears WAITING, LEASED, STARTED and ENDED in the order of the gang's life. A stream that was too slow
for a state in between still hears of the lease before the start; a reason that has not changed is not said again.
"""

from collections.abc import Iterator, Set

from google.protobuf import duration_pb2

from admitter.core import explain, redaction
from admitter.model import timeline
from admitter.model.decision import Explanation
from admitter.model.lease import Lease
from admitter.model.record import GangRecord, GangState
from muster.pb.muster.v1 import admission_pb2, inspect_pb2


class Teller:
    """What one stream has been told."""

    def __init__(self, namespace: str) -> None:
        """`namespace` is the gang's: its client hears nothing of the others'."""
        self._shown = frozenset((namespace,))
        self._why: Explanation | None = None
        self._lease_id = ""
        self._is_started = False

    def news(self, record: GangRecord, now: float) -> Iterator[admission_pb2.AdmitResponse]:
        """Yield what the stream has not been told of this record."""
        match record.state:
            case GangState.WAITING:
                if record.why is not None and record.why != self._why:
                    waiting = admission_pb2.Waiting(why=explanation(record, record.why, now))
                    redact_why(waiting.why, self._shown)
                    yield admission_pb2.AdmitResponse(waiting=waiting)
                self._lease_id, self._is_started = "", False
            case GangState.LEASED | GangState.STARTED:
                assert record.lease is not None
                if record.lease.id != self._lease_id:
                    self._lease_id = record.lease.id
                    yield admission_pb2.AdmitResponse(leased=lease(record.lease))
                if record.state is GangState.STARTED and not self._is_started:
                    self._is_started = True
                    started = admission_pb2.Started(snapshot_version=record.lease.snapshot_version)
                    yield admission_pb2.AdmitResponse(started=started)
            case GangState.ENDED:
                assert record.ending is not None
                ended = admission_pb2.Ended(reason=record.ending.reason.value, detail=record.ending.detail)
                yield admission_pb2.AdmitResponse(ended=ended)
        self._why = record.why


def lease(content: Lease) -> admission_pb2.Leased:
    """Return a lease as its message."""
    return admission_pb2.Leased(
        lease_id=content.id,
        term=content.term,
        snapshot_version=content.snapshot_version,
        placements=[
            admission_pb2.Placement(
                podset=place.podset,
                node=place.node,
                pods=place.pods,
                resource=place.resource,
                units=place.units,
                forecast_devices=place.forecast,
            )
            for place in content.placements
        ],
    )


def explanation(record: GangRecord, why: Explanation, now: float) -> admission_pb2.Explanation:
    """Return an explanation as its message; how long the gang has waited is of now."""
    seconds = now - record.timeline.asked.at
    message = admission_pb2.Explanation(
        reason=why.reason.value,
        summary=f"waiting {explain.waited(seconds)}: {why.summary}",
        position=why.position,
        needed_units=why.needed_units,
        available_units=why.available_units,
        excluded=[
            admission_pb2.ExcludedNode(
                node=excluded.node,
                resource=excluded.resource,
                reason=excluded.reason,
                detail=excluded.detail,
                free=excluded.free,
            )
            for excluded in why.excluded
        ],
        excluded_more=why.excluded_more,
        best_domain=why.best_domain,
        waiting=duration(seconds),
    )
    if why.changes_at is not None:
        message.next_change.CopyFrom(duration(why.changes_at - now))
    return message


def status(record: GangRecord, now: float) -> inspect_pb2.GangStatus:
    """Return everything about one gang."""
    until = record.ending.at if record.ending is not None else now
    message = inspect_pb2.GangStatus(
        namespace=record.gang.namespace,
        name=record.gang.name,
        state=record.state.value,
        members=[
            inspect_pb2.MemberStatus(
                podset=member.podset, uid=member.uid, node=member.node, seen=member.uid in record.seen
            )
            for member in record.members
        ],
        age=duration(now - record.timeline.asked.at),
        ended_reason=record.ending.reason.value if record.ending is not None else "",
        delays=[
            inspect_pb2.DelaySpan(delays=span.delays, length=duration(span.seconds), clock=span.ended_by or "")
            for span in timeline.spans(record.timeline, until)
        ],
        request_id=record.gang.request_id,
        priority=record.gang.priority,
    )
    if record.why is not None:
        message.why.CopyFrom(explanation(record, record.why, now))
    if record.lease is not None:
        message.lease.CopyFrom(lease(record.lease))
    return message


def redact(message: inspect_pb2.GangStatus, shown: Set[str]) -> None:
    """Take the names of gangs in other namespaces than these out of a gang's explanation."""
    if message.HasField("why"):
        redact_why(message.why, shown)


def redact_why(message: admission_pb2.Explanation, shown: Set[str]) -> None:
    """Take the names of gangs in other namespaces than these out of an explanation."""
    message.summary = redaction.redacted(message.summary, shown)
    for excluded in message.excluded:
        excluded.detail = redaction.redacted(excluded.detail, shown)


def duration(seconds: float) -> duration_pb2.Duration:
    """Return a span of time, 0 at least."""
    message = duration_pb2.Duration()
    message.FromMilliseconds(max(0, round(seconds * 1000)))
    return message
