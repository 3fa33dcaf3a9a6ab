"""The soak itself: a fleet, one course a node, and what befalls all of them at once.

In: how many injections, how many nodes, a seed. Out: figures.

Invariant: a fleet's programs all end with the block, whatever happens in it; a program that ends by itself is a crash, and is
started again so that the soak goes on.
"""

import asyncio
import contextlib
import json
import math
import pathlib
import random
import sys
import time
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any

from hack.bench import footprint, running
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode
from hack.soak import devices, programs, promises, records
from hack.soak.course import Course
from hack.soak.injuries import Injury
from hack.soak.leases import Leases
from hack.soak.tally import Tally
from hack.soak.watch import Patience, Sight
from hack.soak.world import Publisher, World, cut_for_mig
from muster import client

TIME_SCALE = 40.0
SETTINGS = {
    "--poll-seconds": "0.5",
    "--processes-seconds": "0.75",
    "--slow-seconds": "0.75",
    "--nvml-deadline-seconds": "1",
    "--nvml-slow-deadline-seconds": "1",
    "--kubelet-deadline-seconds": "1",
    "--slice-grace-seconds": "3",
}
NO_BREAKER = {"--breaker-least-nodes": "100000"}
"""A fleet in which most nodes are broken on purpose is what the breaker is there to hold (design.md section 6)."""
ADMITTER = {**NO_BREAKER, "--node-ttl-seconds": "3"}
MACHINES = ("hgx-h100", "l40s", "gb200-mig", "t4", "hgx-h100", "dgx-a100", "gb200-mig", "gb200")
ELDERS = 2
"""Nodes whose agent and reader are never ended: the memory of these is followed."""
INJURIES: tuple[Injury, ...] = (*devices.INJURIES, *promises.INJURIES, *records.INJURIES, *programs.INJURIES)
LOOK_SECONDS = 0.1
WEIGH_SECONDS = 10.0
ASK_SECONDS = 30.0
SAY_SECONDS = 30.0
STORM_SECONDS = (12.0, 30.0)
"""Between two injections that hit all nodes at once."""
START_LOOKS = 600
"""Five a second, until a new admitter serves: two minutes on a busy machine."""
ADMITTER_SHARE = 0.3
"""Of the injections: after these the admitter lives, so that its memory can be followed."""


