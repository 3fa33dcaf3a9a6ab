"""The gate adapter's loop: what is held is looked at by the clock, however much goes on elsewhere in the cluster."""

import asyncio
import contextlib
import dataclasses
import functools

import pytest

from admitter import gateloop
from admitter.core import strikes
from admitter.core.outage import Outage, OutagePolicy
from admitter.model.cluster import ANYWHERE, Changes, PodChange
from admitter.model.decision import Explanation
from admitter.model.group import Workloads
from admitter.model.hold import Hold, Replan, Strike
from admitter.model.record import GangState
from admitter.publish.nodes import Outcome
from muster.model import labels
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import TAKEN, a_node, a_view
from tests.admitter.gatescenes import NOW, POLICY, a_record, ready, running
from tests.admitter.grouppods import a_job, a_job_pod, a_pod

JOB = a_job(parallelism=2, completions=2)
KEY = "team-a/job.train"
WHY = Explanation(reason=WaitReason.NODES_STALE, summary="nobody is heard", position=1)


class Town:
    """A cluster, the queue, the clock and whoever carries out what is wanted."""

    is_synced, term, leads = True, 1, True

    def __init__(self):
        self.stored, self.records, self.now = {}, {}, NOW
        self.news = asyncio.Semaphore(0)
        self.released, self.replanned, self.looks = [], asyncio.Event(), 0
        self.glances, self.reported, self.noted, self.said = 0, {}, [], []
        self.places, self.job = ("n1", "n2"), JOB

    # -- the cluster

    def listen(self, listener):
        self.tell = listener

    def pods(self):
        return self.stored

    def pod(self, uid):
        return self.stored.get(uid)

    def nodes(self):
        return ready("n1", "n2")

    def grants_on(self, node):
        return True

    def becomes(self, pod):
        before = self.stored.get(pod.uid)
        self.stored[pod.uid] = pod
        self.tell(Changes(pods=(PodChange(before=before, after=pod),)))

    def workloads(self):
        return Workloads(jobs={JOB.uid: JOB} if self.job is not None else {})

    # -- the queue

    def open(self, gang, owner, asked_at=None):
        self.records[gang.full_name] = a_record(gang, nodes=self.places, why=None if self.places else WHY)
        self.news.release()
        return self

    async def next(self):
        await self.news.acquire()
        return self.records[KEY]

    def record(self, key):
        return self.records.get(key)

    def requests_of_leases(self):
        self.glances += 1
        return self.reported

    def __getattr__(self, name):
        if name in ("join", "leave", "stand", "close", "begin"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def say(self, told, *_):
        self.said.append(told.reason)

    def end(self, attachment, detail, *, has_run=True):
        self.records = {
            key: dataclasses.replace(each, state=GangState.ENDED, lease=None) for key, each in self.records.items()
        }

    # -- the guard and the clock

    def may_write(self, term):
        return self.leads

    def monotonic(self):
        return self.now

    def utc(self):
        return TAKEN

    # -- who carries it out

    def is_busy(self, uid):
        return False

    def release(self, release, term, maker, still, refused):
        assert still()
        assert maker == (JOB.uid if release.uid.startswith("uid-train") else "")
        self.released.append(release)
        self.refuse = functools.partial(refused, release.uid)
        self.still = still

    def replan(self, replan, namespace, term, fresh):
        assert isinstance(replan, Replan)
        self.replanned.set()

    def resume_suspended(self, workloads, term, waiting):
        self.looks += 1


@contextlib.asynccontextmanager
async def a_loop(outage=None):
    """A loop that runs beside a cluster in which there is never a moment's peace."""
    town = Town()
    loop = gateloop.GateLoop(
        desk=town,
        cluster=town,
        objects=town,
        issuer=town,
        guard=town,
        clock=town,
        policy=POLICY,
        tell=town.noted.append,
        outage=outage or Outage(OutagePolicy(), a_view),
    )

    async def churn():
        for number in range(1_000_000):
            town.becomes(a_pod("stranger", labels={}, annotations={}, gates=(), resource_version=str(number)))
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(loop.run()), asyncio.create_task(churn())]
    yield town, loop
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 -- what is waited for tells nobody
            await asyncio.sleep(0.01)


