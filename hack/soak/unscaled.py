"""Ten faults in real time: every duration is the catalogue's, every setting the agent's own default.

In: a seed. Out: for each group of faults how long it took until the feed said it, and until it had the verdict of the
catalogue: seconds that are table time.

Ten nodes, one fault each, again and again at random phases of the poll until the time is over.
"""

import asyncio
import pathlib
import random
import time
from typing import Any

from hack.bench import running
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode
from hack.soak import scaled
from hack.soak.course import STEP_SECONDS, Course
from hack.soak.tally import Tally, quantiles
from hack.soak.watch import Kind, Patience
from hack.soak.world import Publisher

TEN = (
    "gpu lost",
    "xid, reset wanted",
    "gpu hangs",
    "plugin down",
    "kubelet restarted",
    "process outside kubernetes",
    "memory held",
    "gpu cut",
    "driver unloaded",
    "kubelet garbage",
)
PATIENCE = Patience(fall=45, rise=60, longest=120)
"""A fault that only the process list shows waits for it, 30 s; then a poll of 5 s and a cycle's deadlines."""
PAUSE_SECONDS = (1.0, 6.0)


async def run(seed: int, minutes: float, keep: pathlib.Path) -> dict[str, Any]:
    """Run the ten and return the figures."""
    began = time.monotonic()
    tally = Tally(seed=seed, folder=keep, time_scale=1.0)
    verdicts: dict[str, list[float]] = {}
    with running.scratch("muster-soak-") as folder:
        machines = [FakeNode(folder, f"soak-{number}") for number in range(len(TEN))]
        fleet = Fleet(folder, machines, scale=1, admitter_settings=scaled.NO_BREAKER)
        with running.ending(fleet):
            fleet.start()
            publisher = Publisher(fleet.cluster_file)
            courses = scaled.courses_of(fleet, publisher, tally, PATIENCE)
            drives = [
                _again_and_again(course, name, verdicts, began + minutes * 60)
                for course, name in zip(courses, TEN, strict=True)
            ]
            await scaled.Soak(fleet, publisher, courses, tally, 0).run(drives)
            tally.crashes += scaled.tracebacks(fleet)
    return {
        "bench": "soak-unscaled",
        **running.machine(),
        **tally.figures(),
        "verdict_s": {name: quantiles(values) for name, values in sorted(verdicts.items())},
        "seconds": round(time.monotonic() - began, 1),
        "nodes": len(TEN),
        "time_scale": 1,
        "crash_texts": tally.crashes[:3],
    }


async def _again_and_again(course: Course, name: str, verdicts: dict[str, list[float]], until: float) -> None:
    (injury,) = (item for item in scaled.INJURIES if item.name == name)
    dice = random.Random(name)
    await course.settle()
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(*PAUSE_SECONDS))
        item = await course.inflict(injury)
        await course.settle()
        shows = item.hurt.shows
        latest = item.since + shows.wait_seconds + course.sight.patience.fall
        while shows.verdict and not course.has_verdict(item):
            if time.monotonic() > latest:
                course.note(Kind.MISSED, f"{name}: not {shows.verdict} within {latest - item.since:.0f} s")
                break
            await asyncio.sleep(STEP_SECONDS)
        else:
            if shows.verdict:
                verdicts.setdefault(name, []).append(time.monotonic() - item.since)
        await course.mend(item)
        await course.settle()