class Soak:
    """What goes on beside the courses, and their end."""

    def __init__(
        self, fleet: Fleet, publisher: Publisher, courses: Sequence[Course], tally: Tally, wanted: int
    ) -> None:
        self._fleet, self._publisher, self._courses, self._tally = fleet, publisher, courses, tally
        self._wanted = wanted
        """Injections; 0: nothing hits all nodes at once."""
        self._is_deaf = False
        self._dice = random.Random(f"{tally.seed}/storms")
        self._began = time.monotonic()

    async def run(self, drives: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run until every drive of a course is over."""
        async with client.connect(self._fleet.address, self._fleet.client_files) as muster:
            beside = [
                asyncio.create_task(part)
                for part in (
                    self._follow(muster),
                    self._look(),
                    self._weigh(),
                    self._guard(),
                    self._storm(),
                    self._say(),
                    self._lease(muster),
                )
            ]
            beside += [asyncio.create_task(_record(course)) for course in self._courses]
            courses = [asyncio.create_task(drive) for drive in drives]
            try:
                await _all_or_first_failure(courses, beside)
            finally:
                for task in (*courses, *beside):
                    task.cancel()
                await asyncio.gather(*courses, *beside, return_exceptions=True)

    async def _follow(self, muster: client.Client) -> None:
        by_name = {course.world.node.name: course for course in self._courses}
        async for change in muster.watch_capacity():
            if self._is_deaf:
                continue
            for name in change.removed:
                if name in by_name:
                    by_name[name].sight.hear(None)
            for name, shown in change.nodes.items():
                by_name[name].sight.hear(shown)
                by_name[name].look()

    async def _ask(self, muster: client.Client) -> None:
        """Ask now and then, so that it is known by when the admitter has heard and said what there was."""
        while True:
            asked_at = time.monotonic()
            with contextlib.suppress(client.Unreachable):
                await muster.list_capacity(ASK_SECONDS)
                for course in self._courses if not self._is_deaf else ():
                    course.sight.answered(asked_at)
            await asyncio.sleep(1.0)

    async def _look(self) -> None:
        while True:
            self._publisher.write()
            for course in self._courses:
                course.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _lease(self, muster: client.Client) -> None:
        worlds = {course.world.node.name: course.world for course in self._courses}
        leases = Leases(worlds, random.Random(f"{self._tally.seed}/leases"), self._tally.leases)
        await leases.run(muster)

    async def _weigh(self) -> None:
        while True:
            await asyncio.sleep(WEIGH_SECONDS)
            for kind, pid in self._pids():
                with contextlib.suppress(OSError, StopIteration):
                    self._tally.weights[kind, pid].append((time.monotonic(), footprint.pss_mib(pid)))

    def _pids(self) -> list[tuple[str, int]]:
        found = []
        with contextlib.suppress(KeyError):
            found.append(("admitter", self._fleet.pid("admitter")))
        for course in self._courses:
            agent, reader = course.world.agent(), course.world.reader()
            found += [(kind, item.pid) for kind, item in (("agent", agent), ("reader", reader)) if item is not None]
        return found

    async def _guard(self) -> None:
        """Count programs that ended by themselves, and start them again."""
        while True:
            await asyncio.sleep(1.0)
            for name, status in self._fleet.ended():
                self._tally.crashes.append(f"{name} ended with status {status}: {self._fleet.log_of(name)[-1000:]}")
                if name == "admitter":
                    self._fleet.start_admitter()
                else:
                    self._fleet.start_agent(name)

    async def _storm(self) -> None:
        """Hit all nodes at once: the admitter, or the file that stands for the API server."""
        while True:
            await asyncio.sleep(self._dice.uniform(*STORM_SECONDS) if self._wanted else math.inf)
            may_end = self._tally.count < self._wanted * ADMITTER_SHARE
            if may_end and self._dice.random() < 0.6:
                await self._end_admitter()
            else:
                await self._spoil_cluster_file()

    async def _end_admitter(self) -> None:
        self._tally.injections["admitter killed"] += 1
        await asyncio.to_thread(self._fleet.kill, "admitter")
        self._is_deaf = True
        for course in self._courses:
            course.sight.lose()
        await asyncio.sleep(self._dice.uniform(0.2, 4))
        self._fleet.start_admitter()
        self._is_deaf = False
        # One that starts while the cluster file is spoiled refuses to, as it should: no storm before this one serves.
        for _ in range(START_LOOKS):
            if any(course.sight.is_heard for course in self._courses):
                break
            await asyncio.sleep(0.2)

    async def _spoil_cluster_file(self) -> None:
        self._tally.injections["cluster file spoiled"] += 1
        self._publisher.is_held = True
        path = self._fleet.cluster_file
        content = path.read_bytes()
        match self._dice.randrange(3):
            case 0:
                path.write_bytes(content[: len(content) // 2])
            case 1:
                path.write_bytes(b'{"nodes": {"x": \xff')
            case _:
                path.unlink()
        await asyncio.sleep(self._dice.uniform(0.5, 2))
        self._publisher.is_held = False
        self._publisher.write(anew=True)

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(SAY_SECONDS)
            figures = {
                name: self._tally.figures()[name]
                for name in ("injections", "wrong_way", "too_low", "missed", "loosened", "crashes")
            }
            print(f"{time.monotonic() - self._began:6.0f} s {json.dumps(figures)}", file=sys.stderr, flush=True)


async def run(wanted: int, minutes: float, nodes: int, seed: int, keep: pathlib.Path) -> dict[str, Any]:
    """Run a soak and return its figures."""
    began = time.monotonic()
    tally = Tally(seed=seed, folder=keep, time_scale=TIME_SCALE)
    with running.scratch("muster-soak-") as folder:
        machines = [_machine(folder, number) for number in range(nodes)]
        fleet = Fleet(folder, machines, scale=1 / TIME_SCALE, settings=SETTINGS, admitter_settings=ADMITTER)
        with running.ending(fleet):
            fleet.start()
            publisher = Publisher(fleet.cluster_file)
            courses = courses_of(fleet, publisher, tally, Patience())
            drives = [course.run(wanted, began + minutes * 60) for course in courses]
            try:
                await Soak(fleet, publisher, courses, tally, wanted).run(drives)
            except Exception as error:  # noqa: BLE001 -- the soak's own fault; what it has counted is worth telling
                traceback.print_exception(error)
                tally.crashes.append(f"the soak itself: {error!r}")
            tally.crashes += tracebacks(fleet)
    return {
        "bench": "soak",
        **running.machine(),
        **tally.figures(),
        "seconds": round(time.monotonic() - began, 1),
        "nodes": nodes,
        "time_scale": TIME_SCALE,
        "crash_texts": tally.crashes[:3],
    }


def courses_of(fleet: Fleet, publisher: Publisher, tally: Tally, patience: Patience) -> list[Course]:
    """Return a course for every node of a fleet, with what the API server says of it in the cluster file."""
    many = asyncio.Semaphore(1)
    worlds = []
    for number, node in enumerate(fleet.nodes.values()):
        dice = random.Random(f"{tally.seed}/{node.name}")
        worlds.append((World(fleet, node, dice, publisher, is_elder=number < ELDERS), dice))
        worlds[-1][0].publish()
    publisher.write()
    return [
        Course(world, Sight(world.resource, patience), tally, INJURIES, dice, time_scale=tally.time_scale, many=many)
        for world, dice in worlds
    ]


def _machine(folder: pathlib.Path, number: int) -> FakeNode:
    kind = MACHINES[number % len(MACHINES)]
    node = FakeNode(folder, f"soak-{number}", kind.removesuffix("-mig"))
    if kind.endswith("-mig"):
        cut_for_mig(node)
    return node


def tracebacks(fleet: Fleet) -> list[str]:
    """Return what the programs' logs hold that no program should say."""
    found = []
    for name in ("admitter", *fleet.nodes):
        text = fleet.log_of(name)
        for word in ("Traceback (most recent call last)", "cycle failed"):
            if word in text:
                at = text.index(word)
                found.append(f"{name}, {text.count(word)} times: {text[at : at + 1500]}")
    return found


async def _record(course: Course) -> None:
    """Keep the last cycles' observations, so that what is wrong can be replayed."""
    path = course.world.node.folder / "agent.sock"
    while True:
        with contextlib.suppress(OSError, ValueError):
            async for line in _lines(path):
                course.sight.cycled(line)
        await asyncio.sleep(0.2)


async def _lines(path: pathlib.Path) -> AsyncIterator[bytes]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=64 << 20)
    try:
        writer.write(b'{"command": "capture", "lines": 100000}\n')
        while line := await reader.readline():
            yield line
    finally:
        writer.close()


async def _all_or_first_failure(
    courses: Sequence["asyncio.Task[None]"], beside: Sequence["asyncio.Task[None]"]
) -> None:
    """Wait for the courses; what runs beside them never ends by itself, so if it does that is an error."""
    waiting = set(courses)
    while waiting:
        done, _ = await asyncio.wait({*waiting, *beside}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        waiting -= done
