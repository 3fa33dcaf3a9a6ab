"""`make demo ARGS="--cluster"`: the story on a real control plane, first with kube-scheduler alone, then with Muster.

Every step is a claim with two sides, as in story.py. The same launcher makes the same pods in the same order both times; the
second time they carry the gate `muster.dev/gang`. The times here bound a wait; they are no promises.

The node that lies also has work for processors alone, so that kube-scheduler prefers the others as long as they have room:
else luck decides, and once in some twelve times it gives all three of the others to one gang.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

from hack.demo.launcher import GPUS, SIZE, Launcher
from hack.demo.scene import Scene, Step
from hack.demo.town import NAMESPACE, Town

PLAIN, HELD = ("plain-a", "plain-b"), ("held-a", "held-b")
NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")
LYING, LOST = "fake-0003", 5
WATCHED_SECONDS = 20.0
WAIT = 60.0

Say = Callable[[str], None]


@dataclasses.dataclass(kw_only=True)
class Waits:
    """How long the gangs waited; None: still waiting when nobody watched any longer."""

    plain: dict[str, float | None] = dataclasses.field(default_factory=dict)
    muster: dict[str, float | None] = dataclasses.field(default_factory=dict)
    rejections: dict[str, int] = dataclasses.field(default_factory=dict)


async def tell(town: Town, scene: Scene, say: Say, waits: Waits) -> AsyncIterator[Step]:
    """Play every step and yield it."""
    yield await roll_call(town, scene, say)
    yield await scheduler_alone(town, scene, say, waits)
    async for step in with_muster(town, scene, say, waits):
        yield step


async def roll_call(town: Town, scene: Scene, say: Say) -> Step:
    say(f"Four nodes of 8 GPUs. GPU {LOST} of {LYING} falls off the bus; its plugin and kubelet go on promising 8.")
    await scene.until(lambda: all(scene.admissible(node) == 8 for node in NODES), WAIT)
    await town.lose_gpu(LYING, LOST)
    await town.burden(LYING)
    wanted = {node: 0 if node == LYING else 8 for node in NODES}
    took = await scene.until(lambda: {node: scene.admissible(node) for node in NODES} == wanted, WAIT)
    promised = await town.promised()
    seen = ", ".join(f"{node} {scene.admissible(node)} of {promised[node]}" for node in NODES)
    return Step(
        name="roll-call",
        expected=f"node.status promises 8 everywhere; Muster admits 8 on each node but {LYING}",
        seen=f"admissible {seen}",
        ok=took is not None and set(promised.values()) == {8},
    )


async def scheduler_alone(town: Town, scene: Scene, say: Say, waits: Waits) -> Step:
    say(f"Two gangs, {' and '.join(PLAIN)}: {SIZE} pods of {GPUS} GPUs each. kube-scheduler binds pod by pod.")
    launcher = Launcher(town, PLAIN, is_held=False)
    looking = asyncio.create_task(launcher.run())
    try:
        await launcher.submit()
        await scene.until(lambda: bool(launcher.waits), WATCHED_SECONDS)
        counts = {gang: len(launcher.running(gang)) for gang in PLAIN}
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    waits.plain = {gang: launcher.waits.get(gang) for gang in PLAIN}
    waits.rejections["plain"] = launcher.rejections.total()
    await launcher.clear()
    free = {node: 0 if node == LYING else 8 for node in NODES}
    await scene.until(lambda: {node: scene.admissible(node) for node in NODES} == free, WAIT)
    held = sum(counts.values()) * GPUS
    parts = " and ".join(f"{gang} has {count} of {SIZE} pods" for gang, count in counts.items())
    return Step(
        name="kube-scheduler-alone",
        expected=f"neither gang ever starts, GPUs are held for nothing, and {LYING} refuses pod after pod",
        seen=f"after {WATCHED_SECONDS:g} s {parts}: {held} GPUs held, none at work; "
        f"{LYING} refused {launcher.rejections[LYING]} pods",
        ok=not launcher.waits and held == 24 and launcher.rejections[LYING] > 0,
    )


async def with_muster(town: Town, scene: Scene, say: Say, waits: Waits) -> AsyncIterator[Step]:
    say("The same pods in the same order, held by Muster's gate.")
    launcher = Launcher(town, HELD, is_held=True)
    looking = asyncio.create_task(launcher.run())
    try:
        await launcher.submit()
        yield await _one_runs(scene, say, launcher)
        yield await _the_other_follows(scene, say, launcher)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    waits.muster = {gang: launcher.waits.get(gang) for gang in HELD}
    waits.rejections["muster"] = launcher.rejections.total()
    refused = launcher.rejections.total()
    yield Step(
        name="no-black-hole",
        expected=f"no pod was sent to {LYING}",
        seen=f"{refused} pods refused",
        ok=refused == 0,
    )


async def _one_runs(scene: Scene, say: Say, launcher: Launcher) -> Step:
    first = await scene.until(lambda: bool(launcher.waits), WAIT)
    winner = next(iter(launcher.waits), HELD[0])
    loser = HELD[1 - HELD.index(winner)]
    bound = len(launcher.bound(loser))
    asked = await asyncio.to_thread(scene.fleet.muster, "why", f"gang/{NAMESPACE}/{loser}")
    for line in asked.stdout.strip().splitlines():
        say(f"  {line}")
    return Step(
        name="one-gang-whole",
        expected=f"one gang runs whole; the other holds nothing, and why it waits names {LYING}",
        seen=f"{winner} runs after {launcher.waited(winner):.1f} s; {loser} has {bound} pods bound",
        ok=first is not None and bound == 0 and LYING in asked.stdout,
    )


async def _the_other_follows(scene: Scene, say: Say, launcher: Launcher) -> Step:
    say("The first gang ends; its GPUs are the other's.")
    both = await scene.until(lambda: len(launcher.waits) == len(HELD), WAIT)
    return Step(
        name="both-gangs-run",
        expected="the other gang runs whole once the first is done",
        seen=", ".join(f"{gang} waited {launcher.waited(gang):.1f} s" for gang in HELD),
        ok=both is not None,
    )
