"""Injuries of single GPUs: sick, lost, cut otherwise, or used by somebody (faults.md B, C, E).

Invariant: a GPU that is hurt belongs to its injury until it is mended, so that mending one does not mend another.
"""

import dataclasses
from collections.abc import Callable

from hack import fakenvml
from hack.fakenode import proctable
from hack.soak.injuries import NOTHING, PLUGIN_LIST, Hurt, Injury, Shows, shows
from hack.soak.oracle import PLANES
from hack.soak.world import MIG_LAYOUT, World

_LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
_ORPHAN = "7d1c1f9e-0000-4000-8000-00000000dead"
_Parts = tuple[Callable[[], None], Shows]


def _on_gpu(hurt: Callable[[World, int], _Parts]) -> Callable[[World], Hurt]:
    """Hurt a GPU that is nobody else's, and give it back when it is mended."""

    def inflict(world: World) -> Hurt:
        gpu = world.take_gpu()
        mend, said = hurt(world, gpu)

        def mend_and_give_back() -> None:
            mend()
            world.busy.discard(gpu)

        return Hurt(mend=mend_and_give_back, shows=said)

    return inflict


def _of(world: World, gpu: int, cause: str, *, verdict: str = "OVER", wait: float = 0.0) -> Shows:
    return shows(cause, verdict=verdict, wait=wait, devices=(world.driver.gpus[gpu].uuid, *world.ids_of(gpu)))


def _fact(cause: str, wait: float = 0.0, verdict: str = "OVER", **changes: int) -> Callable[[World], Hurt]:
    """A fact that the driver tells of a GPU."""

    def hurt(world: World, gpu: int) -> _Parts:
        before = {name: getattr(world.driver.gpus[gpu], name) for name in changes}
        world.set_gpu(gpu, **changes)
        return (lambda: world.set_gpu(gpu, **before)), _of(world, gpu, cause, verdict=verdict, wait=wait)

    return _on_gpu(hurt)


def _failing(error: str, fn: str, cause: str, *, verdict: str) -> Callable[[World], Hurt]:
    """A call about a GPU that fails: nobody can say anything about the node's resource."""

    def hurt(world: World, gpu: int) -> _Parts:
        said = dataclasses.replace(shows(cause, verdict=verdict), through=PLANES - {"api"})
        return world.add_fault(fakenvml.Fault(fn=fn, gpu=gpu, error=error)), said

    return _on_gpu(hurt)


def _lost(world: World, gpu: int) -> _Parts:
    world.set_gpu(gpu, lost=True)
    return (lambda: world.reset(gpu)), _of(world, gpu, "GpuLostStillPromised", wait=30)


def _needs_reset(world: World, gpu: int) -> _Parts:
    world.set_gpu(gpu, reset_required=True)
    return (lambda: world.reset(gpu)), _of(world, gpu, "GpuLostStillPromised", wait=30)


def _hang(world: World, gpu: int) -> _Parts:
    end = world.add_fault(fakenvml.Fault(gpu=gpu, hang=True))

    def mend() -> None:
        end()
        world.kill_reader()  # Its thread is lost in that call.

    return mend, _of(world, gpu, "NvmlHangGsp", wait=20)


def _slow(world: World, gpu: int) -> _Parts:
    return world.add_fault(fakenvml.Fault(fn="nvmlDeviceGetPowerUsage", gpu=gpu, slow_ms=300)), NOTHING


def _xid_and_reset(world: World, gpu: int) -> _Parts:
    world.drive(lambda state: state.with_gpu(gpu, recovery_action=1).with_xid(gpu, 109))
    world.log_xid(gpu, 109)
    return (lambda: world.set_gpu(gpu, recovery_action=0)), _of(world, gpu, "IgnoredXidNeedsReset", wait=30)


def _harmless_xid(world: World, gpu: int) -> _Parts:
    """An application's own fault: nothing may change."""
    code = world.dice.choice((13, 31, 43, 45, 94))
    world.drive(lambda state: state.with_xid(gpu, code))
    world.log_xid(gpu, code)
    return (lambda: None), NOTHING


