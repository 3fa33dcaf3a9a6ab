"""A real admitter killed again and again under gangs that come and go, against a ledger of what their clients heard.

The ledger knows two things only: the LEASED of each client, and whether a fake kubelet had the devices for each pod. No
node may be promised twice, no gang may move once it has a pod, and everybody gets an answer in the end. The seed is
printed: MUSTER_FAILOVER_SEED repeats a run, as far as processes repeat.
"""

import asyncio
import itertools
import os
import random
import sys

import pytest

from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode
from muster import client
from muster.model.admission import Ended, Gang, Leased, Podset, Started, Waiting

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAMESPACE = "team-a"
NODES, GPUS = ("gpu-1", "gpu-2", "gpu-3"), 8
SCALE = 0.05
TERM_GRACE_SECONDS = 11.0
"""Longer than an agent (10 s) or a client (5 s) ever pauses before it dials again, as 75 s is in earnest."""
KILLS = 6
GRANTING = (0, 3)
"""These terms die a moment after a new lease, the others within `YOUNG_SECONDS`, before they grant anything."""
YOUNG_SECONDS = 2.0
TERM_SECONDS = 40.0
ANSWER_SECONDS = 90.0
STAYERS = {"stay-a": (2, 2), "stay-b": (1, 4)}
"""Pods, and GPUs of each; these gangs run until the last admitter has opened."""
WALKERS = ("walk-a", "walk-b", "walk-c")
HUGE = (4, 8)
"""More than there is."""


class Ledger:
    """What is promised on each node, as far as anybody outside the admitter can know."""

    def __init__(self, say):
        self._say = say
        self._held = {}

    def hold(self, gang, lease):
        self._held[gang] = (lease.lease_id, [(place.node, place.units) for place in lease.placements])
        self._say(f"{gang} holds {self._held[gang]}")
        for node in NODES:
            units = sum(units for _, places in self._held.values() for name, units in places if name == node)
            assert units <= GPUS, f"{units} units promised on {node}: {self._held}"

    def drop(self, gang):
        self._held.pop(gang, None)

    def lease_of(self, gang):
        return self._held[gang][0] if gang in self._held else ""


class Scene:
    """The fleet's hardware, the ledger, and the gangs' lives."""

    def __init__(self, fleet, say):
        self.fleet = fleet
        self.ledger = Ledger(say)
        self.over = asyncio.Event()
        """No more kills, and no more gangs are asked for."""
        self.started = set()
        self.progress = asyncio.Event()
        """A gang has a lease that nobody had before."""
        self._say = say
        self._hardware = asyncio.Lock()
        self._uids = (f"0b5e7a10-0000-4000-8000-{number:012d}" for number in itertools.count())

    async def live(self, name, pods, units, stay):
        """One gang from its first word to its last, which is heard; `stay` is awaited while it runs."""
        gang = Gang(
            namespace=NAMESPACE, name=name, request_id=f"{name}-r", podsets=(Podset(count=pods, request=units),)
        )
        async with (
            client.connect(self.fleet.address, self.fleet.client_files) as muster,
            muster.admit(gang) as stream,
        ):
            running = []
            async with asyncio.timeout(ANSWER_SECONDS):
                async for state in stream.states():
                    self._hear(name, state, is_bound=bool(running))
                    if isinstance(state, Leased) and not running:
                        running = await self._start_pods(name, stream, state)
                    if isinstance(state, Started):
                        break
            self.started.add(name)
            listening = asyncio.create_task(self._listen(name, stream))
            try:
                waiting = asyncio.ensure_future(stay)
                await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
                assert not listening.done(), listening.exception()
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await self._end_pods(running)
            self.ledger.drop(name)
            async with asyncio.timeout(ANSWER_SECONDS):
                assert (await stream.end("done")).reason == "Finished"
            self._say(f"{name} ended")

    async def wait_in_vain(self, name, pods, units):
        """A gang for which there is no room: return its last word once all is over."""
        gang = Gang(namespace=NAMESPACE, name=name, request_id="r", podsets=(Podset(count=pods, request=units),))
        async with (
            client.connect(self.fleet.address, self.fleet.client_files) as muster,
            muster.admit(gang) as stream,
            asyncio.timeout(ANSWER_SECONDS + KILLS * TERM_SECONDS),
        ):
            async for state in stream.states():
                assert isinstance(state, Waiting), state
                if self.over.is_set() and state.reason != "NewTerm":
                    return state
        raise AssertionError("the stream ended")

    def _hear(self, name, state, *, is_bound):
        match state:
            case Leased(lease_id=identifier, placements=places):
                if identifier != self.ledger.lease_of(name):
                    # A lease that no agent was told of is lost with its admitter: its pods run, and need no other place.
                    assert not (is_bound and places), f"{name} was planned anew: {state}"
                    self.progress.set()
                if not is_bound or places:
                    self.ledger.hold(name, state)
            case Waiting(reason=reason, summary=summary):
                # A new term that has not heard every node yet may say so; the lease is none the less the gang's.
                if reason != "NewTerm":
                    assert not is_bound, f"{name} has lost its lease: {summary}"
                    self.ledger.drop(name)
            case Ended():
                raise AssertionError(f"{name}: {state}")

    async def _listen(self, name, stream):
        async for state in stream.states():
            self._hear(name, state, is_bound=True)

    async def _start_pods(self, name, stream, lease):
        running = []
        async with self._hardware:
            for place in lease.placements:
                node = self.fleet.nodes[place.node]
                for _ in range(place.pods):
                    uid, units = next(self._uids), place.units // place.pods
                    ids = await asyncio.to_thread(
                        node.start_pod, NAMESPACE, f"{name}-{uid}", uid, place.resource, units
                    )
                    assert len(ids) == units, f"{name}: the kubelet of {place.node} had {len(ids)} of {units} devices"
                    running.append((node, uid))
                    stream.member(place.podset, uid, place.node)
            await asyncio.to_thread(self.fleet.publish)
        return running

    async def _end_pods(self, running):
        async with self._hardware:
            for node, uid in running:
                await asyncio.to_thread(node.end_pod, uid)
            await asyncio.to_thread(self.fleet.publish)


