"""One cycle: observe -> judge -> publish, on time, at once when something happened, and whatever fails.

In: a sampler, the core's functions, the reader's events. Out: the newest report, handed to the feed, the board and the
evidence file.

Invariants: nothing here waits without a deadline, and the feed runs beside it, so a hanging device or kubelet costs a
cycle its deadline and the feed nothing. A cycle that fails in any way publishes the last report with every number taken
out (BLIND), and what comes after it rises from there: for any failed read, capacity never rises. The clock is asked here
and in the sampler, never in the core.

A wake-up waits up to `coalesce_seconds` for others, since one fault sends many; a storm of them makes at most one cycle
every `STORM_SECONDS`.

Not here: what is read (sources/sample.py), what it means (core), who is told (publish/).
"""

import asyncio
import dataclasses
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from agent import sentence
from agent.core import blinded
from agent.model import planes
from agent.model.history import History
from agent.publish.board import Board, Notice
from agent.publish.evidence import Evidence
from agent.sources.sample import Sample
from muster import clock as clocks
from muster.model.lease import LeaseSet
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import NodeReport, Topology

_LOG = structlog.get_logger(__name__)

STORM_SECONDS = 0.2
"""An event still reaches the admitter's view within 250 ms when it comes alone (design.md section 7)."""

CYCLE_DEADLINE_SECONDS = 30.0
"""Beyond every deadline inside a cycle; reached only through a bug."""

READER_AWAY = "reader_away"
"""State of agent.sources.reader.SessionEvent when the stream to the reader broke."""


class Sampler(Protocol):
    """Takes one sample."""

    async def sample(self, *, fresh: bool, nvml_closed: bool, expected: planes.Expected | None) -> Sample: ...


class Session(Protocol):
    """Keeps the NVML session as it must be."""

    @property
    def mode(self) -> str: ...
    async def follow(self, history: History, now: datetime.datetime) -> None: ...
    def lost(self) -> None: ...


class Watchdog(Protocol):
    """Says when the reader hangs, and replaces it."""

    def complaint(self, now: float, *, nvml_closed: bool) -> str: ...
    async def replace(self, reason: str) -> bool: ...


class Feed(Protocol):
    """Tells the admitters."""

    def publish(self, report: NodeReport, topology: Topology) -> None: ...
    def set_plane_ages(self, seconds: Mapping[str, float]) -> None: ...


class Keeper(Protocol):
    """Stores evidence."""

    def keep(self, evidence: Evidence) -> None: ...