def _hidden(world: World) -> Hurt:
    """The driver lists one GPU less than the bus has and the kubelet promises (B2, B7)."""
    last = len(world.driver.gpus) - 1
    world.busy.add(last)
    world.drive(lambda state: dataclasses.replace(state, counted=last))

    def mend() -> None:
        world.drive(lambda state: dataclasses.replace(state, counted=None))
        world.busy.discard(last)

    return Hurt(mend=mend, shows=shows("PresentOnBusAbsentInNvml", verdict="UNDER"))


# -- MIG


def _recut(count: int, *causes: str) -> Callable[[World], Hurt]:
    """The instances of a GPU are others than those that the plugin promises (C1, C11)."""

    def hurt(world: World, gpu: int) -> _Parts:
        world.round += 1
        fresh = world.round
        layout = MIG_LAYOUT[:count]
        world.drive(lambda state: fakenvml.with_instances(state, gpu, layout, round_=fresh), host_too=True)

        def mend() -> None:
            world.drive(lambda state: fakenvml.with_instances(state, gpu, MIG_LAYOUT), host_too=True)

        return mend, shows(*causes)

    return _on_gpu(hurt)


def _into_mig(world: World, gpu: int) -> _Parts:
    """A whole GPU is cut behind the plugin's back (C1)."""
    layout = (("1g.10gb", 0), ("1g.10gb", 1))
    world.drive(lambda state: fakenvml.with_instances(state, gpu, layout), host_too=True)

    def mend() -> None:
        world.drive(lambda state: fakenvml.with_mode(state, gpu, current=False), host_too=True)

    return mend, _of(world, gpu, "ReconfiguredPluginNotRestarted", verdict="WRONG_SHAPE")


def _mode_pending(world: World, gpu: int) -> _Parts:
    """A note once it has lasted for two minutes, and no number moves (C6)."""
    now = world.driver.gpus[gpu].mig_current
    world.set_gpu(gpu, mig_pending=1 - (now or 0))
    return (lambda: world.set_gpu(gpu, mig_pending=now)), NOTHING


# -- who uses it


def _process(cgroup: str, owner: str, cause: str, wait: float) -> Callable[[World], Hurt]:
    def hurt(world: World, gpu: int) -> _Parts:
        pid = world.start_gpu_process(gpu, cgroup, owner)
        return (lambda: world.end_gpu_process(pid)), _of(world, gpu, cause, verdict="CONTENDED", wait=wait)

    return _on_gpu(hurt)


def _unseen_end(world: World) -> Hurt:
    """Somebody uses a GPU, its process list fails, and then that somebody leaves: nobody has seen it (design.md 5)."""
    gpu = world.take_gpu()
    pid = world.start_gpu_process(gpu, proctable.HOST_CGROUP, "")
    ends: list[Callable[[], None]] = []

    def leave_unseen() -> None:
        ends.append(world.add_fault(fakenvml.Fault(fn=_LIST, gpu=gpu, error="UNKNOWN")))
        world.remembered.add(gpu)
        world.end_gpu_process(pid)

    def mend() -> None:
        for end in ends:
            end()
        world.end_gpu_process(pid)
        world.remembered.discard(gpu)
        world.busy.discard(gpu)

    return Hurt(
        mend=mend, then=leave_unseen, shows=_of(world, gpu, "ProcessOutsideKubernetes", verdict="CONTENDED", wait=30)
    )


def _memory(world: World, gpu: int) -> _Parts:
    before = world.driver.gpus[gpu].used
    world.set_gpu(gpu, used=20 << 30)
    said = _of(world, gpu, "MemoryHeldNoProcess", verdict="CONTENDED", wait=60)
    return (lambda: world.set_gpu(gpu, used=before)), said


# -- where each fits


def _spare(world: World) -> bool:
    return bool(world.spare())


def _has(field: str) -> Callable[[World], bool]:
    """A board whose driver tells this fact."""
    return lambda world: _spare(world) and getattr(world.driver.gpus[0], field) is not None


def _last_is_spare(world: World) -> bool:
    return len(world.driver.gpus) - 1 in world.spare_all()


def _is_mig(world: World) -> bool:
    return world.is_mig and _spare(world)


def _is_h100(world: World) -> bool:
    return _spare(world) and not world.is_mig and "H100" in world.driver.gpus[0].name


def _is_whole(world: World) -> bool:
    return _spare(world) and not world.is_mig


