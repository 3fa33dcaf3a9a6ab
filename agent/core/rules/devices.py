"""Faults of single GPUs: lost, silent, or answering and sick (faults.md B2, B5, B6, B8, H5).

Input: every advertised id, what the driver says about its GPU. Output: one suspicion per (resource, GPU); its ids are bad.

Invariant: an id whose GPU cannot be opened is never usable, whatever the reason. A reading that is Unknown makes nobody
sick (it goes to `unverified`), but a GPU whose identifying query fails is never healthy: a reason without a row is BLIND.

Why the recovery action comes first: see agent.model.xid.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from agent.core.absence import Absence, absence_of
from agent.core.condition import HEALTHY, Condition
from agent.core.context import Context
from agent.core.rules import degraded
from agent.model import planes, xid
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.policy import Mode, Policy
from agent.model.snapshot import DeviceId, Snapshot, Unit
from muster.model.reading import Known, Unknown
from muster.model.report import DeviceState, Verdict
from muster.model.vocabulary import Reason, Remedy


def _bad(rule: str, cause: str, reason: Reason, remedy: Remedy, clears_when: str, wait: str = "") -> Rule:
    return Rule(
        id=rule,
        cause=cause,
        verdict=Verdict.OVER,
        effect=Effect.BAD,
        reason=reason,
        remedy=remedy,
        wait=wait,
        clears_when=clears_when,
    )


LOST = _bad(
    "B2", "GpuLostStillPromised", Reason.GPU_LOST, Remedy.DRAIN_AND_RESET_GPU,
    "NVML opens the GPU, or the kubelet no longer advertises it", "gpu-lost",
)  # fmt: skip
HANGS = _bad(
    "B8", "NvmlHangGsp", Reason.DRIVER_UNRESPONSIVE, Remedy.REBOOT_NODE,
    "the GPU answers within its deadline", "driver-hang",
)  # fmt: skip
HARDWARE = _bad(
    "gpu-hardware", "GpuHardwareFault", Reason.READ_FAILED, Remedy.REPLACE_GPU,
    "the GPU's identifying query succeeds", "gpu-lost",
)  # fmt: skip
ACTION = _bad(
    "B5", "IgnoredXidNeedsReset", Reason.RECOVERY_ACTION, Remedy.DRAIN_AND_RESET_GPU,
    "the driver's recovery action is none", "recovery-action",
)  # fmt: skip
PENDING = _bad(
    "B6", "UncorrectableEccUnnoticed", Reason.ROW_REMAP, Remedy.DRAIN_AND_RESET_GPU,
    "no row remap and no retired page is pending",
)  # fmt: skip
REMAP_FAILED = _bad(
    "row-remap-failed", "RowRemapFailed", Reason.ROW_REMAP, Remedy.REPLACE_GPU, "the GPU reports no failed row remap"
)
SRAM = _bad(
    "sram-threshold", "SramEccThreshold", Reason.ECC, Remedy.REPLACE_GPU,
    "the driver no longer says that the SRAM error threshold is exceeded",
)  # fmt: skip
FATAL_XID = _bad(
    "xid-fatal", "FatalXid", Reason.XID, Remedy.DRAIN_AND_RESET_GPU,
    "the node is rebooted, or the driver's recovery action becomes readable and is none",
)  # fmt: skip
INSTANCE_XID = _bad(
    "B10", "OneMigFaultUnreported", Reason.XID, Remedy.DRAIN_AND_RESET_GPU,
    "the instance is gone, the node is rebooted, or the driver's recovery action becomes readable and is none",
)  # fmt: skip
DRAINED = _bad("gpu-drained", "GpuDrained", Reason.MAINTENANCE, Remedy.INVESTIGATE, "the driver's drain state is off")
NOT_PASSED = _bad(
    "F4", "PassthroughBound", Reason.CANNOT_JOIN, Remedy.RESTART_DEVICE_PLUGIN,
    "the passthrough plugin offers only groups that are bound to vfio",
)  # fmt: skip
NOT_READY = _bad(
    "confidential-not-ready", "ConfidentialNotReady", Reason.NODE_STARTING, Remedy.INVESTIGATE,
    "the GPU's ready state is set, or confidential mode is off",
)  # fmt: skip
CANNOT_JOIN = _bad(
    "H5", "UuidPrefixForms", Reason.CANNOT_JOIN, Remedy.INVESTIGATE, "the id joins to a device that the driver shows"
)
UNREADABLE = Rule(
    id="gpu-unreadable",
    cause="GpuUnreadable",
    verdict=Verdict.BLIND,
    effect=Effect.BLIND,
    reason=Reason.READ_FAILED,
    remedy=Remedy.INVESTIGATE,
    clears_when="the GPU's identifying query succeeds",
)

RULES = (
    LOST,
    HANGS,
    HARDWARE,
    ACTION,
    PENDING,
    REMAP_FAILED,
    SRAM,
    FATAL_XID,
    INSTANCE_XID,
    DRAINED,
    NOT_READY,
    NOT_PASSED,
    CANNOT_JOIN,
    UNREADABLE,
)


_BY_ERROR: Mapping[str, Condition] = {
    "GPU_IS_LOST": Condition(state=DeviceState.LOST, reason=Reason.GPU_LOST, rule=LOST),
    "NOT_FOUND": Condition(state=DeviceState.LOST, reason=Reason.GPU_NOT_FOUND, rule=LOST),
    "GPU_NOT_FOUND": Condition(state=DeviceState.LOST, reason=Reason.GPU_NOT_FOUND, rule=LOST),
    "RESET_REQUIRED": Condition(state=DeviceState.UNHEALTHY, reason=Reason.RESET_REQUIRED, rule=LOST),
    "TIMEOUT": Condition(state=DeviceState.UNKNOWN, reason=Reason.DRIVER_UNRESPONSIVE, rule=HANGS),
    "INSUFFICIENT_POWER": Condition(state=DeviceState.UNHEALTHY, reason=Reason.READ_FAILED, rule=HARDWARE),
    "CORRUPTED_INFOROM": Condition(state=DeviceState.UNHEALTHY, reason=Reason.READ_FAILED, rule=HARDWARE),
    "IRQ_ISSUE": Condition(state=DeviceState.UNHEALTHY, reason=Reason.READ_FAILED, rule=HARDWARE),
}
_NO_ROW = Condition(state=DeviceState.UNKNOWN, reason=Reason.READ_FAILED, rule=UNREADABLE)
GONE = Condition(state=DeviceState.LOST, reason=Reason.GPU_NOT_FOUND, rule=LOST, detail="NVML does not list it")
UNJOINABLE = Condition(
    state=DeviceState.UNKNOWN, reason=Reason.CANNOT_JOIN, rule=CANNOT_JOIN, detail="joins to nothing on this node"
)

NOT_BOUND = Condition(
    state=DeviceState.UNKNOWN,
    reason=Reason.CANNOT_JOIN,
    rule=NOT_PASSED,
    detail="no group of that number is bound to vfio",
)
"""An id beside others that are: the passthrough plugin keeps an old count (faults.md F4, the stale variant)."""

_HARMLESS_ACTIONS = (planes.RecoveryAction.NONE, planes.RecoveryAction.RECOVER_IMEX_DOMAIN)
"""RECOVER_IMEX_DOMAIN is about other nodes (agents.md b1)."""


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a suspicion for every GPU that makes advertised ids bad."""
    if isinstance(context.snapshot.nvml, Unknown):
        return
    for view in context.snapshot.resources:
        hits: dict[tuple[str, str], tuple[Condition, list[DeviceId]]] = {}
        is_passthrough = any(device.is_passthrough for device in view.ids())
        for device in view.ids():
            condition, subject = _of_id(context, device, is_passthrough=is_passthrough)
            if condition.rule is not None:
                key = (condition.rule.id, subject)
                hits.setdefault(key, (condition, []))[1].append(device)
        for (_, subject), (condition, devices) in sorted(hits.items()):
            yield _suspicion(view.name, subject, condition, devices, danger=_danger(context, condition))


