"""How often something may be done: a bucket of tokens that fills by time, and a rest after failures.

Invariants: in any span of T seconds at most `burst + T / seconds_per_token` tokens are taken. A rest doubles with each
failure in a row, up to the last of RESTS, and the first success ends the row.
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


RESTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds without a try after so many failures in a row."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, most: float = RESTS[-1]) -> "Rest":
        """Return the rest after one failure more, of `most` seconds at the most."""
        return Rest(failures=self.failures + 1, until=now + min(most, RESTS[min(self.failures, len(RESTS) - 1)]))


RESTED = Rest()
