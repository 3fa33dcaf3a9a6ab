"""The breaker as the admitter uses it: each pass's view in, the view to admit from out.

In: views in order, policy. Out: the ruling that is in force, the view with the numbers that stand, whether admission
pauses, an Event for each hold that begins or ends.

Invariant: with the breaker off the view is what it was and nothing is in force; what would be held is in `seen` all the
same, so that it can be watched before it is switched on.
"""

from admitter.core.breaker import Breaker
from admitter.core.lastgood import Standings
from admitter.model.decision import Event
from admitter.model.nodecapacity import ClusterView
from admitter.model.ruling import NOTHING_HELD, Hold, HoldMode, HoldPolicy, Ruling


class Safeguard:
    """Belongs to one admitter. Nothing in here waits."""

    def __init__(self, policy: HoldPolicy) -> None:
        self._mode = policy.mode
        self._breaker = Breaker(policy)
        self._standings = Standings()
        self.seen: Ruling = NOTHING_HELD
        """What the breaker says."""
        self.events: list[Event] = []
        """Since somebody took them last."""

    @property
    def ruling(self) -> Ruling:
        """Return what is in force."""
        return NOTHING_HELD if self._mode is HoldMode.OFF else self.seen

    @property
    def paused_by(self) -> str:
        """Return why nothing new may be admitted, one line; empty: it may."""
        if self._mode is not HoldMode.PAUSE or not self.seen.holds:
            return ""
        culprits = ", ".join(f"{hold.ground.value} {hold.culprit}" for hold in self.seen.holds)
        return f"admission pauses: too many nodes changed at once by {culprits}"

    def admit_from(self, view: ClusterView) -> ClusterView:
        """Take the next view and return the one to admit from."""
        before, self.seen = self.seen, self._breaker.look(view)
        if self.seen is not before:
            self._note(before, self.seen)
        return self._standings.view(view, self.seen, self._mode)

    def _note(self, before: Ruling, after: Ruling) -> None:
        earlier = {(hold.ground, hold.culprit): hold for hold in before.holds}
        now = {(hold.ground, hold.culprit): hold for hold in after.holds}
        begun = [self._event("hold-began", now[key]) for key in sorted(now.keys() - earlier.keys())]
        ended = [self._event("hold-ended", earlier[key]) for key in sorted(earlier.keys() - now.keys())]
        self.events += [*begun, *ended]

    def _event(self, kind: str, hold: Hold) -> Event:
        detail = f"{hold.ground.value} {hold.culprit}: {len(hold.nodes)} nodes, breaker {self._mode.value}"
        return Event(kind=kind, gang="", actor="admitter", rule="breaker", detail=detail)
