"""A cluster that exists only in time: jobs come, wait, run and end, under the admitter's own queue and under others.

`gangs` is core/order.py itself, asked at every arrival, end and moment that it named. `skip` is the same without
reservations: whatever fits starts. `pods` is a scheduler that knows no gangs: pods are placed one by one, a job with only
some of its pods holds them, gives up after an hour and comes back five minutes later (traces.md section 3).

Invariant: durations are what they are, whatever was declared; a job that holds GPUs holds them from its start to its end.
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Sequence

from admitter.core import order
from admitter.core import supply as supplies
from admitter.core import table as tables
from admitter.model.decision import Grant, Policy
from admitter.model.gang import Gang, GpuRequest, Podset
from admitter.model.lease import Placement
from admitter.model.queue import Ask, Holding, QueueState
from admitter.model.supply import NodeOffers, Offer
from muster.model import codec

GPU = "nvidia.com/gpu"
GIVE_UP_SECONDS = 3600.0
BACK_OFF_SECONDS = 300.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    arrival: float
    pods: int
    gpus: int
    """A pod's."""
    seconds: float
    declared: float | None
    priority: int = 0

    @property
    def units(self) -> int:
        """GPUs in all."""
        return self.pods * self.gpus

    @property
    def gang(self) -> Gang:
        """What it asks the admitter."""
        podset = Podset(
            name="main", count=self.pods, request=GpuRequest(gpus=self.gpus), max_runtime_seconds=self.declared
        )
        return Gang(namespace="team", name=self.name, request_id="r", priority=self.priority, podsets=(podset,))


@dataclasses.dataclass(kw_only=True)
class Course:
    """What became of everybody."""

    started: dict[str, float] = dataclasses.field(default_factory=dict)
    promised: dict[str, float] = dataclasses.field(default_factory=dict)
    """Job -> the start that its first reservation gave."""
    most_used: int = 0


class Cluster:
    """Nodes of one size, and what runs on them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.names = tuple(f"n{index:03d}" for index in range(len(sizes)))
        self._sizes = dict(zip(self.names, sizes, strict=True))
        self.free = dict(self._sizes)
        self.running: list[tuple[float, int, Job, tuple[Placement, ...], float]] = []
        self._turn = itertools.count()

    def start(self, job: Job, placements: tuple[Placement, ...], now: float) -> None:
        """Let a job run."""
        for place in placements:
            self.free[place.node] -= place.units
            assert self.free[place.node] >= 0, "more than the node has"
        heapq.heappush(self.running, (now + job.seconds, next(self._turn), job, placements, now))

    def end(self, now: float) -> None:
        """Let everything end that is over."""
        while self.running and self.running[0][0] <= now:
            for place in heapq.heappop(self.running)[3]:
                self.free[place.node] += place.units

    @property
    def used(self) -> int:
        """GPUs that are held."""
        return sum(self._sizes.values()) - sum(self.free.values())

    def supply(self, *, is_ideal: bool = False) -> supplies.Supply:
        """Return what the engine sees."""
        free = self._sizes if is_ideal else self.free
        laid = {
            name: NodeOffers(
                node=name, offers={GPU: Offer(resource=GPU, strict=free[name], own=free[name], grows=True)}
            )
            for name in self.names
        }
        table = tables.of_nodes(laid, has_facts=False, is_ideal=is_ideal)
        return supplies.Supply(version=1, nodes=codec.freeze(laid), table=table, start=table)

    def holdings(self) -> tuple[Holding, ...]:
        """Return what the queue knows of what runs."""
        return tuple(
            Holding(gang=job.gang, placements=placements, since=since, started_at=since, runtime_seconds=job.declared)
            for _, _, job, placements, since in sorted(self.running, key=lambda entry: entry[1])
        )


def gangs(jobs: Sequence[Job], sizes: Sequence[int], policy: Policy, *, reserves: bool = True) -> Course:
    """Run the jobs under the admitter's queue, or under one that reserves nothing."""
    cluster, course, memory, state = Cluster(sizes), Course(), order.Memory(), QueueState()
    ideal, waiting = cluster.supply(is_ideal=True), {}
    events = [job.arrival for job in jobs]
    heapq.heapify(events)
    coming = sorted(jobs, key=lambda job: (job.arrival, job.name))
    numbers = {job.name: number for number, job in enumerate(coming)}
    again = math.inf
    while events or again < math.inf:
        now = min(again, events[0] if events else math.inf)
        while events and events[0] <= now:
            heapq.heappop(events)
        cluster.end(now)
        while coming and coming[0].arrival <= now:
            job = coming.pop(0)
            waiting[job.name] = job
        again = math.inf
        if not waiting:
            continue
        asks = tuple(Ask(gang=job.gang, arrival=numbers[name], asked_at=job.arrival) for name, job in waiting.items())
        if not reserves:
            state = QueueState(resting={ask.gang.full_name: math.inf for ask in asks})
        scene = order.Scene(supply=cluster.supply(), ideal=ideal, holdings=cluster.holdings(), now=now)
        outcome = order.decide(asks, scene, policy, state, memory)
        state = outcome.state
        for answer in outcome.answers:
            if isinstance(answer.answer, Grant):
                job = waiting.pop(answer.gang.name)
                cluster.start(job, answer.answer.placements, now)
                course.started[job.name] = now
                heapq.heappush(events, now + job.seconds)
        course.most_used = max(course.most_used, cluster.used)
        kept = state.reservation
        if kept is not None and kept.starts_at is not None:
            course.promised.setdefault(kept.gang.partition("/")[2], kept.starts_at)
        if outcome.again_at is not None and waiting:
            again = outcome.again_at
    return course


