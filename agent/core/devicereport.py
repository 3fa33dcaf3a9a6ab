"""The device list of a report: every GPU, instance and advertised id, with its state and its holder.

Input: snapshot, history, policy. Output: DeviceReports, one a UUID, sorted.

Invariant: a device is healthy only if the driver opened it in this sample and no check objects. Order of badness:
unhealthy, unknown, healthy.
"""

from collections.abc import Iterable, Mapping

from agent.core import holders, join
from agent.core.absence import Absence, absence_of
from agent.core.condition import HEALTHY
from agent.core.context import Context
from agent.core.holddown import bounded
from agent.core.holders import Use
from agent.core.rules import devices, fabric, mig
from agent.model import planes
from agent.model.finding import Rule
from agent.model.policy import Mode
from agent.model.snapshot import DeviceId, ResourceView, Unit
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import DeviceReport, DeviceState, Holder, MigShape
from muster.model.vocabulary import Reason

MAX_PODS = 16
"""Pods named for one device: a time-sliced GPU can have dozens."""

MAX_ATTRIBUTES = 8
"""Of a MIG profile: the driver knows five (faults.md section 6)."""


def report(context: Context) -> tuple[DeviceReport, ...]:
    """Return the devices of the sample, sorted by UUID."""
    usages = holders.usages_of(context.snapshot, context.policy)
    holding = _pods_by_uuid(context.snapshot.resources)
    result: dict[str, DeviceReport] = {}
    for view in context.snapshot.resources:
        for device in view.ids():
            if device.unit is None:
                result[device.uuid] = _of_lacking(context, device, holding)
    for gpu in context.snapshot.gpus:
        condition = devices.of_error(gpu.error) if gpu.error else HEALTHY
        result[gpu.uuid] = DeviceReport(
            uuid=gpu.uuid,
            pci=_pci(gpu.pci),
            state=condition.state,
            reason=condition.reason.value,
            holder=Holder.POD if holding.get(gpu.uuid) else Holder.UNKNOWN,
            pods=holding.get(gpu.uuid, ())[:MAX_PODS],
            detail=bounded(condition.detail),
        )
    misshapen = {device.uuid for view in context.snapshot.resources for device in mig.misshapen_ids(view)}
    for unit in context.snapshot.units:
        result[unit.uuid] = _of_unit(context, unit, misshapen, holding, usages)
    return tuple(result[uuid] for uuid in sorted(result))


def _pods_by_uuid(views: Iterable[ResourceView]) -> dict[str, tuple[str, ...]]:
    result: dict[str, set[str]] = {}
    for view in views:
        uuid_of = {device.id: device.uuid for device in view.ids()}
        for text, pods in view.holders().items():
            result.setdefault(uuid_of.get(text, text), set()).update(pods)
    return {uuid: tuple(sorted(pods)) for uuid, pods in result.items()}


def _of_lacking(context: Context, device: DeviceId, holding: Mapping[str, tuple[str, ...]]) -> DeviceReport:
    if device.is_passthrough:
        state, reason, detail = DeviceState.HEALTHY, Reason.OK, "bound to vfio: offered to VMs"
    elif isinstance(context.snapshot.nvml, Unknown):
        state, reason, detail = DeviceState.UNKNOWN, Reason.PLANE_UNREADABLE, f"NVML: {context.snapshot.nvml.reason}"
    else:
        state, reason, detail = _of_absence(context, device)
    pods = holding.get(device.uuid, ())[:MAX_PODS]
    return DeviceReport(
        uuid=device.uuid,
        parent=join.parent_of(device, context.history.mig_parents),
        state=state,
        reason=reason.value,
        holder=Holder.POD if pods else Holder.UNKNOWN,
        pods=pods,
        detail=bounded(detail),
    )


def _of_absence(context: Context, device: DeviceId) -> tuple[DeviceState, Reason, str]:
    absence, gpu = absence_of(device, context.snapshot, context.history)
    match absence:
        case Absence.SILENT if gpu is not None:
            condition = devices.of_error(gpu.error)
            return condition.state, condition.reason, condition.detail
        case Absence.MIG_GONE:
            return DeviceState.STALE, Reason.MIG_MISMATCH, "no GPU has this instance"
        case Absence.GPU_GONE:
            return devices.GONE.state, devices.GONE.reason, devices.GONE.detail
        case Absence.HIDDEN | Absence.SILENT:
            return DeviceState.UNKNOWN, Reason.PARTIAL_VIEW, "the driver refused the agent"
        case Absence.UNJOINABLE:
            return devices.UNJOINABLE.state, devices.UNJOINABLE.reason, devices.UNJOINABLE.detail


def _of_unit(
    context: Context,
    unit: Unit,
    misshapen: set[str],
    holding: Mapping[str, tuple[str, ...]],
    usages: tuple[holders.Usage, ...],
) -> DeviceReport:
    condition = devices.of_unit(unit, context.snapshot, context.policy)
    state, reason, detail = condition.state, condition.reason, condition.detail
    if (problem := fabric.problem_of(unit.gpu)) and _counts(context, fabric.DOWN):
        state, reason, detail = DeviceState.UNHEALTHY, Reason.FABRIC_NOT_READY, problem
    elif unit.uuid in misshapen and _counts(context, mig.RECONFIGURED):
        state, reason, detail = DeviceState.STALE, Reason.MIG_MISMATCH, "promised in another shape"
    holder, pods = _holder(context, unit, holding, [usage for usage in usages if usage.unit == unit.uuid])
    return DeviceReport(
        uuid=unit.uuid,
        pci=_pci(unit.gpu.pci),
        parent=unit.parent if unit.is_mig else "",
        state=state,
        reason=reason.value,
        holder=holder,
        pods=pods[:MAX_PODS],
        detail=bounded(detail),
        shape=_shape(unit.instance) if unit.instance is not None else None,
    )


def _shape(instance: planes.MigInstance) -> MigShape:
    """Return how the driver says that an instance is cut."""
    return MigShape(
        profile=bounded(instance.profile),
        compute_slices=instance.compute_slices,
        gpu_slices=instance.gpu_slices,
        memory_bytes=instance.memory_bytes,
        attributes=tuple(bounded(name) for name in instance.attributes[:MAX_ATTRIBUTES]),
    )


def _counts(context: Context, rule: Rule) -> bool:
    return context.policy.mode(rule.id) is Mode.ENFORCE


def _holder(
    context: Context, unit: Unit, holding: Mapping[str, tuple[str, ...]], usages: list[holders.Usage]
) -> tuple[Holder, tuple[str, ...]]:
    uses = {usage.use for usage in usages}
    pods = tuple(sorted({*holding.get(unit.uuid, ()), *(usage.pod for usage in usages if usage.pod)}))
    if Use.FOREIGN in uses:
        return Holder.FOREIGN, pods
    if pods or Use.ORPHAN in uses or Use.KNOWN_POD in uses:
        return Holder.POD, pods
    if Use.UNATTRIBUTED in uses or isinstance(context.snapshot.listed, Unknown):
        return Holder.UNKNOWN, ()
    return Holder.NONE, ()


def _pci(reading: Reading[str]) -> str:
    match reading:
        case Known(address):
            return address
        case Unknown():
            return ""
