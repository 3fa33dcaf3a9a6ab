"""How a waiting gang stands with the queue, beside its priority and its arrival.

Values only. Whoever sees that a release was refused (an adapter) counts the strikes and sets the delay; the queue only
obeys: a gang on strike holds no reservation, and before `not_before` it is not looked at.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    strikes: int = 0
    """Refused pins, ungatings and binds since it last started."""
    refused_by: str = ""
    """Who refused last, and why, for a person: `node n3: OutOfcpu`."""
    not_before: float = 0.0
    """Admitter's monotonic clock: no decision on it before."""

    @property
    def may_reserve(self) -> bool:
        """True while nobody has refused what it was given."""
        return self.strikes == 0


GOOD = Standing()