@dataclasses.dataclass(kw_only=True)
class _Partial:
    """A job of which some pods hold their GPUs."""

    job: Job
    places: list[Placement] = dataclasses.field(default_factory=list)
    since: float = 0.0
    """When its first pod got its place."""
    not_before: float = 0.0


def pods(jobs: Sequence[Job], sizes: Sequence[int]) -> Course:
    """Run the jobs under a scheduler that places pods one by one, best fit, first come."""
    cluster, course = Cluster(sizes), Course()
    coming = sorted(jobs, key=lambda job: (job.arrival, job.name))
    waiting: list[_Partial] = []
    events = [job.arrival for job in jobs]
    heapq.heapify(events)
    while events:
        now = heapq.heappop(events)
        cluster.end(now)
        while coming and coming[0].arrival <= now:
            waiting.append(_Partial(job=coming.pop(0)))
        for entry in waiting:
            if entry.places and now - entry.since >= GIVE_UP_SECONDS:
                _give_up(entry, cluster, now)
                heapq.heappush(events, entry.not_before)
        for entry in [entry for entry in waiting if entry.not_before <= now]:
            had = len(entry.places)
            _place(entry, cluster, now)
            if len(entry.places) == entry.job.pods:
                waiting.remove(entry)
                _let_go(entry, cluster)
                cluster.start(entry.job, tuple(entry.places), now)
                course.started[entry.job.name] = now
                heapq.heappush(events, now + entry.job.seconds)
            elif entry.places and not had:
                heapq.heappush(events, now + GIVE_UP_SECONDS)
    return course


def _place(entry: _Partial, cluster: Cluster, now: float) -> None:
    while len(entry.places) < entry.job.pods:
        fitting = [name for name, free in cluster.free.items() if free >= entry.job.gpus]
        if not fitting:
            return
        node = min(fitting, key=lambda name: (cluster.free[name], name))
        cluster.free[node] -= entry.job.gpus
        entry.since = entry.since if entry.places else now
        entry.places.append(Placement(podset="main", node=node, resource=GPU, pods=1, units_per_pod=entry.job.gpus))


def _give_up(entry: _Partial, cluster: Cluster, now: float) -> None:
    _let_go(entry, cluster)
    entry.places.clear()
    entry.not_before = now + BACK_OFF_SECONDS


def _let_go(entry: _Partial, cluster: Cluster) -> None:
    for place in entry.places:
        cluster.free[place.node] += place.units