def _danger(context: Context, condition: Condition) -> str:
    """Return what a lost GPU may do to the others: a plugin that walks all of them before it chooses (faults.md B3)."""
    is_walking = any(plugin.config.get("preferredAllocation") == "true" for plugin in context.snapshot.plugins)
    return "; its plugin's preferred allocation may fail for every pod" if condition.rule is LOST and is_walking else ""


def _suspicion(resource: str, subject: str, condition: Condition, devices: list[DeviceId], *, danger: str) -> Suspicion:
    assert condition.rule is not None
    detail = f"{subject}: {condition.detail or condition.reason.value}{danger}"
    return Suspicion(
        rule=condition.rule,
        resource=resource,
        subject=subject,
        ids=tuple(device.id for device in devices),
        devices=tuple(sorted({device.uuid for device in devices})),
        units=len(devices),
        detail=detail,
        reason=condition.reason,
    )


def _of_id(context: Context, device: DeviceId, *, is_passthrough: bool) -> tuple[Condition, str]:
    """Return the condition of an id, and the UUID that its evidence is counted for."""
    if device.unit is not None:
        return _sick(device.unit, context.snapshot, context.policy) or HEALTHY, device.unit.uuid
    if device.is_passthrough:
        return HEALTHY, device.uuid
    absence, gpu = absence_of(device, context.snapshot, context.history)
    if absence is Absence.SILENT and gpu is not None:
        return of_error(gpu.error), gpu.uuid
    if absence is Absence.GPU_GONE:
        return GONE, device.uuid
    if absence is Absence.UNJOINABLE:
        return (NOT_BOUND if is_passthrough else UNJOINABLE), device.uuid
    return HEALTHY, device.uuid  # HIDDEN and MIG_GONE are other modules' (absence.py)


