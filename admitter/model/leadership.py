"""Who leads, and until when: what everybody asks before a write to the API server.

A publisher decides under one term and passes it on to the moment of the write:

    term = guard.leadership.term          # 0: we only watch
    ...decide...
    if guard.may_write(term):             # again, directly before each request
        await client.patch(...)

Invariant: a term belongs to one admitter, once. `may_write` is true only while that term is still the leader's and less
than two thirds of its Lease have gone by on the monotonic clock since the last renewal was *sent*: nobody else can have
taken the Lease by then, however the clocks of the machines differ. A process that was stopped and goes on finds out here.

Without a cluster there is one admitter, `Alone`, whose term comes from a file (sources/termfile.py).
"""

import dataclasses
import math
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """What this process knows of the leadership at one moment."""

    term: int = 0
    """The term in which this process leads; 0: it is a standby."""
    until: float = -math.inf
    """Admitter's monotonic clock: from here on nothing may be written in this term."""
    leader: str = ""
    """Name of the admitter that leads, for people; empty: not known."""

    def holds(self, now: float) -> bool:
        """Return whether this process leads at `now`."""
        return self.term > 0 and now < self.until


STANDBY = Leadership()


class NotLeading(Exception):
    """This admitter answers for no gang. `leader` is the name of the one that does, as far as that is known."""

    def __init__(self, leader: str) -> None:
        super().__init__(f"this admitter is a standby; {leader or 'nobody yet'} leads")
        self.leader = leader


class Alone:
    """The guard where there is one admitter and no API server: its term is its own until it takes a higher one."""

    def __init__(self, leader: str) -> None:
        self._leader = leader
        self.term = 0

    @property
    def leadership(self) -> Leadership:
        """Return what is known now."""
        return Leadership(term=self.term, until=math.inf, leader=self._leader)

    def may_write(self, term: int) -> bool:
        """Return whether this is still the term."""
        return term == self.term > 0


class Guard(Protocol):
    """Whom a publisher asks."""

    @property
    def leadership(self) -> Leadership:
        """Return what is known now; a leadership that has run out is a standby's."""

    def may_write(self, term: int) -> bool:
        """Return whether a write that was decided in this term may still leave."""
