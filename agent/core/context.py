"""What a rule may look at, and the few questions that several rules ask.

Input: snapshot, history, policy. A rule module has `RULES`, its rows, and `find(context)`, which yields suspicions.
"""

import dataclasses
import datetime
from collections.abc import Iterable

from agent.model.history import History
from agent.model.policy import Policy
from agent.model.snapshot import DeviceId, ResourceView, Snapshot
from muster.model.reading import Known, Unknown

LATEST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One sample, for rules."""

    snapshot: Snapshot
    history: History
    policy: Policy

    @property
    def now(self) -> datetime.datetime:
        """When the sample was taken."""
        return self.snapshot.now

    def wait(self, name: str) -> datetime.timedelta:
        """Return a duration of the policy."""
        return self.policy.wait(name)

    def is_younger(self, age: datetime.timedelta | None, name: str) -> bool:
        """True if an age is known and below a duration of the policy. An instant in the future has no age."""
        return age is not None and datetime.timedelta() <= age < self.wait(name)

    def seen_since(self, key: str) -> datetime.datetime | None:
        """Return since when the evidence of that key has been there; None if the last sample did not show it."""
        return next((item.since for item in self.history.evidence if item.key == key), None)

    def boot_end(self) -> datetime.datetime | None:
        """Return the end of the boot window while it lasts."""
        match self.snapshot.observation.boot:
            case Known(boot) if self.is_younger(self.snapshot.boot_age, "node-boot"):
                return after(boot.at, self.wait("node-boot"))
            case _:
                return None

    def kubelet_end(self, name: str) -> datetime.datetime | None:
        """Return kubelet start plus a duration, while that is still ahead."""
        match self.snapshot.kubelet_started_at:
            case Known(started) if self.is_younger(self.now - started, name):
                return after(started, self.wait(name))
            case _:
                return None


def after(instant: datetime.datetime, duration: datetime.timedelta) -> datetime.datetime:
    """Return a later instant; the end of time where there is none, since planes may hold any instant."""
    try:
        return instant + duration
    except OverflowError:
        return LATEST


def unheld(view: ResourceView) -> tuple[DeviceId, ...]:
    """Return the advertised ids that the kubelet may hand out next: GA less List. A List nobody read frees none."""
    match view.held:
        case Known(held):
            return tuple(device for device in view.ids() if device.id not in held)
        case Unknown():
            return ()


def count_of(reading: Known[int] | Unknown) -> int | None:
    """Return a count, or None where there is none to compare with."""
    match reading:
        case Known(value):
            return value
        case Unknown():
            return None


def named(items: Iterable[str], most: int = 4) -> str:
    """Return sorted names, at most `most` of them.

    >>> named(["b", "a", "d", "c", "e"], 2)
    'a, b and 3 more'
    """
    ordered = sorted(set(items))
    rest = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {rest} more" if rest > 0 else "")
