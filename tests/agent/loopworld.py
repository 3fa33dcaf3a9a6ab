"""A loop with a clock of its own, and everything around it, which can be made to fail."""

import asyncio
import contextlib

from agent import loop
from agent.core import confirm
from agent.core.capacity import Numbers
from agent.model import planes
from agent.model.history import History
from agent.publish.board import Board
from agent.publish.evidence import Evidence
from agent.sources.sample import Sample
from muster.model import codec
from muster.model.reading import Known
from muster.model.report import NodeReport, ResourceReport, Topology, Verdict
from tests.fakes import agent_shell as fakes

RESOURCE = "nvidia.com/gpu"
_EIGHT = Known(8)
SEEN = Numbers(
    admit_strict=_EIGHT,
    admit_lenient=_EIGHT,
    pick_risk=Known(0.0),
    advertised=_EIGHT,
    present=_EIGHT,
    allocated=Known(0),
    usable=_EIGHT,
    free=_EIGHT,
)


def a_report(now, numbers=SEEN):
    resource = ResourceReport(
        verdict=Verdict.OK,
        admit_strict=numbers.admit_strict,
        admit_lenient=numbers.admit_lenient,
        pick_risk=numbers.pick_risk,
        free=numbers.free,
    )
    return NodeReport(node="gpu-a1", taken_at=now, verdict=Verdict.OK, resources=codec.freeze({RESOURCE: resource}))


class Sampler:
    def __init__(self, clock):
        self.clock, self.taken, self.error, self.seconds = clock, [], None, 0.0

    async def sample(self, *, fresh, nvml_closed, expected):
        self.taken.append((round(self.clock.monotonic() - 1000, 6), fresh, nvml_closed, expected))
        await self.clock.sleep(self.seconds)
        if self.error:
            raise self.error
        observation = planes.Observation(
            node="gpu-a1", taken_at=self.clock.utc(), nvml=Known(planes.Nvml(devices=(planes.Gpu(uuid="GPU-a"),)))
        )
        read_at = {"nvml": self.clock.monotonic(), "pci": self.clock.monotonic() - 7}
        return Sample(observation=observation, api_server=False, read_at=read_at, attempts=1)


class Session:
    def __init__(self):
        self.mode, self.followed, self.losses, self.error = "open", 0, 0, None

    async def follow(self, history, now):
        self.followed += 1
        if self.error:
            raise self.error

    def lost(self):
        self.losses += 1


class Watchdog:
    def __init__(self):
        self.why, self.why_closed, self.replaced, self.can = "", "", [], True

    def complaint(self, now, *, nvml_closed):
        return self.why_closed if nvml_closed else self.why

    async def replace(self, reason):
        self.replaced.append(reason)
        return self.can


class Feed:
    def __init__(self):
        self.published, self.ages = [], {}

    def publish(self, report, topology):
        self.published.append((report, topology))

    def set_plane_ages(self, seconds):
        self.ages = dict(seconds)


class Keeper:
    def __init__(self):
        self.kept = []

    def keep(self, evidence):
        self.kept.append(evidence)


EVIDENCE = Evidence(boot_id="b1", start_counter=1)


class World:
    def __init__(self, *, start_delay=0.0, patience=0.0, expected_gpus=None, evidence=EVIDENCE):
        self.clock = fakes.FakeClock()
        self.sampler, self.session, self.feed, self.keeper = Sampler(self.clock), Session(), Feed(), Keeper()
        self.board = Board()
        self.judge_error = None
        self.watchdog = Watchdog()
        self.loop = loop.Loop(
            time=self.clock,
            timing=loop.Timing(poll=5, coalesce=0.05, start_delay=start_delay, reader_patience=patience),
            sampler=self.sampler,
            session=self.session,
            watchdog=self.watchdog,
            judge=self.judge,
            topology_of=lambda nvml, last: Topology(generation=last.generation + 1),
            feed=self.feed,
            board=self.board,
            keeper=self.keeper,
            evidence=evidence,
            expected_gpus=expected_gpus,
            sleep=self.clock.sleep,
        )

    def judge(self, history, observation, api_server):
        if self.judge_error:
            raise self.judge_error
        before = history.resources.get(RESOURCE, confirm.NOTHING) if history.started else None
        numbers = confirm.confirm(SEEN, before, is_clean=True).numbers
        memory = confirm.remember(Verdict.OK, numbers, SEEN, is_clean=True)
        report = a_report(observation.taken_at, numbers)
        return History(started=True, resources=codec.freeze({RESOURCE: memory})), report

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        await fakes.settle()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def times(self):
        return [at for at, *_ in self.sampler.taken]