def of_error(error: str) -> Condition:
    """Return what a GPU is whose identifying query gives this error."""
    return dataclasses.replace(_BY_ERROR.get(error, _NO_ROW), detail=error)


def of_unit(unit: Unit, snapshot: Snapshot, policy: Policy) -> Condition:
    """Return what a unit is that the driver opens: sick before degraded, by the rules that count."""
    sick = _sick(unit, snapshot, policy)
    if sick is not None and _mode(sick, policy) is Mode.ENFORCE:
        return sick
    return next(degraded.conditions_of(unit, snapshot, policy), HEALTHY)


def _sick(unit: Unit, snapshot: Snapshot, policy: Policy) -> Condition | None:
    """Return the first check that finds it sick; what is only observed does not stand in front of what counts."""
    found = (*(check(unit.gpu) for check in _CHECKS), _xid(unit, snapshot, policy))
    sick = [condition for condition in found if condition is not None and _mode(condition, policy) is not Mode.OFF]
    return min(sick, key=lambda condition: _mode(condition, policy) is not Mode.ENFORCE, default=None)


def _mode(condition: Condition, policy: Policy) -> Mode:
    return Mode.ENFORCE if condition.rule is None else policy.mode(condition.rule.id)


def _recovery_action(gpu: planes.Gpu) -> Condition | None:
    match gpu.recovery_action:
        case Known(action) if action is planes.RecoveryAction.UNSUPPORTED or action in _HARMLESS_ACTIONS:
            return None
        case Known(action):
            return Condition(
                state=DeviceState.UNHEALTHY,
                reason=Reason.RECOVERY_ACTION,
                rule=ACTION,
                detail=f"the driver wants {action.value}",
            )
        case Unknown():
            return None


def _pending(gpu: planes.Gpu) -> Condition | None:
    is_remap = _is_true(gpu.remap, lambda remap: remap.pending)
    if is_remap or gpu.retired_pages_pending == Known(True):  # noqa: FBT003
        what = "row remap" if is_remap else "page retirement"
        return Condition(
            state=DeviceState.UNHEALTHY, reason=Reason.ROW_REMAP, rule=PENDING, detail=f"{what} pending until a reset"
        )
    return None


def _remap_failed(gpu: planes.Gpu) -> Condition | None:
    if _is_true(gpu.remap, lambda remap: remap.failed):
        return Condition(
            state=DeviceState.UNHEALTHY, reason=Reason.ROW_REMAP, rule=REMAP_FAILED, detail="a row remap failed"
        )
    return None


def _sram(gpu: planes.Gpu) -> Condition | None:
    if _is_true(gpu.ecc, lambda ecc: ecc.sram_threshold_exceeded):
        return Condition(
            state=DeviceState.UNHEALTHY, reason=Reason.ECC, rule=SRAM, detail="SRAM error threshold exceeded"
        )
    return None


def _drained(gpu: planes.Gpu) -> Condition | None:
    """The driver takes no new client on a drained GPU."""
    if gpu.drain == Known(True):  # noqa: FBT003
        return Condition(
            state=DeviceState.UNHEALTHY, reason=Reason.MAINTENANCE, rule=DRAINED, detail="the driver is draining it"
        )
    return None


def _is_true(group: object, pick: Callable[..., object]) -> bool:
    return isinstance(group, Known) and pick(group.value) == Known(True)  # noqa: FBT003


def _xid(unit: Unit, snapshot: Snapshot, policy: Policy) -> Condition | None:
    """Ask the Xid table, and only where the driver itself does not say what it wants."""
    if degraded.is_answered(unit.gpu):
        return None
    events = degraded.events_of(unit, snapshot)
    fatal = [event for event in events if policy.xid(event.code).severity is xid.Severity.FATAL]
    if not fatal:
        return None
    is_whole = any(event.gi is None for event in fatal)
    return Condition(
        state=DeviceState.UNHEALTHY,
        reason=Reason.XID,
        rule=FATAL_XID if is_whole or not unit.is_mig else INSTANCE_XID,
        detail=degraded.xid_text([event.code for event in fatal], policy),
    )


def _confidential(gpu: planes.Gpu) -> Condition | None:
    """In confidential mode a GPU takes no work until somebody has attested it and set it ready."""
    is_on = _is_true(gpu.confidential, lambda confidential: confidential.feature)
    if is_on and isinstance(gpu.confidential, Known) and gpu.confidential.value.ready == Known(False):  # noqa: FBT003
        return Condition(
            state=DeviceState.UNHEALTHY,
            reason=Reason.NODE_STARTING,
            rule=NOT_READY,
            detail="confidential mode, not ready",
        )
    return None


_CHECKS: tuple[Callable[[planes.Gpu], Condition | None], ...] = (
    _recovery_action,
    _pending,
    _remap_failed,
    _sram,
    _drained,
    _confidential,
)