Judge = Callable[[History, planes.Observation, bool], tuple[History, NodeReport]]
TopologyOf = Callable[[Reading[planes.Nvml], Topology], Topology]
Sleep = Callable[[float], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When cycles run, in seconds."""

    poll: float
    coalesce: float
    start_delay: float = 0.0
    reader_patience: float = 5.0
    """How long the first cycle waits for a reader that starts beside us: its first word is the baseline."""


class Loop:
    """The agent's heart. Belongs to one event loop; `wake` may be called from its callbacks."""

    def __init__(
        self,
        *,
        time: clocks.Clock,
        timing: Timing,
        sampler: Sampler,
        session: Session,
        watchdog: Watchdog,
        judge: Judge,
        topology_of: TopologyOf,
        feed: Feed,
        board: Board,
        keeper: Keeper,
        evidence: Evidence,
        expected_gpus: int | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._clock, self._timing, self._sleep = time, timing, sleep
        self._sampler, self._session, self._judge, self._topology_of = sampler, session, judge, topology_of
        self._watchdog = watchdog
        self._feed, self._board, self._keeper = feed, board, keeper
        self._evidence, self._expected_gpus = evidence, expected_gpus
        self._topology = Topology(generation=0)
        self._woken = asyncio.Event()
        self._reader_heard = asyncio.Event()
        self._session_due = asyncio.Event()
        self._cycled = asyncio.Event()
        self._why: set[str] = set()
        self._said: object = None

    def wake(self, why: str) -> None:
        """Ask for a cycle now, with no cached plane in it."""
        self._why.add(why)
        self._board.events["wakes"] += 1
        self._woken.set()
        self._session_due.set()

    def hold(self, leases: LeaseSet) -> None:
        """Keep the leases of this node, at once: a restart in the next moment must not loosen them."""
        self._evidence = dataclasses.replace(self._evidence, leases=leases)
        self._keeper.keep(self._evidence)

    async def next_cycle(self) -> None:
        """Wait until another cycle has ended."""
        await self._cycled.wait()

    async def mind_session(self) -> None:
        """Follow the wanted NVML session at every wake-up, beside the cycles, until cancelled.

        A marker must be obeyed within 2 s (design.md section 8); a cycle that waits for a slow kubelet may not be over by
        then.
        """
        while True:
            await self._session_due.wait()
            self._session_due.clear()
            try:
                await self._session.follow(self._evidence.history, self._clock.utc())
            except Exception as error:  # noqa: BLE001 -- the next cycle follows too, and says it with all its consequences
                _LOG.error("the NVML session could not be followed", error=repr(error), exc_info=error)

    async def run(self) -> None:
        """Run cycles until cancelled."""
        await self._sleep(self._timing.start_delay)
        await self._first_of(self._timing.reader_patience, self._reader_heard)
        self._woken.clear()
        fresh = True
        while True:
            started = self._clock.monotonic()
            await self.cycle(fresh=fresh)
            fresh = await self._until_next(started)

    async def watch(self, events: AsyncIterator[Any]) -> None:
        """Turn the reader's events into wake-ups until cancelled.

        The stream itself says when the reader is away, at every try to reach it; only the first is news.
        """
        is_away = False
        async for event in events:
            was_away, is_away = is_away, getattr(event, "state", "") == READER_AWAY
            if is_away and was_away:
                continue
            if is_away:
                self._board.events["reader_losses"] += 1
                self._session.lost()
            else:
                self._reader_heard.set()
            self.wake(str(getattr(event, "kind", type(event).__name__)))

    async def cycle(self, *, fresh: bool) -> None:
        """Observe, judge, publish; never raises."""
        started = self._clock.monotonic()
        self._board.events["cycles"] += 1
        try:
            async with asyncio.timeout(CYCLE_DEADLINE_SECONDS):
                await self._session.follow(self._evidence.history, self._clock.utc())
                sample = await self._sampler.sample(
                    fresh=fresh, nvml_closed=self._session.mode == "closed", expected=self._expected()
                )
            history, report = self._judge(self._evidence.history, sample.observation, sample.api_server)
            self._topology = self._topology_of(sample.observation.nvml, self._topology)
        except asyncio.CancelledError as error:
            # gRPC also raises it in whoever waits for a call on a channel that was closed; that must not end the loop.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._fail(error, started)
        except Exception as error:  # noqa: BLE001 -- the one broad catch: whatever it is, the feed must hear of it
            self._fail(error, started)
        else:
            self._publish(sample, history, report, started)
        await self._mind_reader()
        self._cycled.set()
        self._cycled = asyncio.Event()

    def _publish(self, sample: Sample, history: History, report: NodeReport, started: float) -> None:
        now = self._clock.monotonic()
        self._feed.set_plane_ages({plane: now - read_at for plane, read_at in sample.read_at.items()})
        self._feed.publish(report, self._topology)
        learned = max(self._evidence.learned_gpus, _gpu_count(sample.observation.nvml))
        self._evidence = dataclasses.replace(self._evidence, history=history, learned_gpus=learned)
        self._keeper.keep(self._evidence)
        self._board.events["inconsistent_samples"] += sample.attempts - 1
        self._board.notice = Notice(
            report=report,
            observation=sample.observation,
            published_at=now,
            read_at=sample.read_at,
            cycle_seconds=now - started,
            attempts=sample.attempts,
            nvml_session=self._session.mode,
        )
        self._say(report, now - started, sample.attempts)

    async def _mind_reader(self) -> None:
        """Replace a reader that hangs, once in a boot, after the report is out: the feed never waits for it."""
        if self._evidence.reader_replaced:
            return
        why = self._watchdog.complaint(self._clock.monotonic(), nvml_closed=self._session.mode == "closed")
        if why and await self._watchdog.replace(why):
            _LOG.error("the reader hangs and is replaced, once in this boot", why=why)
            self._board.events["reader_replacements"] += 1
            self._evidence = dataclasses.replace(self._evidence, reader_replaced=True)
            self._keeper.keep(self._evidence)

    def _fail(self, error: BaseException, started: float) -> None:
        self._board.events["failed_cycles"] += 1
        _LOG.error(
            "cycle failed: the node is published as BLIND", error=f"{type(error).__name__}: {error}", exc_info=error
        )
        self._said = None
        self._evidence = dataclasses.replace(self._evidence, history=blinded.forgotten(self._evidence.history))
        self._keeper.keep(self._evidence)
        before = self._board.notice
        if before is None:
            return
        report = blinded.blinded(before.report, self._clock.utc(), type(error).__name__)
        self._feed.publish(report, self._topology)
        now = self._clock.monotonic()
        self._board.notice = dataclasses.replace(before, report=report, published_at=now, cycle_seconds=now - started)

    async def _until_next(self, started: float) -> bool:
        """Wait for the next poll or a wake-up; return whether it was a wake-up."""
        elapsed = self._clock.monotonic() - started
        # A cycle that takes longer than a poll still leaves the machine some rest.
        patience = max(self._timing.poll - elapsed, self._timing.poll / 5)
        await self._first_of(patience, self._woken)
        if not self._woken.is_set():
            return False
        since = self._clock.monotonic() - started
        await self._sleep(max(self._timing.coalesce, min(STORM_SECONDS, self._timing.poll) - since))
        _LOG.debug("woken", why=sorted(self._why))
        self._woken.clear()
        self._why.clear()
        return True

    async def _first_of(self, seconds: float, event: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(event.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _expected(self) -> planes.Expected | None:
        if self._expected_gpus is not None:
            return planes.Expected(gpus=self._expected_gpus, source="operator")
        if self._evidence.learned_gpus:
            return planes.Expected(gpus=self._evidence.learned_gpus, source="learned")
        return None

    def _say(self, report: NodeReport, seconds: float, attempts: int) -> None:
        """Write the cycle's sentence; at debug when it says what the last one said."""
        facts = sentence.facts_of(report)
        say = _LOG.debug if facts == self._said else _LOG.info
        self._said = facts
        say(f"node is {report.verdict.value}", **facts, cycle_ms=round(seconds * 1000), attempts=attempts)


def _gpu_count(nvml: Reading[planes.Nvml]) -> int:
    match nvml:
        case Known(value):
            return sum(1 for gpu in value.devices if gpu.uuid)
        case Unknown():
            return 0
