"""Hold one node's feed against the oracle, moment by moment.

In: bounds as the machine changes, what the admitter says of the node, when the agent's cycles end. Out: a `Wrong` for each
time that it is too high, too low, or silent about a fault, once each.

Invariant: a number is judged by every bound that was in force within the time that the agent is allowed. That time is the
declared one, and at least so many whole cycles of this agent and answers of the admitter, since a busy machine runs them
late; never more than `Patience.longest`, busy or not.

Why cycles count: the soak must find agents that are wrong, not machines that are slow. What the clock said is in the figures
all the same.
"""

import collections
import dataclasses
import enum
import time

from hack.soak.oracle import Bound
from muster.model.admission import NodeCapacity

FALL_CYCLES, RISE_CYCLES = 4, 8
ANSWERS = 2
"""Questions that the admitter has answered since."""
LINES_KEPT = 240
"""Cycles of a node that are kept for a capture: two minutes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an agent is allowed, in seconds; the defaults are those of a poll of half a second."""

    fall: float = 6.0
    """For a fault: a poll, the deadlines of one cycle, node_ttl."""
    rise: float = 12.0
    """For a recovery: a reader's or a stream's longest pause (5 s, 10 s), then two clean samples (faults.md P4)."""
    longest: float = 120.0
    """However busy the machine is."""


class Kind(enum.StrEnum):
    """What can be wrong."""

    WRONG_WAY = "wrong_way"
    TOO_LOW = "too_low"
    MISSED = "missed"
    LOOSENED = "loosened"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One disagreement with the oracle."""

    kind: Kind
    text: str


class Sight:
    """What is known of one node."""

    def __init__(self, resource: str, patience: Patience) -> None:
        self._resource, self.patience = resource, patience
        self.shown: NodeCapacity | None = None
        """The admitter's newest word; None: it has none, or nobody can hear it."""
        self.is_heard = False
        """An admitter answers."""
        self.lines: collections.deque[bytes] = collections.deque(maxlen=LINES_KEPT)
        self._cycles: collections.deque[float] = collections.deque(maxlen=64)
        self._answers: collections.deque[float] = collections.deque(maxlen=ANSWERS)
        self._bounds: collections.deque[tuple[float, Bound]] = collections.deque()
        self._is_wrong: set[Kind] = set()
        self._low_seconds = 0.0
        """For how long the number has been too low while an admitter answered."""
        self._low_looked: float | None = None
        self.leased = 0
        """Units that gangs were told they hold here."""
        self._loose_since: float | None = None

    @property
    def value(self) -> int:
        """Return what may be admitted of the resource."""
        return self.shown.admissible.get(self._resource, 0) if self.shown is not None else 0

    @property
    def others(self) -> int:
        """Return what may be admitted of resources that nobody offers."""
        if self.shown is None:
            return 0
        return sum(units for name, units in self.shown.admissible.items() if name != self._resource)

    def hear(self, shown: NodeCapacity | None) -> None:
        """Take the admitter's word; None: it has none on this node."""
        self.shown = shown

    def lose(self) -> None:
        """Note that no admitter is there to be heard."""
        self.shown, self.is_heard = None, False

    def cycled(self, line: bytes) -> None:
        """Note that a cycle has ended, and what it saw."""
        self.lines.append(line)
        self._cycles.append(time.monotonic())

    def answered(self, asked_at: float) -> None:
        """Note that the admitter has answered a question that was asked then: what it knew by then has been heard."""
        self.is_heard = True
        self._answers.append(asked_at)

    def set_bound(self, bound: Bound, since: float) -> None:
        """Note what holds from now on."""
        if not self._bounds or self._bounds[-1][1] != bound:
            self._bounds.append((since, bound))

    @property
    def bound(self) -> Bound:
        """Return what holds now."""
        return self._bounds[-1][1]

    @property
    def is_true(self) -> bool:
        """True if the number is within what holds now."""
        return self.bound.least <= self.value <= self.bound.most and not self.others

    def is_counted(self, kind: Kind) -> bool:
        """True if this is wrong now and was counted."""
        return kind in self._is_wrong

    def is_overdue(self, since: float, now: float) -> bool:
        """True if what began then must have been seen by now."""
        return since <= self._horizon(now, self.patience.fall, FALL_CYCLES)

    def judge(self, now: float) -> list[Wrong]:
        """Return what has become wrong since the last look."""
        self._forget(now)
        fall = self._within(self._horizon(now, self.patience.fall, FALL_CYCLES))
        most = max(fall, key=lambda bound: bound.most)
        is_too_low = self._count_low(now) > now - self._horizon(now, self.patience.rise, RISE_CYCLES)
        return [
            *self._said(
                Kind.WRONG_WAY,
                self.value > most.most or self.others > 0,
                f"{self.value} admissible (and {self.others} of other names), at most {most.most}: {most.why}",
            ),
            *self._said(
                Kind.TOO_LOW,
                is_too_low,
                f"{self.value} admissible, at least {self.bound.least}: {self.bound.why}",
            ),
            *self._said(
                Kind.LOOSENED,
                self._is_loose(now),
                f"{self.leased} held by gangs, which the admitter does not subtract",
            ),
        ]

    def _is_loose(self, now: float) -> bool:
        """True if units that gangs hold have not been subtracted for as long as a fall may take."""
        shown = self.shown
        is_less = (
            shown is not None
            and self._resource in shown.report.resources
            and shown.leased.get(self._resource, 0) < self.leased
        )
        self._loose_since = (self._loose_since or now) if is_less else None
        return self._loose_since is not None and self.is_overdue(self._loose_since, now)

    def _count_low(self, now: float) -> float:
        """Return for how many seconds the number has been too low; a node that the admitter does not know has none.

        While no admitter answers the clock stands still and keeps what it has: one that is killed every 20 s must not hide
        a node that is blind for good.
        """
        if not self.is_heard:
            self._low_looked = None
            return self._low_seconds
        if self.value >= self.bound.least:
            self._low_seconds, self._low_looked = 0.0, None
            return 0.0
        if self._low_looked is not None:
            self._low_seconds += now - self._low_looked
        self._low_looked = now
        return self._low_seconds

    def _said(self, kind: Kind, is_wrong: bool, text: str) -> list[Wrong]:  # noqa: FBT001
        was_wrong = kind in self._is_wrong
        self._is_wrong = self._is_wrong | {kind} if is_wrong else self._is_wrong - {kind}
        return [Wrong(kind=kind, text=text)] if is_wrong and not was_wrong else []

    def _horizon(self, now: float, seconds: float, cycles: int) -> float:
        """Return since when a change may still go unseen."""
        nth_last = self._cycles[-cycles - 1] if len(self._cycles) > cycles else now - self.patience.longest
        answered = self._answers[0] if len(self._answers) == ANSWERS else now - self.patience.longest
        return max(now - self.patience.longest, min(now - seconds, nth_last, answered))

    def _within(self, since: float) -> list[Bound]:
        """Return every bound that was in force at any time since."""
        ends = [start for start, _ in list(self._bounds)[1:]] + [float("inf")]
        return [bound for (_, bound), end in zip(self._bounds, ends, strict=True) if end > since]

    def _forget(self, now: float) -> None:
        while len(self._bounds) > 1 and self._bounds[1][0] < now - self.patience.longest:
            self._bounds.popleft()
