"""What one stream says next, decided from what it said last.

In: the newest report and topology, plane ages, monotonic time. Out: the next message, or None while there is nothing
new.

Invariants: a delta goes from the state that this very stream sent last to the newest one, so states that a slow admitter
had no time for are skipped, never queued. A steady node costs a heartbeat. Sequences rise by one within the stream and
begin above those of every earlier stream of this agent's life.

Not here: the wire (feed_session.py) and who is obeyed (feed.py).
"""

import dataclasses
from collections.abc import Mapping

from muster.model import codec, pbform
from muster.model import delta as deltas
from muster.model import warmth as warmths
from muster.model.report import NodeReport, Topology
from muster.model.warmth import NodeWarmth
from muster.pb.muster.v1 import feed_pb2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The newest state that the loop wants told."""

    report: NodeReport
    topology: Topology
    warmth: NodeWarmth | None = None
    """None: the warmer has said nothing yet, or there is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlaneAges:
    """How old each plane was at one moment of the monotonic clock."""

    seconds: Mapping[str, float] = codec.mapping()
    taken_at: float = 0.0

    def to_pb(self, now: float) -> dict[str, int]:
        """Return the ages at `now`, in milliseconds."""
        elapsed = max(0.0, now - self.taken_at)
        return {plane: round(max(0.0, age + elapsed) * 1000) for plane, age in sorted(self.seconds.items())}


class Outbox:
    """One stream's memory of what it sent. `sequence` is that of the last state, or what the first one is above."""

    def __init__(self, sequence: int, heartbeat_seconds: float, now: float) -> None:
        self.sequence = sequence
        self.heartbeat_seconds = heartbeat_seconds
        self._sent: Published | None = None
        self._heartbeat_due = now + heartbeat_seconds

    def resync(self) -> None:
        """Begin anew: the admitter does not have what was sent."""
        self._sent = None

    def patience(self, now: float) -> float:
        """Return for how many seconds there will be nothing to say unless something new comes."""
        if self._sent is None:
            return self.heartbeat_seconds
        return max(0.0, self._heartbeat_due - now)

    def next(
        self, newest: Published | None, ages: PlaneAges, leases: feed_pb2.LeaseSet, now: float
    ) -> feed_pb2.ConnectRequest | None:
        """Return the next message and count it as sent."""
        if newest is None:
            return None
        if self._sent is None:
            return self._snapshot(newest, leases)
        if newest is not self._sent:
            message = self._delta(self._sent, newest)
            if message is not None:
                return message
        if now < self._heartbeat_due:
            return None
        self._heartbeat_due = now + self.heartbeat_seconds
        return feed_pb2.ConnectRequest(
            heartbeat=feed_pb2.Heartbeat(sequence=self.sequence, plane_age_ms=ages.to_pb(now))
        )

    def _snapshot(self, newest: Published, leases: feed_pb2.LeaseSet) -> feed_pb2.ConnectRequest:
        self._sent = newest
        self.sequence += 1
        request = feed_pb2.ConnectRequest()
        request.snapshot.sequence = self.sequence
        pbform.fill(request.snapshot.report, newest.report)
        pbform.fill(request.snapshot.topology, newest.topology)
        request.snapshot.leases.CopyFrom(leases)
        if newest.warmth is not None:
            pbform.fill(request.snapshot.warmth, newest.warmth)
        return request

    def _delta(self, sent: Published, newest: Published) -> feed_pb2.ConnectRequest | None:
        topology = newest.topology if newest.topology != sent.topology else None
        change = dataclasses.replace(
            deltas.diff(sent.report, newest.report, base=self.sequence, topology=topology),
            warmth=_warmth_change(sent.warmth, newest.warmth),
        )
        if deltas.is_steady(change) and change.verdict is sent.report.verdict:
            # Keep what was sent, so that the next difference is taken from what the admitter has.
            return None
        self._sent = newest
        self.sequence = change.sequence
        request = feed_pb2.ConnectRequest()
        pbform.fill(request.delta, change)
        return request


def _warmth_change(sent: NodeWarmth | None, newest: NodeWarmth | None) -> warmths.WarmthDelta | None:
    """Return what the admitter does not know of the images yet; None: nothing."""
    if newest is None or newest is sent:
        return None
    change = warmths.diff(sent if sent is not None else warmths.NOTHING, newest)
    return None if warmths.is_steady(change) else change