async def test_patience_runs_out_in_a_cluster_that_never_rests():
    async with a_loop() as (town, _):
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: {each.uid for each in town.released} == {"uid-train-0", "uid-train-1"})
        for index in range(2):
            town.becomes(a_job_pod(index, gates=(), annotations={labels.LEASE.full: "t1-1"}))
        seen = town.glances
        await until(lambda: town.glances > seen)
        town.now += POLICY.bind_patience_seconds + 1
        async with asyncio.timeout(30):
            await town.replanned.wait()


async def test_everything_is_looked_at_by_the_clock_and_not_with_every_change():
    async with a_loop() as (town, _):
        await until(lambda: town.looks == 1)
        await asyncio.sleep(0.3)
        assert town.looks == 1
        town.now += gateloop.LOOK_SECONDS
        await until(lambda: town.looks == 2)


@pytest.mark.parametrize("request_id", ["", "pods-1"], ids=["given back", "ended by the queue"])
async def test_a_gang_that_is_gone_is_forgotten_with_its_strikes(request_id):
    async with a_loop() as (town, loop):
        struck = strikes.struck(Hold(request_id=request_id), POLICY, NOW, [Strike(party="p", reason="r", detail="d")])
        await until(lambda: town.looks == 1)
        loop._holds[KEY] = struck
        town.now += gateloop.LOOK_SECONDS
        await until(lambda: town.looks == 2)
        assert loop._holds[KEY] == dataclasses.replace(struck, request_id="", blamed=frozenset())
        town.now += POLICY.strike_memory_seconds + 1
        await until(lambda: KEY not in loop._holds)


async def test_an_hour_in_which_this_process_stood_still_is_no_schedulers_delay():
    """Its leadership is over, by the same clock; the next one gives every scheduler its time anew."""
    async with a_loop() as (town, loop):
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: len(town.released) == 2)
        for index in range(2):
            pin = dataclasses.replace(ANYWHERE, node_selector={"kubernetes.io/hostname": f"n{index + 1}"})
            town.becomes(a_job_pod(index, gates=(), annotations={labels.LEASE.full: "t1-1"}, constraints=pin))
        town.leads = False
        town.now += 3600
        looks = town.looks
        await asyncio.sleep(0.2)
        assert town.looks == looks
        town.records, town.reported = {}, {"t1-1": "pods-then"}
        town.leads, town.term = True, 2
        await until(lambda: town.looks > looks and loop._holds[KEY].seats)
        assert {seat.at for seat in loop._holds[KEY].seats.values()} == {town.now}
        assert not town.replanned.is_set()
        town.now += POLICY.bind_patience_seconds + 1
        async with asyncio.timeout(30):
            await town.replanned.wait()


@pytest.mark.parametrize("queue", ["team-a", "team-b"])
async def test_while_nobody_can_see_a_queue_that_fails_open_lets_go_and_another_does_not(queue):
    policy = OutagePolicy(queues=frozenset({queue}), after_seconds=300)
    async with a_loop(Outage(policy, lambda: a_view(a_node("n1", heard=0.0)))) as (town, _):
        town.places = ()
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: WaitReason.NODES_STALE in town.said)
        for _ in range(3):
            looks = town.looks
            town.now += 301
            await until(lambda looks=looks: town.looks > looks)
        kinds = [event.kind for event in town.noted]
        if queue == "team-b":
            assert (kinds, town.released) == (["outage-began"], [])
            return
        assert kinds == ["outage-began", "let-go-unseen"]
        assert {(each.uid, each.nodes, each.lease_id) for each in town.released} == {
            ("uid-train-0", (), ""),
            ("uid-train-1", (), ""),
        }
        assert town.said[-1] == "ReleasedUnverified"
        assert town.records[KEY].state is GangState.ENDED


