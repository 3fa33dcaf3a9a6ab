"""MIG: promised devices against the geometry that the driver has (faults.md C).

Input: advertised MIG ids, the instances and modes that NVML shows. Output: ids that are stale or of another shape (bad),
and hardware in MIG mode that no resource can reach.

Invariant: sets of ids, never counts: a rebuilt geometry has the same counts and other UUIDs (faults.md C11).

Why C11 and C1 are told apart: in both the ids are bad. As many new instances of the promised profile mean that the same
geometry was rebuilt (OVER); anything else means that the promise has another shape (WRONG_SHAPE).

Not here: labels that say that somebody is at work (maintenance.py); they make these findings TRANSIENT.
"""

from collections.abc import Iterator

from agent.core import join, shape
from agent.core.absence import Absence, absence_of
from agent.core.context import Context, after, named
from agent.core.rules import layout
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.snapshot import DeviceId, ResourceView, Snapshot
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

RECONFIGURED = Rule(
    id="C1",
    cause="ReconfiguredPluginNotRestarted",
    verdict=Verdict.WRONG_SHAPE,
    effect=Effect.BAD,
    reason=Reason.MIG_MISMATCH,
    remedy=Remedy.RESTART_DEVICE_PLUGIN,
    clears_when="every advertised id is a device of the promised shape",
)
ROTATED = Rule(
    id="C11",
    cause="MigUuidRotated",
    verdict=Verdict.OVER,
    effect=Effect.BAD,
    reason=Reason.MIG_UUIDS_CHANGED,
    remedy=Remedy.RESTART_DEVICE_PLUGIN,
    clears_when="every advertised MIG UUID is one that the driver shows",
)
GONE_AFTER_REBOOT = Rule(
    id="C3",
    cause="InstancesGoneAfterReboot",
    verdict=Verdict.UNDER,
    reason=Reason.MIG_EMPTY,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    clears_when="the GPU has instances again, or its MIG mode is off",
)
MODE_OFF_AFTER_REBOOT = Rule(
    id="C3-mode-off",
    cause="InstancesGoneAfterReboot",
    verdict=Verdict.WRONG_SHAPE,
    reason=Reason.MIG_EMPTY,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    clears_when="the GPU is in MIG mode again, or its configuration asks for no instances",
)
EMPTY = Rule(
    id="C4",
    cause="MigOnButEmpty",
    verdict=Verdict.UNDER,
    reason=Reason.MIG_EMPTY,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    wait="mig-empty",
    clears_when="the GPU has instances, or its MIG mode is off",
)
NOT_UNIFORM = Rule(
    id="C5",
    cause="SingleStrategyNotUniform",
    verdict=Verdict.WRONG_SHAPE,
    effect=Effect.BLOCK,
    reason=Reason.MIG_MISMATCH,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    clears_when="all GPUs have the same geometry, or the plugin's strategy is mixed",
)
MODE_PENDING = Rule(
    id="C6",
    cause="ModeChangePending",
    verdict=Verdict.OK,
    reason=Reason.MIG_PENDING,
    remedy=Remedy.DRAIN_AND_RESET_GPU,
    wait="mig-pending",
    clears_when="current and pending MIG mode are the same",
)

