"""How often something may be done: a bucket of tokens that fills by time.

Invariant: in any span of T seconds at most `burst + T / seconds_per_token` tokens are taken.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    burst: int
    seconds_per_token: float
    tokens: float
    at: float
    """When `tokens` was true."""

    def available(self, now: float) -> float:
        """Return the tokens at a moment that is not before the last taking."""
        return min(float(self.burst), self.tokens + max(0.0, now - self.at) / self.seconds_per_token)

    def take(self, now: float) -> "Bucket | None":
        """Return the bucket with one token less, or None if there is none to take."""
        left = self.available(now)
        return dataclasses.replace(self, tokens=left - 1, at=now) if left >= 1 else None


def full(burst: int, seconds_per_token: float, now: float) -> Bucket:
    """Return a bucket that nobody has taken from."""
    return Bucket(burst=burst, seconds_per_token=seconds_per_token, tokens=float(burst), at=now)