async def test_what_refuses_every_patch_of_a_gang_has_refused_once():
    async with a_loop() as (town, loop):
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: len(town.released) == 2)
        for _ in range(3):
            town.refuse(Outcome.REFUSED, "a webhook says no")
        assert not town.still(), "nobody else is let go"
        await until(lambda: town.records[KEY].state is GangState.ENDED)
        town.refuse(Outcome.REFUSED, "it was on its way all the time")
        assert dict(loop._holds[KEY].strikes) == {"api server: refused": 1}
        assert loop._holds[KEY].not_before == NOW + POLICY.strike_seconds
        assert [event.kind for event in town.noted] == ["refused"]


async def test_a_gang_that_runs_is_looked_at_when_it_changes_and_seldom_by_the_clock():
    async with a_loop() as (town, _):
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: len(town.released) == 2)
        for index in range(2):
            marks = {"annotations": {labels.LEASE.full: "t1-1"}, "resource_version": "2"}
            town.becomes(running(a_job_pod(index, **marks), f"n{index + 1}"))
        town.records[KEY] = dataclasses.replace(town.records[KEY], state=GangState.STARTED)
        town.news.release()

        async def after(seconds):
            """Return how often anything was looked at, up to the next look by the clock."""
            glances, looks = town.glances, town.looks
            town.now += seconds
            await until(lambda: town.looks > looks)
            return town.glances - glances

        async with asyncio.timeout(30):
            while await after(gateloop.LOOK_SECONDS):
                pass
        assert await after(gateloop.LOOK_SECONDS) == 0
        assert await after(gateloop.STEADY_SECONDS) == 1
        glances = town.glances
        town.becomes(running(a_job_pod(0, **{**marks, "resource_version": "3"}), "n1"))
        await until(lambda: town.glances > glances)


async def test_what_becomes_of_a_job_is_seen_whether_or_not_its_pods_change():
    async with a_loop() as (town, loop):
        town.job = None
        for index in range(2):
            town.becomes(a_job_pod(index))
        looks = town.looks
        town.now += gateloop.LOOK_SECONDS
        await until(lambda: town.looks > looks)
        assert not town.released
        town.job = JOB
        loop.changed("team-b")
        loop.changed("team-a")
        await until(lambda: len(town.released) == 2)


class Poisoned(dict):
    """What a pod asks for, where looking at it is a bug of ours."""

    def items(self):
        raise ZeroDivisionError("a bug")


async def test_a_gang_that_we_fail_on_stops_no_other_and_is_told_so():
    async with a_loop() as (town, loop):
        label = {labels.GANG.full: "a-first"}
        town.becomes(a_pod("bad", labels=label, requests=Poisoned(), annotations={labels.GANG_SIZE.full: "1"}))
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: {each.uid for each in town.released} == {"uid-train-0", "uid-train-1"})
        assert town.said.count("InternalError") == 1
        assert loop.told("team-a/a-first").summary.startswith("Muster failed on it (ZeroDivisionError)")
        failures = loop._confined.failures["gang"]
        assert failures
        looks = town.looks
        town.now += gateloop.LOOK_SECONDS
        await until(lambda: town.looks > looks)
        assert loop._confined.failures["gang"] > failures, "it is tried again"
        assert town.said.count("InternalError") == 1, "and said once"
        town.becomes(a_pod("bad", labels=label, requests={"cpu": 1}, annotations={labels.GANG_SIZE.full: "1"}))
        await until(lambda: loop.told("team-a/a-first").reason == "Released")


async def test_a_pod_that_belongs_to_nobody_by_a_bug_takes_no_other_pods_place_away():
    async with a_loop() as (town, loop):
        town.becomes(a_pod("bad", labels=None))
        for index in range(2):
            town.becomes(a_job_pod(index))
        await until(lambda: len(town.released) == 2)
        assert loop._confined.failures["place"]
