"""The warmer's loop: look, plan, act, tell.

In: containerd, registries, what is wanted. Out: images pulled, leases kept or let go, and the newest NodeWarmth.

Invariants: one pull at a time. A pull is cancelled the moment the node gets busy, and its lease stays. Nothing here waits
for a registry or for containerd without beside it the loop going on. When containerd goes away every event since is
lost, so the next connection begins with a whole look; until then the report says that it is old.

Not here: what to do (core/warmplan.py), how to pull (pull.py), what is known (estate.py).
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping

from agent.core import warmplan, warmth, warmyield
from agent.core.warmplan import Candidate, Plan
from agent.model.warm import Failure, Image, Limits, Platform, Reason, Reference, StoreFacts, Wanted
from agent.warmer import abilities, estate, pull, questions, resolve
from agent.warmer.asking import Asking
from agent.warmer.busy import Busy
from agent.warmer.client import CONTAINER_CREATED, CallFailed, Client
from agent.warmer.config import WarmerConfig
from agent.warmer.history import History
from agent.warmer.journal import Journal
from agent.warmer.keeping import Keeper
from agent.warmer.registry import Credentials, RegistryFailed
from muster.clock import Clock
from muster.model import codec
from muster.model import warmth as told
from muster.model.warmth import Hold, Level, NodeWarmth, PullState

_log = logging.getLogger("muster.warmer")

PULLING_SECONDS = 1.0
"""Between two looks while a pull runs: its progress is told."""
OTHERS_SECONDS = 0.1
"""Between two looks at others' ingests while a pull of ours runs: a small pull is over in 0.26 s (images.md section 6)."""
RECONNECT_SECONDS = (0.2, 5.0)


