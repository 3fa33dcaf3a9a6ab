"""One node's course through the soak: injure, look, mend, again and again, with up to three injuries in force.

In: a world, its sight, the injuries to draw from. Out: counts in the tally.

Invariant: an injury that could be seen for as long as the agent is allowed, and was not, is `missed`; one that was mended
earlier, or hidden by another all the time, is `unjudged`. Neither is ever counted as seen.

What an injury does to the numbers is the oracle's affair, what the feed says is watch.py's; here is only the order of events.
"""

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hack.soak import oracle
from hack.soak.injuries import Hurt, Injury, Shows
from hack.soak.tally import Tally
from hack.soak.watch import Kind, Sight, Wrong
from hack.soak.world import World
from muster.model.admission import NodeCapacity
from muster.model.report import Finding

T = TypeVar("T")

STEP_SECONDS = 0.05
AT_ONCE = 3
"""Injuries in force at the same time."""
LONG_SHARE = 0.04
"""Of the rounds: injuries that stay until the catalogue's time for them is over."""
BOOT_SECONDS = 900.0
"""Table time after a boot in which everything may be called transient (faults.md A13)."""


@dataclasses.dataclass(slots=True)
class Open:
    """An injury in force."""

    injury: Injury
    hurt: Hurt
    since: float
    clear_since: float | None = None
    """Since when nothing hides it; None: something does."""
    seen_at: float | None = None
    is_missed: bool = False


