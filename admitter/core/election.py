"""Who leads, from what the Lease object says: pure decisions of one candidate.

In: the Lease as it was read, when this process first saw it so, who we are, the monotonic clock. Out: what to do about it.

Invariants: nobody takes a Lease that its holder may still hold: a Lease is free only when it names no holder, or when this
process has seen it unchanged for the whole of its duration. A term is one more than the last `leaseTransitions`, under the
resourceVersion that was read, so no two admitters ever lead in one term. No wall clock takes part: `renewTime` is a text
that changes or does not.

A leader counts its time from before its last renewal was sent and stops at two thirds of the duration; the others count
from when they saw it. The third between them is what clocks and pauses may differ by.

Not here: reading and writing the Lease (sources/elector.py).
"""

import dataclasses
import datetime
import enum
import math

from admitter.model.leadership import Leadership

SHARE = 2 / 3
"""Of the duration: when a leader that could not renew stops (design.md section 6)."""
RENEWALS = 6
"""Renewals in one duration: four may fail before the leader stops."""
SEPARATOR = "_"
"""Between an admitter's name and what makes its process another one: no host or pod name has it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The Lease object, as far as it matters."""

    version: str
    """resourceVersion"""
    holder: str = ""
    term: int = 0
    """leaseTransitions"""
    seconds: float = 15.0
    """What its holder promised to renew within."""
    renewed: str = ""
    """renewTime, as text."""
    acquired_at: datetime.datetime | None = None
    """For people."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A Lease and since when this process has seen it so; no Lease: there is none."""

    lease: Lease | None = None
    since: float = 0.0


class Move(enum.Enum):
    """What a candidate does next."""

    CREATE = enum.auto()
    TAKE = enum.auto()
    """Write ourselves in, with the next term."""
    RENEW = enum.auto()
    WAIT = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One admitter's part in the election."""

    identity: str
    """Of this process, not of its name: a process that starts anew does not inherit a Lease."""
    seconds: float
    """The duration that it asks for."""
    sight: Sight = Sight()
    term: int = 0
    """The last term of our own, led still or over; 0: there was none."""
    until: float = -math.inf
    """End of that leadership by the monotonic clock, unless it is renewed."""

    def leadership(self, now: float) -> Leadership:
        """Return what is known of the leadership at `now`."""
        holder = self.sight.lease.holder if self.sight.lease is not None else ""
        leader = holder.partition(SEPARATOR)[0]
        if self._leads(now):
            return Leadership(term=self.term, until=self.until, leader=leader)
        return Leadership(leader=leader if holder != self.identity else "")

    def next(self, now: float, above: int = 0) -> Move:
        """Return what to do; `above` is a term that the agents have heard of and that ours must exceed."""
        lease = self.sight.lease
        if lease is None:
            return Move.CREATE
        if lease.holder == self.identity:
            return Move.RENEW if self._leads(now) and self.term > above else Move.TAKE
        if not lease.holder or now - self.sight.since > (lease.seconds or self.seconds):
            return Move.TAKE
        return Move.WAIT

    def next_term(self, above: int = 0) -> int:
        """Return the term of a Lease that is taken now; one that was deleted must not make an old term come back."""
        known = self.sight.lease.term if self.sight.lease is not None else 0
        return max(known, above, self.term) + 1

    def saw(self, lease: Lease | None, now: float) -> "Candidate":
        """Return the candidate after a read."""
        if lease is not None and lease == self.sight.lease:
            return self
        return dataclasses.replace(self, sight=Sight(lease=lease, since=now))

    def wrote(self, lease: Lease, sent_at: float) -> "Candidate":
        """Return the candidate after a write of its own was accepted, which left here at `sent_at`."""
        sight = Sight(lease=lease, since=sent_at)
        return dataclasses.replace(self, sight=sight, term=lease.term, until=sent_at + SHARE * self.seconds)

    def _leads(self, now: float) -> bool:
        lease = self.sight.lease
        is_ours = lease is not None and lease.holder == self.identity and lease.term == self.term
        return is_ours and now < self.until