RULES = (RECONFIGURED, ROTATED, GONE_AFTER_REBOOT, MODE_OFF_AFTER_REBOOT, EMPTY, NOT_UNIFORM, MODE_PENDING)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield everything that is wrong with MIG."""
    if isinstance(context.snapshot.nvml, Unknown):
        return
    for view in context.snapshot.resources:
        yield from _stale(context, view)
        yield from _misshapen(view)
    yield from _empty(context)
    yield from _mode_off(context)
    yield from _not_uniform(context)
    yield from _pending(context)


def stale_ids(context: Context, view: ResourceView) -> tuple[DeviceId, ...]:
    """Return the advertised ids of MIG instances that are no more."""
    return tuple(
        device
        for device in view.ids()
        if device.is_lacking and absence_of(device, context.snapshot, context.history)[0] is Absence.MIG_GONE
    )


def misshapen_ids(view: ResourceView) -> tuple[DeviceId, ...]:
    """Return the advertised ids whose unit is there in another shape."""
    return tuple(device for device in view.ids() if device.unit is not None and not shape.fits(view.name, device.unit))


def _stale(context: Context, view: ResourceView) -> Iterator[Suspicion]:
    stale = stale_ids(context, view)
    if not stale:
        return
    promised = context.snapshot.advertised_uuids()
    fresh = [
        unit
        for unit in context.snapshot.units
        if unit.is_mig and unit.uuid not in promised and shape.fits(view.name, unit)
    ]
    rule = ROTATED if len(fresh) == len(stale) else RECONFIGURED
    uuids = tuple(sorted({device.uuid for device in stale}))
    yield Suspicion(
        rule=rule,
        resource=view.name,
        ids=tuple(device.id for device in stale),
        devices=uuids,
        units=len(stale),
        detail=f"no GPU has {named(uuids)}; not advertised, of that shape: {named(u.uuid for u in fresh) or 'none'}",
    )


def _misshapen(view: ResourceView) -> Iterator[Suspicion]:
    wrong = misshapen_ids(view)
    if not wrong:
        return
    seen = {(device.unit.profile or "a GPU in MIG mode") for device in wrong if device.unit is not None}
    uuids = tuple(sorted({device.uuid for device in wrong}))
    yield Suspicion(
        rule=RECONFIGURED,
        resource=view.name,
        subject="shape",
        ids=tuple(device.id for device in wrong),
        devices=uuids,
        units=len(wrong),
        detail=f"{view.name} is promised, the driver shows {named(seen)}: {named(uuids)}",
    )


def empty_gpus(snapshot: Snapshot) -> tuple[planes.Gpu, ...]:
    """Return the GPUs that are in MIG mode without an instance and advertised as nothing."""
    promised = snapshot.advertised_uuids()
    return tuple(
        gpu
        for gpu in snapshot.gpus
        if not gpu.error
        and gpu.uuid not in promised
        and shape.is_in_mig_mode(gpu)
        and isinstance(gpu.mig, Known)
        and not gpu.mig.value.instances
    )


def _empty(context: Context) -> Iterator[Suspicion]:
    snapshot = context.snapshot
    empty = empty_gpus(snapshot)
    if not empty:
        return
    whole = snapshot.resource(shape.WHOLE)
    lost = len(empty)
    if snapshot.mig_strategy == "single" and whole is not None and not whole.ids():
        lost = len(snapshot.gpus)  # the plugin gives up on the whole node (faults.md C4)
    rule, until = EMPTY, None
    match snapshot.observation.boot:
        case Known(boot) if _has_rebooted(context) and _wants_mig(snapshot):
            rule, until = GONE_AFTER_REBOOT, after(boot.at, context.wait("mig-reapply"))
        case _:
            pass
    uuids = tuple(gpu.uuid for gpu in empty)
    for name in _names_without(snapshot, rule):
        yield Suspicion(
            rule=rule,
            resource=name,
            devices=uuids,
            units=lost,
            until=until,
            detail=f"MIG mode is on and there is no instance: {named(uuids)}",
        )


def _mode_off(context: Context) -> Iterator[Suspicion]:
    """Yield the whole GPUs that a reboot has made of what its users know as slices: Hopper loses the mode too (S19)."""
    match context.snapshot.observation.desired_mig, context.snapshot.observation.boot:
        case Known(desired), Known(boot) if _has_rebooted(context):
            wanted = [gpu for gpu in context.snapshot.gpus if not gpu.error and layout.asks_for_instances(gpu, desired)]
        case _:
            return
    whole = tuple(gpu.uuid for gpu in wanted if isinstance(gpu.mig, Known) and not gpu.mig.value.current)
    for name in _names_without(context.snapshot, GONE_AFTER_REBOOT) if whole else ():
        yield Suspicion(
            rule=MODE_OFF_AFTER_REBOOT,
            resource=name,
            devices=whole,
            units=len(whole),
            until=after(boot.at, context.wait("mig-reapply")),
            detail=f"mig.config {desired.name[:60]} asks for instances and MIG mode is off: {named(whole)}",
        )


def _names_without(snapshot: Snapshot, rule: Rule) -> tuple[str, ...]:
    """Return the names that miss the hardware: slices that are gone, or whole GPUs; the node where there is no name."""
    slices = tuple(view.name for view in snapshot.resources if shape.profile_of(view.name) and not view.ids())
    whole = (shape.WHOLE,) if snapshot.resource(shape.WHOLE) is not None else ()
    return (slices or whole or ("",)) if rule is GONE_AFTER_REBOOT else (whole or slices or ("",))


def _has_rebooted(context: Context) -> bool:
    """True if the boot is new: by the clock, by an earlier sample, or by a checkpoint that names instances of before."""
    if context.history.previous_boot_id or context.boot_end() is not None:
        return True
    match context.snapshot.checkpoint:
        case Known(checkpoint):
            units = {unit.uuid for unit in context.snapshot.units}
            texts = (text for ids in checkpoint.registered.values() for text in ids)
            return any(join.looks_like_mig(text) and text not in units for text in texts)
        case Unknown():
            return False


def _wants_mig(snapshot: Snapshot) -> bool:
    match snapshot.observation.desired_mig:
        case Known(desired):
            return desired.name not in ("", "all-disabled")
        case Unknown():
            pass
    match snapshot.observation.node_object:
        case Known(node):
            return node.labels.get("nvidia.com/mig.config", "") not in ("", "all-disabled")
        case Unknown():
            return False


def _not_uniform(context: Context) -> Iterator[Suspicion]:
    snapshot = context.snapshot
    whole = snapshot.resource(shape.WHOLE)
    if snapshot.mig_strategy != "single" or whole is None or empty_gpus(snapshot):
        return
    shapes = {_geometry(gpu) for gpu in snapshot.gpus if isinstance(gpu.mig, Known)}
    if len(shapes) > 1 and any(shapes):
        texts = (" + ".join(profiles) or "whole GPU" for profiles in shapes)
        yield Suspicion(rule=NOT_UNIFORM, resource=whole.name, detail=f"strategy single, geometries: {named(texts)}")


def _geometry(gpu: planes.Gpu) -> tuple[str, ...]:
    match gpu.mig:
        case Known(mig) if mig.current:
            return tuple(sorted(instance.profile for instance in mig.instances))
        case _:
            return ()


def _pending(context: Context) -> Iterator[Suspicion]:
    for view in context.snapshot.resources:
        parents = {device.unit.parent: device.unit.gpu for device in view.ids() if device.unit is not None}
        owed = sorted(uuid for uuid, gpu in parents.items() if is_change_pending(gpu))
        if owed:
            yield Suspicion(
                rule=MODE_PENDING,
                resource=view.name,
                devices=tuple(owed),
                detail=f"a change of MIG mode waits for a reset: {named(owed)}",
            )


def is_change_pending(gpu: planes.Gpu) -> bool:
    """True if the driver owes a change of MIG mode until the next reset."""
    match gpu.mig:
        case Known(mig):
            return mig.current != mig.pending
        case Unknown():
            return False
