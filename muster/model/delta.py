"""What changed between two reports of a node, and how to apply it.

Invariant: `apply(old, diff(old, new)) == new`, whatever the two are. A resource or a device travels whole or not at all,
so that no reader can combine the halves of two samples.
"""

import dataclasses
import datetime
from collections.abc import Mapping

from muster.model import codec
from muster.model.report import (
    DeviceReport,
    Finding,
    Maintenance,
    NodeReport,
    PodFinding,
    ResourceReport,
    Topology,
    Verdict,
)
from muster.model.warmth import WarmthDelta


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeLists:
    """Everything about the node that is not a resource or a device."""

    node_findings: tuple[Finding, ...] = ()
    pods: tuple[PodFinding, ...] = ()
    unverified: tuple[str, ...] = ()
    maintenance: Maintenance | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The change from the state `base` to the state `sequence`."""

    base: int
    sequence: int
    taken_at: datetime.datetime
    verdict: Verdict
    resources: Mapping[str, ResourceReport] = codec.mapping()
    removed_resources: tuple[str, ...] = ()
    devices: tuple[DeviceReport, ...] = ()
    removed_devices: tuple[str, ...] = ()
    lists: NodeLists | None = None
    topology: Topology | None = None
    warmth: WarmthDelta | None = None
    """Of the images: made beside the report's change, by whoever knows both states."""


def diff(old: NodeReport, new: NodeReport, *, base: int, topology: Topology | None = None) -> Delta:
    """Return what turns `old`, the state `base`, into `new`, the state after it."""
    before = {device.uuid: device for device in old.devices}
    after = {device.uuid for device in new.devices}
    lists = _lists(new)
    return Delta(
        base=base,
        sequence=base + 1,
        taken_at=new.taken_at,
        verdict=new.verdict,
        resources=codec.freeze(
            {name: resource for name, resource in new.resources.items() if old.resources.get(name) != resource}
        ),
        removed_resources=tuple(sorted(set(old.resources) - set(new.resources))),
        devices=tuple(device for device in new.devices if before.get(device.uuid) != device),
        removed_devices=tuple(sorted(set(before) - after)),
        lists=lists if lists != _lists(old) else None,
        topology=topology,
    )


def apply(report: NodeReport, delta: Delta) -> NodeReport:
    """Return the report after the change; the caller has checked that it is the state `delta.base`."""
    lists = delta.lists if delta.lists is not None else report
    resources = {**report.resources, **delta.resources}
    for name in delta.removed_resources:
        if name not in delta.resources:
            resources.pop(name, None)
    return NodeReport(
        node=report.node,
        taken_at=delta.taken_at,
        verdict=delta.verdict,
        resources=codec.freeze(resources),
        devices=_devices(report.devices, delta),
        node_findings=lists.node_findings,
        pods=lists.pods,
        unverified=lists.unverified,
        maintenance=lists.maintenance,
    )


def _devices(devices: tuple[DeviceReport, ...], delta: Delta) -> tuple[DeviceReport, ...]:
    if not delta.devices and not delta.removed_devices:
        return devices
    kept = {device.uuid: device for device in devices if device.uuid not in delta.removed_devices}
    kept.update((device.uuid, device) for device in delta.devices)
    return tuple(kept[uuid] for uuid in sorted(kept))


def is_steady(delta: Delta) -> bool:
    """True if nothing changed but the time: a heartbeat says it cheaper."""
    return not (
        delta.resources
        or delta.removed_resources
        or delta.devices
        or delta.removed_devices
        or delta.lists is not None
        or delta.topology is not None
        or delta.warmth is not None
    )


def _lists(report: NodeReport) -> NodeLists:
    return NodeLists(
        node_findings=report.node_findings,
        pods=report.pods,
        unverified=report.unverified,
        maintenance=report.maintenance,
    )