class Course:
    """One node's."""

    def __init__(
        self,
        world: World,
        sight: Sight,
        tally: Tally,
        injuries: Sequence[Injury],
        dice: random.Random,
        *,
        time_scale: float,
        many: asyncio.Semaphore,
    ) -> None:
        self.world, self.sight = world, sight
        self._tally, self._injuries, self._dice = tally, injuries, dice
        self._time_scale = time_scale
        self._many = many
        """Whoever makes the whole fleet's file large waits for the one before."""
        self.open: list[Open] = []
        self.is_editing = False
        sight.set_bound(self._bound(), time.monotonic())

    async def run(self, wanted: int, until: float) -> None:
        """Injure and mend until enough was injected or the time is over; then mend all and see the whole truth again."""
        await self.settle()
        while self._tally.count < wanted and time.monotonic() < until:
            await self._round()
        while self.open:
            await self.mend(self.open[-1])
        await self.settle()
        bound = self.sight.bound
        if not self.sight.is_true and not self.sight.is_counted(Kind.TOO_LOW):
            self.note(
                Kind.TOO_LOW, f"all is mended, {self.sight.value} admissible, at least {bound.least}: {bound.why}"
            )

    async def _round(self) -> None:
        for _ in range(self._dice.choices((1, 2, 3), (5, 3, 2))[0]):
            injury = self._draw()
            if injury is None:
                break
            await self.inflict(injury)
            if self._dice.random() < 0.5:
                await self.settle()
            else:
                await asyncio.sleep(self._dice.uniform(0, 0.4))
        await self.settle()
        for item in [item for item in self.open if item.hurt.then is not None and item.seen_at is not None]:
            await self._go_further(item)
        if self._dice.random() < LONG_SHARE:
            await self._outlast()
        self._dice.shuffle(self.open)
        keep = self._dice.choices((0, 1), (7, 3))[0]
        while len(self.open) > keep:
            await self.mend(self.open[0])
        if self._dice.random() < 0.6:
            await self.settle()

    def _draw(self) -> Injury | None:
        if len(self.open) >= AT_ONCE or any(item.injury.is_alone for item in self.open):
            return None
        touched = {thing for item in self.open for thing in item.injury.touches}
        fitting = [
            injury
            for injury in self._injuries
            if not (injury.touches & touched) and not (injury.is_alone and self.open) and injury.fits(self.world)
        ]
        return self._dice.choices(fitting, [injury.weight for injury in fitting])[0] if fitting else None

    async def inflict(self, injury: Injury) -> Open:
        """Injure the node."""
        if "many" in injury.touches:
            await self._many.acquire()
        began = time.monotonic()
        hurt = await self._edit(lambda: injury.inflict(self.world))
        self._tally.injections[injury.name] += 1
        item = Open(injury=injury, hurt=hurt, since=began)
        self.open.append(item)
        return item

    async def _go_further(self, item: Open) -> None:
        assert item.hurt.then is not None
        await self._edit(item.hurt.then)
        self._tally.injections[f"{item.injury.name}, then"] += 1
        item.hurt = dataclasses.replace(item.hurt, then=None)
        await self.settle()
        await asyncio.sleep(1.0)  # Two cycles more: what nobody can see must go on counting.

    async def mend(self, item: Open) -> None:
        """Undo an injury."""
        self.open.remove(item)
        if item.seen_at is None and not item.hurt.shows.is_silent and not item.is_missed:
            self._tally.unjudged += 1
        await self._edit(item.hurt.mend)
        if "many" in item.injury.touches:
            self._many.release()

    async def _edit(self, edit: Callable[[], T]) -> T:
        began = time.monotonic()
        self.is_editing = True
        try:
            return await asyncio.to_thread(edit)
        finally:
            self.sight.set_bound(self._bound(), began)
            self.is_editing = False

    async def settle(self) -> None:
        """Wait until the feed says what is true, or what it does not say has been counted."""
        end = time.monotonic() + self.sight.patience.longest
        while time.monotonic() < end:
            self.look()
            waiting = [item for item in self.open if self._is_awaited(item)]
            if self.sight.shown is not None and self.sight.is_true and not waiting:
                return
            await asyncio.sleep(STEP_SECONDS)

    def _is_awaited(self, item: Open) -> bool:
        return (
            item.seen_at is None
            and not item.is_missed
            and not item.hurt.shows.is_silent
            and item.clear_since is not None
        )

    async def _outlast(self) -> None:
        """Stay until every injury's own time is over; then its finding must have its verdict."""
        wait = max((item.hurt.shows.wait_seconds for item in self.open), default=0.0)
        held = [item for item in self.open if item.seen_at is not None and item.hurt.shows.verdict]
        await asyncio.sleep(wait / self._time_scale)
        since = time.monotonic()
        while not self.sight.is_overdue(since, time.monotonic()):
            late = [item for item in held if not self.has_verdict(item)]
            if not late:
                return
            await asyncio.sleep(STEP_SECONDS)
        now = time.monotonic()
        for item in late:
            is_clear = item.clear_since is not None and self.sight.is_overdue(item.clear_since, now)
            if is_clear and (now - self.world.booted_at) * self._time_scale > BOOT_SECONDS:
                self.note(Kind.MISSED, f"{item.injury.name}: seen, but never as {item.hurt.shows.verdict}")

    def has_verdict(self, item: Open) -> bool:
        """True if the feed calls the injury what the catalogue calls it in the end."""
        shown, said = self.sight.shown, item.hurt.shows
        return shown is not None and any(
            finding.verdict.value == said.verdict for finding in findings(shown) if _is_meant(finding, said)
        )

    # -- the oracle's part

    def look(self) -> None:
        """Hold the feed's word against what is true now."""
        if self.is_editing:
            return
        now = time.monotonic()
        facts = self.world.facts()
        self.sight.set_bound(oracle.bound(facts, now, self._time_scale), now)
        self.sight.leased = facts.leased
        for wrong in self.sight.judge(now):
            self.note(wrong.kind, wrong.text)
        can_see = oracle.readable(facts) if self.sight.shown is not None else None
        for item in self.open:
            self._look_for(item, can_see, now)

    def _look_for(self, item: Open, can_see: frozenset[str] | None, now: float) -> None:
        said = item.hurt.shows
        if item.seen_at is not None or said.is_silent:
            if can_see is None or not said.through <= can_see:
                item.clear_since = None
            elif item.clear_since is None:
                item.clear_since = now
            return
        shown = self.sight.shown
        if shown is not None and is_said(shown, said):
            item.seen_at = now
            self._tally.detections[item.injury.group].append(now - item.since)
        if can_see is None or not said.through <= can_see:
            item.clear_since = None
        elif item.clear_since is None:
            item.clear_since = now
        elif (
            item.seen_at is None
            and not item.is_missed
            and self.sight.is_overdue(max(item.clear_since, item.since), now)
        ):
            item.is_missed = True
            self.note(
                Kind.MISSED, f"{item.injury.name}: nobody says {' or '.join(sorted(said.causes)) or said.unverified}"
            )

    def note(self, kind: Kind, text: str) -> None:
        """Count a disagreement, with everything that is said and in force."""
        in_force = [item.injury.name for item in self.open]
        said = [f"{item.verdict.value} {item.cause}" for item in findings(self.sight.shown)] if self.sight.shown else []
        full = f"{text}; said: {', '.join(said) or 'nothing'}"
        self._tally.note(self.world.node.name, Wrong(kind=kind, text=full), in_force, tuple(self.sight.lines))

    def _bound(self) -> oracle.Bound:
        return oracle.bound(self.world.facts(), time.monotonic(), self._time_scale)


def findings(shown: NodeCapacity) -> Iterator[Finding]:
    """Yield everything that is said of a node."""
    yield from shown.report.node_findings
    for resource in shown.report.resources.values():
        yield from resource.findings


def is_said(shown: NodeCapacity, said: Shows) -> bool:
    """True if the feed says what must be seen."""
    if said.is_stale:
        return shown.stale
    if said.unverified:
        return any(text.startswith(said.unverified) for text in shown.report.unverified)
    return any(_is_meant(finding, said) for finding in findings(shown))


def _is_meant(finding: Finding, said: Shows) -> bool:
    allowed = ("TRANSIENT", said.verdict) if said.verdict else (finding.verdict.value,)
    is_device = not said.devices or bool(said.devices & set(finding.devices))
    return finding.cause in said.causes and finding.verdict.value in allowed and is_device
