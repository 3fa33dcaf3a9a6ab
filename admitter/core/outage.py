"""Can the admitter see at all? Views over time -> since when it cannot, and which queue may let a gang go meanwhile.

Input: the view of each look, the gangs that wait, the clock. Output: a `Permit` for each gang, an Event as an outage begins or ends.

A node with devices is *seen* while its agent is heard and can say of one of them what it admits. The fleet is not seen while at most
`seen_share` of those nodes are. Past `after_seconds` of that without a break, the queues (namespaces) that are set to fail open
may let their gangs go without a lease, one after the other: whoever is first in the queue goes whole, and nobody of that
queue after it before its pods are paid off at `pods_per_minute`.

Invariants: a queue that is not named waits, whatever is seen. No queue lets go more pods over any time than its pace allows, one gang
more at most, and no more than one gang at a look. A new term begins with seeing nothing and waits as long as any other. What
the queue itself refuses (a limit, an image, a strike) is refused as well while nobody sees.

Why a share and not "nothing": the last agent of a thousand that still speaks would hold everybody for ever, on one node.

Not here: what is done with a permit (failopen.py). When no admitter is alive nothing of ours can act; `muster bypass` is for that.
"""

import dataclasses
from collections.abc import Callable, Iterable

from admitter.core import grouprequest
from admitter.model.decision import Event
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import GangRecord, GangState
from muster.model.reading import Known
from muster.model.vocabulary import WaitReason

EVERY = "*"
SIGHT_SECONDS = 5.0
"""Between two looks at all nodes: one takes 25 ms at 5,000 of them, and an outage is of minutes."""
_STAYS = frozenset(
    {
        WaitReason.NAMESPACE_LIMIT,
        WaitReason.IMAGE_UNAVAILABLE,
        WaitReason.BREAKER_HOLDING,
        WaitReason.NEW_TERM,
    }
)
"""Why a gang waits that sight would not cure: its own, the operator's word (`--breaker pause`), or a term that still listens
to the agents, which dial it one after the other."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutagePolicy:
    queues: frozenset[str] = frozenset()
    """Namespaces that fail open; `*`: every one. All others fail closed."""
    after_seconds: float = 300.0
    pods_per_minute: int = 60
    seen_share: float = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Nodes with devices."""

    seen: int = 0
    known: int = 0

    def is_lost(self, policy: OutagePolicy) -> bool:
        """Return whether too few are seen; where there is no such node, there is nothing to see."""
        return self.known > 0 and self.seen <= policy.seen_share * self.known


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """How a gang stands with its queue's setting."""

    is_open: bool = False
    """Its queue fails open."""
    words: str = ""
    """Why it may go without a lease; empty: the admitter sees, or has not been blind for long enough."""
    is_turn: bool = False
    """It is this gang's turn to go."""


CLOSED = Permit()


def sight(view: ClusterView, devices: frozenset[str] = frozenset()) -> Sight:
    """Return how many nodes with devices there are, and how many are seen; `devices` beside those of `nvidia.com/`."""
    known = {
        name
        for name, facts in (view.facts or {}).items()
        if any(units and grouprequest.is_device(resource, devices) for resource, units in facts.allocatable.items())
    }
    seen = set()
    for name, state in view.nodes.items():
        reports = [each for key, each in state.report.resources.items() if grouprequest.is_device(key, devices)]
        if reports:
            known.add(name)
        if any(isinstance(each.admit_strict, Known) for each in reports) and not view.is_stale(name):
            seen.add(name)
    return Sight(seen=len(seen), known=len(known))


class Outage:
    """Belongs to one admitter. Nothing in here waits."""

    def __init__(
        self, policy: OutagePolicy, view: Callable[[], ClusterView], devices: frozenset[str] = frozenset()
    ) -> None:
        self._policy, self._view, self._devices = policy, view, devices
        self.sight = Sight()
        self.released = 0
        """Pods that were let go without a lease."""
        self._sighted_at = -SIGHT_SECONDS
        self._since: float | None = None
        self.is_on = False
        """Queues that fail open let go, as of the last look."""
        self._next_at: dict[str, float] = {}
        """Queue -> when the pods that it has let go are paid off."""
        self._turns: frozenset[str] = frozenset()
        self._passed: frozenset[str] = frozenset()
        """Gangs that did not go when it was their turn: something else holds them, and they hold nobody up."""

    def restart(self) -> None:
        """A new term begins: it has seen nothing yet."""
        self._since, self._turns, self.is_on, self._sighted_at = None, frozenset(), False, -SIGHT_SECONDS

    def look(self, now: float, records: Iterable[GangRecord | None]) -> tuple[Event, ...]:
        """Look at the fleet, and choose whose turn it is among these gangs; nothing to look for where no queue fails open."""
        if not self._policy.queues:
            return ()
        if now - self._sighted_at >= SIGHT_SECONDS:
            self.sight, self._sighted_at = sight(self._view(), self._devices), now
        self._since = (now if self._since is None else self._since) if self.sight.is_lost(self._policy) else None
        self._next_at = {queue: at for queue, at in self._next_at.items() if at > now}
        is_long = self._since is not None and now - self._since >= self._policy.after_seconds
        self._passed |= self._turns
        self._turns = frozenset(self._first(now, records)) if is_long else frozenset()
        if not is_long:
            self._passed = frozenset()
        if is_long is self.is_on:
            return ()
        self.is_on = is_long
        kind = "outage-began" if is_long else "outage-ended"
        detail = f"{self._seen()}; queues that fail open: {', '.join(sorted(self._policy.queues))}"
        return (Event(kind=kind, gang="", actor="admitter", rule="outage", detail=detail[:512]),)

    def permit(self, key: str) -> Permit:
        """Return how a gang stands, by namespace/name, as of the last look."""
        queue = key.partition("/")[0]
        if not self._fails_open(queue):
            return CLOSED
        words = f"{self._seen()}, and queue {queue} fails open" if self.is_on else ""
        return Permit(is_open=True, words=words, is_turn=key in self._turns)

    def spend(self, key: str, pods: int, now: float) -> None:
        """Take note of a gang that goes: nobody of its queue follows before its pods are paid off."""
        queue = key.partition("/")[0]
        self.released += pods
        self._next_at[queue] = max(now, self._next_at.get(queue, now)) + pods * 60.0 / self._policy.pods_per_minute
        self._turns, self._passed = self._turns - {key}, self._passed - {key}

    def _fails_open(self, queue: str) -> bool:
        return queue in self._policy.queues or EVERY in self._policy.queues

    def _first(self, now: float, records: Iterable[GangRecord | None]) -> Iterable[str]:
        """Yield the first gang of each queue that fails open and is not paying off."""
        firsts: dict[str, tuple[bool, int, float, int, str]] = {}
        for record in records:
            if record is None or record.state is not GangState.WAITING or record.why is None:
                continue
            queue = record.gang.namespace
            if record.why.reason in _STAYS or not self._fails_open(queue) or self._next_at.get(queue, now) > now:
                continue
            asked_at = record.timeline.asked.at
            place = (record.key in self._passed, -record.gang.priority, asked_at, record.arrival, record.key)
            firsts[queue] = min(place, firsts.get(queue, place))
        return (key for *_, key in firsts.values())

    def _seen(self) -> str:
        return f"{self.sight.seen} of {self.sight.known} nodes with devices can be seen"