class Engine:
    """Belongs to one event loop."""

    def __init__(
        self,
        config: WarmerConfig,
        *,
        runtime: Client,
        resolver: resolve.Resolver,
        questions: questions.Questions,
        ways: pull.Ways,
        known: estate.Estate,
        platform: Platform,
        limits: Limits,
        journal: Journal,
        history: History,
        clock: Clock,
    ) -> None:
        self._config, self._runtime, self._resolver, self._ways = config, runtime, resolver, ways
        self._estate, self._platform, self._limits, self._journal = known, platform, limits, journal
        self._history, self._questions = history, questions
        self._clock = clock
        self._abilities = abilities.Abilities()
        self._asking = Asking(resolver, known, clock, self.wake)
        self._keeper = Keeper(config, runtime, limits, clock)
        self.busy = Busy(config, clock.monotonic)
        self.warmth: NodeWarmth | None = None
        self.version = 0
        self.fetched_bytes = 0
        """By our own downloads, of all pulls."""
        self.yields = 0
        self._told = asyncio.Condition()
        self._wake = asyncio.Event()
        self._is_away = ""
        self._facts: StoreFacts | None = None
        self._pulling: tuple[Candidate, pull.Pull, asyncio.Task[None]] | None = None
        self._paused: set[str] = set()

    # -- what others ask

    def wake(self) -> None:
        """Have a look soon: something is new."""
        self._wake.set()

    def hint(self, wanted: tuple[Wanted, ...], shown: Mapping[str, Credentials] = codec.EMPTY) -> None:
        """Take what the admitter wants, with the pull secrets that it shows, by reference."""
        if self._estate.hint(wanted, shown):
            self._wake.set()

    async def resolve(self, reference: Reference, shown: Credentials | None = None) -> resolve.Resolution | Failure:
        """Ask what a reference is now, for a pod that may have shown credentials of its own."""
        return await self._questions.ask(reference, shown, self._facts or StoreFacts())

    async def newer(self, version: int) -> tuple[int, NodeWarmth]:
        """Wait for a report after the one of that version."""
        async with self._told:
            await self._told.wait_for(lambda: self.version > version)
            assert self.warmth is not None
            return self.version, self.warmth

    def _has_work(self) -> bool:
        """True if the node, or a pull of ours, has something better to do than reading ahead."""
        return self._pulling is not None or bool(self.busy.why())

    # -- the loop

    async def run(self) -> None:
        """Run until cancelled."""
        tasks = [
            asyncio.create_task(self._follow(), name="events"),
            asyncio.create_task(self._cycles(), name="cycles"),
            asyncio.create_task(self._mind_others(), name="others"),
            asyncio.create_task(self._ways.lazy.run(self._has_work, self.wake), name="lazy"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            extra = [self._pulling[2]] if self._pulling is not None else []
            for task in (*tasks, *extra):
                task.cancel()
            await asyncio.gather(*tasks, *extra, return_exceptions=True)
            await self._asking.close()
            self._ways.parking.close()
            self._questions.close()
            self._journal.close()
            self._history.close(self._clock.utc())

    async def _follow(self) -> None:
        """Follow containerd's events; after each break, all of it is looked at again."""
        pause = RECONNECT_SECONDS[0]
        while True:
            try:
                async for event in self._runtime.events():
                    pause = RECONNECT_SECONDS[0]
                    self.busy.hear(event)
                    if event.topic == CONTAINER_CREATED and self._facts is not None:
                        self._history.started(event.subject, self._facts, self._clock.utc())
                    if warmyield.is_own(event.subject):
                        continue  # Views of lazy layers: a whole look for each would be for nothing.
                    if self._pulling is None or event.is_loss:
                        self._wake.set()
            except CallFailed as error:
                _log.info("containerd's events ended: %s", error.detail[:200])
            self._wake.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, RECONNECT_SECONDS[1])

    async def _cycles(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._cycle()
                self._is_away = ""
            except CallFailed as error:
                await self._lost(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self._wake.wait()
                # What came together is one look.
                await asyncio.sleep(0.02)

    def _patience(self) -> float:
        if self._is_away:
            return 0.5
        if self._pulling is not None:
            return PULLING_SECONDS
        now = self._clock.monotonic()
        moment = self._estate.next_moment()
        if self._paused or self.busy.why() or self.busy.quiet_at() > now:
            moment = min(moment, max(self.busy.quiet_at(), now + 0.2))
        return max(0.05, min(moment - now, self._config.poll_seconds))

    async def _cycle(self) -> None:
        if not self._abilities.version or self._is_away:
            self._abilities = self._estate.abilities = await abilities.read(self._runtime)
            used = frozenset(self._abilities.handlers.values())
            self._ways.survey.elsewhere = used - {self._config.snapshotter}
        facts = await self._ways.survey.read()
        first = self._facts is None
        self._facts = facts
        if first:
            self.busy.begin(facts.ingests)
        self.busy.look(facts.ingests)
        self._reap()
        self._estate.habits = self._history.wanted(self._clock.utc())
        self._asking.go_on(facts)
        candidates = await self._estate.candidates(facts)
        self._paused &= {each.key for each in candidates if not each.is_warm}
        wanted = tuple(each.image for each in candidates if isinstance(each.image, Image))
        listed = tuple((await self._estate.others(facts)).values())
        self._ways.lazy.tell(
            wanted,
            listed,
            facts.snapshots,
        )
        disk = await estate.read_disk(self._runtime, self._config)
        plan = warmplan.plan(
            candidates,
            facts.leases,
            disk,
            self._limits,
            host_holds=self._estate.host_holds,
            busy=self.busy.why_wait(),
            now=self._clock.monotonic(),
            utc=self._clock.utc(),
            pulling="" if self._pulling is None else self._pulling[1].image.manifest.digest,
        )
        await self._act(plan, facts, candidates)
        if self._pulling is None:
            await self._keeper.judge(self._journal, (*wanted, *listed), facts)
        report = await self._estate.report(
            facts,
            candidates,
            plan,
            pulls=self._pull_states(),
            disk=disk,
            unverified=frozenset(self._journal.suspects),
            now=self._clock.utc(),
        )
        await self._tell(report)

    async def _act(self, plan: Plan, facts: StoreFacts, candidates: tuple[Candidate, ...]) -> None:
        for lease in plan.release:
            await self._runtime.delete_lease(lease)
            _log.info("released the lease of %s", lease.digest)
            self._wake.set()
        for lease in plan.renew:
            await self._keeper.renew(lease)
        for candidate in plan.pin:
            await self._keeper.pin(candidate, facts)
        await self._keeper.unpin(facts, candidates, plan)
        if plan.pull is not None and self._pulling is None:
            await self._begin(plan.pull, facts)

    async def _begin(self, candidate: Candidate, facts: StoreFacts) -> None:
        assert isinstance(candidate.image, Image)
        ours = [
            lease for lease in facts.leases if lease.digest == candidate.image.manifest.digest and not lease.is_done
        ]
        name = ours[0].id if ours else self._keeper.new_name(candidate.image)

        async def ask() -> Credentials | None:
            reference, are_needed = candidate.wanted.reference, candidate.took_credentials
            return self._estate.opener(reference) or await self._resolver.credentials(reference, are_needed=are_needed)

        job = pull.Pull(
            self._ways, candidate, ask, name, self._keeper.expires_at(), has_transfer=self._abilities.has_transfer
        )
        self.busy.is_ours(candidate.image)
        self._paused.discard(candidate.key)
        _log.info("pulling %s as %s", candidate.key, candidate.hold.value)
        task = asyncio.create_task(self._pull(candidate, job, name), name="pull")
        task.add_done_callback(lambda _: self._wake.set())
        self._pulling = (candidate, job, task)

    async def _pull(self, candidate: Candidate, job: pull.Pull, lease: str) -> None:
        await job.run()
        await self._keeper.settle(job.image, lease, is_shadow=candidate.hold is Hold.SHADOW)
        found = warmth.assess(job.image, await self._ways.survey.read())
        if not dataclasses.replace(candidate, warmth=found).is_warm:
            # The plan would begin at once, and for ever: it is a failure, and waits like one.
            await self._keeper.drop(job.image.manifest.digest)
            said = f"pulled whole, and {found.level.value}, held by {found.hold.value}, when looked at again"
            raise CallFailed(Reason.INCOMPLETE, "", said)
        if found.level is Level.UNPACKED:
            files = await self._keeper.fingerprint(job.image)
            self._journal.pulled(job.image.manifest.digest, self._clock.utc(), files)

    def _reap(self) -> None:
        """Take the end of a pull."""
        if self._pulling is None or not self._pulling[2].done():
            return
        (candidate, job, task), self._pulling = self._pulling, None
        self.busy.is_ours(None)
        self.fetched_bytes += job.fetched_bytes
        for state, rate in job.rates().items():
            self._estate.rates[state] = rate
        reference = candidate.wanted.reference
        match pull.outcome(task):
            case None:
                self._estate.succeeded(reference)
                told_bytes, layers = job.extent.fetched_bytes, len(job.extent.unpacked)
                _log.info("%s is warm; the runtime told of %d bytes, %d layers", candidate.key, told_bytes, layers)
            case asyncio.CancelledError():
                self._paused.add(candidate.key)
                _log.info("%s is paused: %s", candidate.key, self.busy.why() or "asked to end")
            case CallFailed() | RegistryFailed() as error:
                after = error.retry_after if isinstance(error, RegistryFailed) else 0.0
                self._estate.failed(reference, error.reason, error.detail, after)
                _log.warning("%s was not pulled: %s", candidate.key, error)
            case error:
                self._estate.failed(reference, Reason.PULL_FAILED, repr(error))
                _log.error("%s was not pulled, by a fault of ours", candidate.key, exc_info=error)

    async def _mind_others(self) -> None:
        """Stand back the moment somebody else needs the node."""
        while True:
            if self._pulling is None:
                await self.busy.noted.wait()
                self.busy.noted.clear()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OTHERS_SECONDS):
                    await self.busy.noted.wait()
            self.busy.noted.clear()
            with contextlib.suppress(CallFailed):
                self.busy.look(await self._runtime.list_ingests())
            if self._pulling is not None and self.busy.why() and not self._pulling[2].done():
                self.yields += 1
                self._pulling[2].cancel()

    # -- telling

    def _pull_states(self) -> dict[str, PullState]:
        states = dict.fromkeys(self._paused, PullState.PAUSED)
        if self._pulling is not None and not self._pulling[2].done():
            states[self._pulling[0].key] = self._pulling[1].state
        return states

    async def _lost(self, error: CallFailed) -> None:
        """Say that what is told is old."""
        self._is_away = f"{error.reason.value}: {error.detail}"[:300]
        before = self.warmth or told.NOTHING
        self._reap()
        if before.store.problem != self._is_away:
            _log.warning("containerd does not answer: %s", self._is_away)
        await self._tell(dataclasses.replace(before, store=dataclasses.replace(before.store, problem=self._is_away)))

    async def _tell(self, report: NodeWarmth) -> None:
        if self.warmth is not None and told.is_steady(told.diff(self.warmth, report)):
            return
        async with self._told:
            self.warmth, self.version = report, self.version + 1
            self._told.notify_all()


def has_fallen(before: NodeWarmth | None, after: NodeWarmth) -> bool:
    """True if an image is colder than it was, or the store cannot be read any more."""
    if before is None:
        return True
    levels: dict[str, Level] = {image.key: image.level for image in before.images}
    is_blind = bool(after.store.problem) and not before.store.problem
    return is_blind or warmth.is_fall(levels, {image.key: image.level for image in after.images})
