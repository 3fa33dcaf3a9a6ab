"""One real agent under a random sequence of faults and recoveries, against an oracle that knows the fakes' own state.

After every step the admitter's WatchCapacity must come down to the truth within the declared detection time and stay
there; when all is mended it must come back to the whole truth. The seed is printed: MUSTER_CHAOS_SEED repeats a run, as far
as processes repeat; MUSTER_CHAOS_SECONDS makes it longer.
"""

import asyncio
import contextlib
import os
import random
import sys
import time

import psutil
import pytest

from hack.fakenode import kubeletstate
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import GPU_RESOURCE, FakeNode
from muster import client
from tests.e2e import chaosfaults

pytestmark = pytest.mark.e2e

SCALE = 0.06
SETTINGS = {
    "--nvml-deadline-seconds": "1",
    "--nvml-slow-deadline-seconds": "1",
    "--kubelet-deadline-seconds": "1",
    "--processes-seconds": "0.6",
    "--slow-seconds": "0.6",
    "--slice-grace-seconds": "3",
}
DETECT_SECONDS = 6.0
"""Declared: a poll, the deadlines of one cycle, node_ttl."""
STEP_SECONDS = 0.25
"""One look at the admitter takes no longer; what a busy machine adds to it is not the agent's time."""
RUN_SECONDS = float(os.environ.get("MUSTER_CHAOS_SECONDS", "22"))
WHOLE_SECONDS = 40.0
AT_ONCE = 3
"""Faults in force at the same time."""


def truth(world):
    """Return what may be admitted: advertised, open and unheld; nothing if a pick could hit a bad one (P3a)."""
    kubelet = kubeletstate.read_state(world.node.kubelet_state)
    advertised = {device.id for device in kubelet.resources[GPU_RESOURCE] if device.healthy}
    held = {
        id_ for pod in kubelet.pods for container in pod.containers for id_ in container.devices.get(GPU_RESOURCE, ())
    }
    driver = world.driver
    hung = {fault.gpu for fault in driver.faults if fault.hang}
    good = {
        gpu.uuid
        for index, gpu in enumerate(driver.gpus)
        if not (gpu.is_broken or gpu.mig_current or gpu.recovery_action or gpu.processes or index in hung)
    }
    pick = advertised - held
    return len(pick) if world.is_loaded and pick <= good else 0


async def admissible(muster):
    """Return what the admitter would admit on the node now; an admitter that is away admits nothing."""
    try:
        changes = await muster.list_capacity(5)
    except client.Unreachable:
        return 0
    return sum(node.admissible.get(GPU_RESOURCE, 0) for change in changes for node in change.nodes.values())


async def comes_to(muster, world, holds, seconds):
    """Wait until `holds(admissible, truth)`; return how long it took, by steps that the machine had time for."""
    took, began = 0.0, time.monotonic()
    while not holds(seen := await admissible(muster), truth(world)):
        world.fleet.check()
        assert took < seconds, f"{seen} admissible, {truth(world)} true, after {seconds:g} s"
        await asyncio.sleep(0.05)
        now = time.monotonic()
        took += min(STEP_SECONDS, now - began)
        began = now
    return took


async def stays_true(muster, world, seconds):
    """Nothing above the truth is admissible, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = await admissible(muster)
        assert seen <= truth(world), f"{seen} admissible, {truth(world)} true"
        world.fleet.check()
        await asyncio.sleep(0.05)


async def suffer(world, say):
    """Break and mend at random; return the longest time to detect."""
    dice, broken, slowest = world.random, [], 0.0
    async with client.connect(world.fleet.address, world.fleet.client_files) as muster:
        await comes_to(muster, world, lambda seen, true: seen == true == 8, WHOLE_SECONDS)
        descriptors = descriptors_of(world)
        end = time.monotonic() + RUN_SECONDS
        while time.monotonic() < end:
            groups = {fault.group for fault in broken}
            fresh = [fault for fault in chaosfaults.FAULTS if fault.group not in groups]
            if broken and (len(broken) == AT_ONCE or dice.random() < 0.4):
                fault = broken.pop(dice.randrange(len(broken)))
                say(f"mend {fault.name}")
                fault.mend(world)
            else:
                fault = dice.choice(fresh)
                say(f"break {fault.name}")
                fault.break_(world)
                broken += [fault] * (fault.mend is not None)
            took = await comes_to(muster, world, lambda seen, true: seen <= true, DETECT_SECONDS)
            say(f"  true again after {took:.2f} s: {truth(world)}")
            slowest = max(slowest, took)
            await stays_true(muster, world, dice.uniform(0.1, 0.5))
            if not any(fault.blinds for fault in broken):
                took = await comes_to(muster, world, lambda seen, true: seen == true, WHOLE_SECONDS)
                say(f"  all of the truth after {took:.2f} s")
        for fault in broken:
            say(f"mend {fault.name}")
            fault.mend(world)
        await comes_to(muster, world, lambda seen, true: seen == true == 8, WHOLE_SECONDS)
        assert descriptors_of(world) <= descriptors + 12
    return slowest


def descriptors_of(world):
    """Return the open descriptors of the agent and its reader."""
    agent = psutil.Process(world.fleet.pid(world.node.name))
    return sum(process.num_fds() for process in (agent, *agent.children()))


def ours(folder):
    """List the processes that were started for this folder and are still there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in argument for argument in process.cmdline()):
                found.append(process)
    return found


def test_whatever_happens_nothing_is_admitted_that_is_not_true(tmp_path):
    """No number above the truth, no crash, no traceback, nothing left behind; all of the truth when all is well."""
    seed = int(os.environ.get("MUSTER_CHAOS_SEED", random.randrange(1 << 32)))
    began, story = time.monotonic(), [f"MUSTER_CHAOS_SEED={seed}"]

    def say(text):
        story.append(f"{time.monotonic() - began:6.2f} {text}")

    node = FakeNode(tmp_path, "gpu-a1")
    settings = {**SETTINGS, "--checkpoint": str(tmp_path / "checkpoint-of-the-agent")}
    with Fleet(tmp_path, [node], scale=SCALE, settings=settings) as fleet:
        world = chaosfaults.World(fleet, node, random.Random(seed))
        try:
            fleet.start()
            asyncio.run(suffer(world, say))
        except Exception:
            story += ["", *fleet.log_of(node.name).splitlines()[-25:]]
            raise
        finally:
            sys.stdout.write("\n".join([*story, ""]))  # shown with a failure
            chaosfaults.release(world)
    log = fleet.log_of(node.name) + fleet.log_of("admitter")
    assert "Traceback" not in log
    assert "cycle failed" not in log
    psutil.wait_procs(ours(tmp_path), timeout=5)
    assert ours(tmp_path) == []
