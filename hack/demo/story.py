"""The steps of the story, in order. Each does one thing to the fleet and says what the admitter made of it.

Every step is a claim with two sides, what is expected and what was seen, and none relies on luck: they wait for the
state they claim, within a bound, and fail with what they saw instead.

The times here bound a wait; they are no promises. Fault durations are those of faults.md section 2, times the scale.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from hack import fakenvml
from hack.demo.scene import GANG, NAMESPACE, Scene, Step
from hack.fakenode.node import GPU_RESOURCE, with_mig
from muster.model.admission import Leased, Started, Waiting
from muster.model.report import DeviceState, Finding, Verdict

WHOLE = ("gpu-a", "gpu-b", "gpu-c")
SICK, SLICED = "gpu-c", "gpu-d"
SLICES = "nvidia.com/mig-3g.40gb"
LAYOUT = (("3g.40gb", 0), ("3g.40gb", 4))
LOST, STRUCK, HUNG = 5, 2, 4
RESET = 1
"""NVML field 230: the driver wants the GPU reset."""
WAIT = 12.0

Say = Callable[[str], None]


async def tell(scene: Scene, say: Say) -> AsyncIterator[Step]:
    """Play every step and yield it."""
    for play in (
        roll_call, lost_gpu, count_based_trap, gang_waits, fault_clears, gang_starts, xid_strikes, mig_drifts,
        driver_hangs, agent_killed, admitter_restarted, gang_ends,
    ):  # fmt: skip
        yield await play(scene, say)


async def roll_call(scene: Scene, say: Say) -> Step:
    say("Four nodes answer roll-call: three with 8 whole H100 each, one A100 cut into 16 MIG slices.")
    wanted = {**dict.fromkeys(WHOLE, GPU_RESOURCE), SLICED: SLICES}
    units = {**dict.fromkeys(WHOLE, 8), SLICED: 16}

    def complete() -> bool:
        return all(scene.admissible(node, name) == units[node] for node, name in wanted.items())

    took = await scene.until(complete, WAIT * 2)
    seen = "; ".join(scene.line(node, name) for node, name in wanted.items())
    return Step(
        name="roll-call", expected="8 + 8 + 8 GPUs and 16 slices admissible, all OK", seen=seen, ok=took is not None
    )


async def lost_gpu(scene: Scene, say: Say) -> Step:
    say(f"GPU {LOST} of {SICK} falls off the bus. No event, no Xid; kubelet and device plugin go on promising 8.")
    await asyncio.to_thread(scene.fleet.nodes[SICK].lose_gpu, LOST)

    def fell() -> bool:
        report = scene.resource(SICK)
        return report is not None and report.verdict is Verdict.OVER and scene.admissible(SICK) == 0

    took = await scene.until(fell, WAIT)
    return Step(
        name="gpu-lost",
        expected=f"{SICK} OVER: 8 advertised, 7 usable, and 0 admissible, since nobody can choose the device",
        seen=scene.line(SICK) + _after(took),
        ok=took is not None,
    )


async def count_based_trap(scene: Scene, say: Say) -> Step:
    counted = sum(scene.fleet.nodes[node].counted_free() for node in WHOLE)
    real = sum(scene.admissible(node) for node in WHOLE)
    say(f"A scheduler that counts sees {counted} free GPUs and would bind all of a 24-GPU gang, then wait for ever.")
    return Step(
        name="count-based-trap",
        expected="24 by count, fewer in truth",
        seen=f"{counted} by count; {real} that may be admitted",
        ok=counted == 24 and real == 16,
    )


async def gang_waits(scene: Scene, say: Say) -> Step:
    say(f"{NAMESPACE}/{GANG} asks for 24 GPUs, 3 pods of 8. Muster holds all of it rather than two thirds.")
    await scene.ask()
    took = await scene.until(lambda: bool(scene.states) and isinstance(scene.states[-1], Waiting), WAIT)
    asked = await asyncio.to_thread(scene.fleet.muster, "why", f"gang/{NAMESPACE}/{GANG}")
    for line in asked.stdout.strip().splitlines():
        say(f"  {line}")
    return Step(
        name="gang-waits",
        expected=f"waiting, no lease, and the reason names {SICK}; `muster why` exits with 1",
        seen=f"{scene.last_state()} (exit {asked.returncode})",
        ok=took is not None and SICK in scene.last_state() and SICK in asked.stdout and asked.returncode == 1,
    )


async def fault_clears(scene: Scene, say: Say) -> Step:
    say("An operator resets the GPU. The driver refuses while anybody holds it, so the agent is told to let go first.")
    node = scene.fleet.nodes[SICK]
    refused = await asyncio.to_thread(_reset, scene)
    released = await asyncio.to_thread(scene.fleet.release, SICK, 5)
    worked = await asyncio.to_thread(_reset, scene)
    returned = await asyncio.to_thread(scene.fleet.release, SICK, 0)
    await asyncio.to_thread(node.restart_plugin)
    await asyncio.to_thread(scene.fleet.publish)
    say(f"  reset with the session open: {refused or 'worked'}; `muster-agent release`: {released.stdout.strip()}")
    took = await scene.until(lambda: scene.lease() is not None, WAIT * 2)
    lease = scene.lease()
    placed = {part.node: part.units for part in lease.placements} if lease else {}
    return Step(
        name="fault-clears",
        expected="reset refused, then done after release; the gang is leased 8 + 8 + 8 in one step",
        seen=f"{refused or 'not refused'}, then {worked or 'reset'}; {scene.last_state()}" + _after(took),
        ok=bool(refused)
        and not worked
        and placed == dict.fromkeys(WHOLE, 8)
        and not released.returncode + returned.returncode,
    )


async def gang_starts(scene: Scene, say: Say) -> Step:
    say(
        "The lease becomes pods; the kubelets hand out devices; the agents see them, and only then has the gang started."
    )
    lease = scene.lease()
    if lease is not None:
        await scene.start_pods(lease)
    took = await scene.until(lambda: bool(scene.states) and isinstance(scene.states[-1], Started), WAIT)
    taken = await scene.until(lambda: all(scene.admissible(node) == 0 for node in WHOLE), WAIT)
    return Step(
        name="gang-starts",
        expected="started; nothing is left to admit on the three nodes",
        seen=scene.last_state() + _after(took),
        ok=took is not None and taken is not None,
    )


async def xid_strikes(scene: Scene, say: Say) -> Step:
    say(
        f"Xid 95 (uncontained memory error) on GPU {STRUCK} of gpu-b, under a running pod. The event wakes the agent; no poll is waited for."
    )
    node = scene.fleet.nodes["gpu-b"]
    uuid = node.uuid(STRUCK)
    await asyncio.to_thread(node.raise_xid, STRUCK, 95, recovery_action=RESET)

    def struck() -> bool:
        report = scene.view["gpu-b"].report
        states = {device.uuid: device.state for device in report.devices}
        return states.get(uuid) in (DeviceState.UNHEALTHY, DeviceState.LOST) and any(
            uuid in pod.devices for pod in report.pods
        )

    took = await scene.until(struck, WAIT)
    pods = [f"{pod.pod} {pod.state.value}" for pod in scene.view["gpu-b"].report.pods]
    return Step(
        name="xid",
        expected="the GPU unhealthy and the pod on it named",
        seen=f"{scene.line('gpu-b')}; pods: {', '.join(pods) or 'none'}" + _after(took),
        ok=took is not None,
    )


async def mig_drifts(scene: Scene, say: Say) -> Step:
    say(f"{SLICED} is cut anew. Counts are equal, 16 and 16, but every UUID that the plugin promises is gone.")
    node = scene.fleet.nodes[SLICED]
    resources = await asyncio.to_thread(with_mig, node, LAYOUT, round_=1)
    fell = await scene.until(lambda: scene.admissible(SLICED, SLICES) == 0, WAIT)
    drift = scene.line(SLICED, SLICES)
    causes = sorted({finding.cause for finding in _findings(scene, SLICED, SLICES)})
    await asyncio.to_thread(node.restart_plugin, resources)
    await asyncio.to_thread(scene.fleet.publish)
    back = await scene.until(lambda: scene.admissible(SLICED, SLICES) == 16, WAIT * 2)
    return Step(
        name="mig-drift",
        expected="0 admissible while the promise is stale, 16 again after the plugin's restart",
        seen=f"{drift} ({', '.join(causes)}); then {scene.line(SLICED, SLICES)}" + _after(fell),
        ok=fell is not None and back is not None and "present 0" in drift,
    )


async def driver_hangs(scene: Scene, say: Say) -> Step:
    say(f"The driver stops answering for GPU {HUNG} of gpu-a: the call never returns. The feed must not wait for it.")
    node = scene.fleet.nodes["gpu-a"]
    uuid = node.uuid(HUNG)
    await asyncio.to_thread(node.drive, lambda state: state.with_fault(gpu=HUNG, hang=True))

    def marked() -> bool:
        states = {device.uuid: device.state for device in scene.view["gpu-a"].report.devices}
        bad = (DeviceState.STALE, DeviceState.UNKNOWN, DeviceState.UNHEALTHY, DeviceState.LOST)
        return states.get(uuid) in bad and sum(state is DeviceState.HEALTHY for state in states.values()) == 7

    took = await scene.until(marked, WAIT)
    states = {device.uuid: device for device in scene.view["gpu-a"].report.devices}
    fresh = not scene.view["gpu-a"].stale
    say(
        "  The driver recovers, but the call that hangs never returns: its reader is killed, and the agent starts another."
    )
    await asyncio.to_thread(node.drive, lambda state: state.without_faults(gpu=HUNG))
    scene.fleet.kill_reader("gpu-a")
    healed = await scene.until(
        lambda: all(device.state is DeviceState.HEALTHY for device in scene.view["gpu-a"].report.devices), WAIT * 2
    )
    return Step(
        name="driver-hang",
        expected="that GPU marked, seven healthy, the node not stale; all eight again with a new reader",
        seen=f"{states[uuid].state.value} ({states[uuid].reason}), node {'fresh' if fresh else 'stale'}" + _after(took),
        ok=took is not None and fresh and healed is not None,
    )


async def agent_killed(scene: Scene, say: Say) -> Step:
    say(f"The agent of {SLICED} is killed with SIGKILL. Silence admits nothing.")
    await asyncio.to_thread(scene.fleet.kill, SLICED)
    silent = await scene.until(lambda: scene.view[SLICED].stale and scene.admissible(SLICED, SLICES) == 0, WAIT)
    quiet = scene.line(SLICED, SLICES)
    scene.fleet.start_agent(SLICED)
    back = await scene.until(lambda: scene.admissible(SLICED, SLICES) == 16, WAIT * 2)
    return Step(
        name="agent-killed",
        expected="stale and 0 admissible after node_ttl; 16 again from its own evidence when it is back",
        seen=f"{quiet}; then {scene.line(SLICED, SLICES)}" + _after(silent),
        ok=silent is not None and back is not None,
    )


async def admitter_restarted(scene: Scene, say: Say) -> Step:
    say(
        "The admitter is killed and started again. There is no database: agents and the client bring back what it knew."
    )
    before = scene.lease()
    await asyncio.to_thread(scene.fleet.kill, "admitter")
    scene.view.clear()
    scene.fleet.start_admitter()
    back = await scene.until(
        lambda: len(scene.view) == 4 and not any(node.stale for node in scene.view.values()), WAIT * 3
    )

    def status() -> str:
        return scene.fleet.muster("why", f"gang/{NAMESPACE}/{GANG}").stdout

    state = ""
    for _ in range(40):
        state = await asyncio.to_thread(status)
        if "started" in state:
            break
        await asyncio.sleep(0.3)
    leases = {answer.lease_id for answer in scene.states if isinstance(answer, Leased)}
    free = sum(scene.admissible(node) for node in WHOLE)
    return Step(
        name="admitter-restarted",
        expected="four nodes and the gang, started, under the lease it had; nothing admitted twice",
        seen=f"{len(scene.view)} nodes; {' '.join(state.split())[:90]}; {len(leases)} lease; {free} admissible"
        + _after(back),
        ok=back is not None and "started" in state and before is not None and leases == {before.lease_id} and free == 0,
    )


async def gang_ends(scene: Scene, say: Say) -> Step:
    say("The job is done. Its GPUs come back, but not the one that the Xid took.")
    ended = await scene.end()
    took = await scene.until(lambda: scene.admissible("gpu-a") == 8 and scene.admissible("gpu-c") == 8, WAIT * 2)
    return Step(
        name="gang-ends",
        expected="ended; 8 + 8 on gpu-a and gpu-c, 0 on gpu-b until its GPU is reset",
        seen=f"{ended.reason}; " + "; ".join(scene.line(node) for node in WHOLE) + _after(took),
        ok=took is not None and scene.admissible("gpu-b") == 0,
    )


def _reset(scene: Scene) -> str:
    """Try a reset; return why it was refused, empty if it was done."""
    try:
        scene.fleet.nodes[SICK].reset_gpu(LOST)
    except fakenvml.InUse as refusal:
        return re.sub(r"\s+", " ", f"in use ({type(refusal).__name__})")
    return ""


def _findings(scene: Scene, node: str, name: str) -> tuple[Finding, ...]:
    report = scene.resource(node, name)
    return (*(report.findings if report else ()), *scene.view[node].report.node_findings)


def _after(seconds: float | None) -> str:
    return f" [{seconds:.1f} s]" if seconds is not None else " [timed out]"