def _may_hang(world: World) -> bool:
    return _spare(world) and not world.is_elder


_DRIVER = frozenset({"session"})
INJURIES = (
    Injury(name="gpu lost", group="B", inflict=_on_gpu(_lost), fits=_spare, weight=2),
    Injury(name="gpu needs a reset", group="B", inflict=_on_gpu(_needs_reset), fits=_spare),
    Injury(name="gpu hidden", group="B", inflict=_hidden, fits=_last_is_spare),
    Injury(name="gpu hangs", group="B", inflict=_on_gpu(_hang), fits=_may_hang, touches=_DRIVER, weight=0.5),
    Injury(name="gpu slow", group="N", inflict=_on_gpu(_slow), fits=_spare),
    Injury(name="xid, reset wanted", group="B", inflict=_on_gpu(_xid_and_reset), fits=_has("recovery_action"), weight=2),
    Injury(name="xid of an application", group="N", inflict=_on_gpu(_harmless_xid), fits=_spare),
    Injury(
        name="reboot wanted",
        group="B",
        inflict=_fact("IgnoredXidNeedsReset", 30, recovery_action=2),
        fits=_has("recovery_action"),
    ),
    Injury(
        name="remap pending", group="B", inflict=_fact("UncorrectableEccUnnoticed", remap_pending=1), fits=_has("remap_pending")
    ),
    Injury(name="remap failed", group="B", inflict=_fact("RowRemapFailed", remap_failed=1), fits=_has("remap_failed")),
    Injury(
        name="page retirement pending",
        group="B",
        inflict=_fact("UncorrectableEccUnnoticed", retired_pending=1),
        fits=_has("retired_pending"),
        weight=2,
    ),
    Injury(name="sram", group="B", inflict=_fact("SramEccThreshold", sram_threshold=1), fits=_has("sram_threshold")),
    Injury(name="gpu drained", group="B", inflict=_fact("GpuDrained", drain=1), fits=_has("drain")),
    Injury(name="fabric down", group="D", inflict=_fact("FabricManagerDown", fabric_state=2), fits=_has("fabric_state")),
    Injury(
        name="gpu without permission",
        group="H",
        inflict=_failing("NO_PERMISSION", "nvmlDeviceGetHandleByIndex_v2", "PartialNvmlView", verdict="BLIND"),
        fits=_is_whole,
    ),
    Injury(
        name="gpu answers UNKNOWN",
        group="H",
        inflict=_failing("UNKNOWN", "nvmlDeviceGetUUID", "GpuUnreadable", verdict="BLIND"),
        fits=_is_whole,
    ),
    Injury(name="mig rotated", group="C", inflict=_recut(3, "MigUuidRotated", "ReconfiguredPluginNotRestarted"), touches=PLUGIN_LIST, fits=_is_mig, weight=4),
    Injury(name="mig re-cut", group="C", inflict=_recut(2, "ReconfiguredPluginNotRestarted", "MigUuidRotated"), touches=PLUGIN_LIST, fits=_is_mig, weight=3),
    Injury(name="mig instances gone", group="C", inflict=_recut(0, "ReconfiguredPluginNotRestarted", "MigUuidRotated"), touches=PLUGIN_LIST, fits=_is_mig, weight=3),
    Injury(name="gpu cut", group="C", inflict=_on_gpu(_into_mig), fits=_is_h100, weight=3),
    Injury(name="mig mode pending", group="N", inflict=_on_gpu(_mode_pending), fits=_has("mig_current")),
    Injury(
        name="process outside kubernetes",
        group="E",
        inflict=_process(proctable.HOST_CGROUP, "", "ProcessOutsideKubernetes", 30),
        fits=_is_whole,
        weight=2,
    ),
    Injury(
        name="process of a pod that is gone",
        group="E",
        inflict=_process(proctable.pod_cgroup(_ORPHAN), _ORPHAN, "TerminatingPodOnGpu", 300),
        fits=_is_whole,
    ),
    Injury(name="process leaves unseen", group="E", inflict=_unseen_end, fits=_is_whole, weight=2),
    Injury(name="memory held", group="E", inflict=_on_gpu(_memory), fits=_is_whole),
)  # fmt: skip
