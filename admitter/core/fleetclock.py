"""The clock by which nodes age: monotonic time without the admitter's own stalls.

In: the monotonic clock at regular ticks. Out: fleet time, which ages every node.

Invariant: between two ticks fleet time moves by one tick and some slack at most. When the admitter itself was stopped
(a long computation, a frozen virtual machine), its agents' messages wait unread in the sockets: the silence is ours, and
no node may expire for it. A node that was silent before the stall goes on ageing after it.

Why the reader bounds it too: after a stall anything may run before the ticker does.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FleetClock:
    """Fleet time at the last tick."""

    ticked_at: float
    """Monotonic seconds."""
    fleet_time: float = 0.0
    tick_seconds: float
    slack_seconds: float
    """How late a tick may be before the rest counts as a stall."""
    stalled_seconds: float = 0.0
    """All that was credited so far."""

    def at(self, monotonic: float) -> float:
        """Return fleet time at a moment after the last tick."""
        return self.fleet_time + min(max(monotonic - self.ticked_at, 0.0), self.tick_seconds + self.slack_seconds)

    def tick(self, monotonic: float) -> "FleetClock":
        """Return the clock after a tick at that moment."""
        fleet_time = self.at(monotonic)
        lost = (monotonic - self.ticked_at) - (fleet_time - self.fleet_time)
        return dataclasses.replace(
            self,
            ticked_at=monotonic,
            fleet_time=fleet_time,
            stalled_seconds=self.stalled_seconds + max(lost, 0.0),
        )