async def walk(scene, name, dice):
    """Ask for one gang after another."""
    for number in itertools.count():
        if scene.over.is_set():
            return
        await scene.live(
            f"{name}-{number}", dice.randint(1, 3), dice.randint(1, 3), asyncio.sleep(dice.uniform(0.0, 3.0))
        )


async def eventually(claim):
    async with asyncio.timeout(ANSWER_SECONDS):
        while not claim():  # noqa: ASYNC110 -- the claim is over several tasks
            await asyncio.sleep(0.05)


async def kill_again_and_again(scene, dice, say):
    await eventually(lambda: set(STAYERS) <= scene.started)
    for number in range(KILLS):
        await eventually(lambda runs=number + 1: scene.fleet.log_of("admitter").count("admitter runs") == runs)
        if number in GRANTING:
            scene.progress.clear()
            async with asyncio.timeout(TERM_SECONDS):
                await scene.progress.wait()
            await asyncio.sleep(dice.choice((0.0, 0.1, 0.5)))
        else:
            await asyncio.sleep(dice.uniform(0.0, YOUNG_SECONDS))
        say(f"kill {number + 1}")
        await asyncio.to_thread(scene.fleet.kill, "admitter")
        scene.fleet.start_admitter()
    say("no more kills")
    scene.over.set()


async def play(fleet, dice, say):
    scene = Scene(fleet, say)
    async with asyncio.TaskGroup() as group:
        in_vain = group.create_task(scene.wait_in_vain("huge", *HUGE))
        for name, (pods, units) in STAYERS.items():
            group.create_task(scene.live(name, pods, units, asyncio.shield(in_vain)))
        for name in WALKERS:
            group.create_task(walk(scene, name, random.Random(dice.random())))
        group.create_task(kill_again_and_again(scene, dice, say))
    last = in_vain.result()
    assert last.reason == "NeverFits"
    assert "needs 32 GPUs (4x8)" in last.summary
    assert {*STAYERS, *(f"{name}-0" for name in WALKERS)} <= scene.started


def test_whatever_dies_nothing_is_promised_twice_and_everybody_gets_an_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_ADMITTER_NEW_TERM_GRACE_SECONDS", str(TERM_GRACE_SECONDS))
    seed = int(os.environ.get("MUSTER_FAILOVER_SEED", random.randrange(1 << 32)))
    story = [f"MUSTER_FAILOVER_SEED={seed}"]
    with Fleet(tmp_path, [FakeNode(tmp_path, name) for name in NODES], scale=SCALE) as fleet:
        try:
            fleet.start()
            asyncio.run(play(fleet, random.Random(seed), story.append))
        finally:
            story += [fleet.log_of("admitter")[-3000:], (tmp_path / "decisions.jsonl").read_text()[-6000:]]
            sys.stdout.write("\n".join([*story, ""]))  # shown with a failure
        log = fleet.log_of("admitter")
    assert log.count("admitter runs") == KILLS + 1
    assert "Traceback" not in log
    assert "decision pass failed" not in log
