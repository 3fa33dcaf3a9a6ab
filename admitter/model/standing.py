"""How a waiting gang stands with the queue, beside its priority and its arrival.

Values only. Whoever sees that a release was refused (an adapter) counts the strikes and sets the delay; the queue only
obeys: a gang on strike holds no reservation, and before `not_before` it is not looked at.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    strikes: int = 0
    """Refused pins, ungatings and binds that are not forgotten yet."""
    refused_by: str = ""
    """Who refused last, and why, for a person: `node n3: OutOfcpu`."""
    not_before: float = 0.0
    """Admitter's monotonic clock: no decision on it before."""
    is_self_blocked: bool = False
    """What it waits for is held by its own predecessors, which wait for it: they end when somebody changes the rollout."""

    @property
    def may_reserve(self) -> bool:
        """True while nobody has refused what it was given, and while it does not wait for itself."""
        return self.strikes == 0 and not self.is_self_blocked


GOOD = Standing()
