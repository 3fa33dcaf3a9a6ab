"""The views of DRA drivers: a driver's slices promise devices under its name (design.md section 3, faults.md S21).

Input: the DRA plane, List, bound pods, what was remembered of the plane. Output: ResourceViews, and what to remember.

Invariant: slices that cannot be read change no number: the last ones that were read stand, with everything that NVML and
List say about their devices now. Without them the GPUs behind a silent plane would look unadvertised, or free twice.

Why requests for an extended resource count here: a DeviceClass may serve `nvidia.com/gpu` through DRA; the pod's request is
then all that is seen of it until the kubelet prepares its claim. Where a device plugin serves the name, they count there.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from agent.core import join
from agent.model.snapshot import DeviceId, ListedPod, ResourceView
from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown

MAX_DEVICES = 512
"""Devices remembered: an 8-GPU node in full MIG publishes 64."""

_KEEPS_AWAY = ("NoSchedule", "NoExecute")

_NOT_COUNTED = Unknown("PromisedByDra", "a DRA driver's devices are not counted in the Node")


def standing(plane: Reading[kube.Dra], last: kube.Dra) -> kube.Dra:
    """Return the plane, or what was read of it last."""
    match plane:
        case Known(dra):
            return dra
        case Unknown():
            return last


def remembered(plane: Reading[kube.Dra], last: kube.Dra) -> kube.Dra:
    """Return what to remember: who there is, slices and classes, no more devices than a node has."""
    dra = standing(plane, last)
    kept: list[kube.DraSlice] = []
    room = MAX_DEVICES
    for item in dra.slices:
        devices = tuple(_slim(device) for device in item.devices[: max(0, room)])
        room -= len(devices)
        kept.append(dataclasses.replace(item, devices=devices))
    slices = tuple(item for item in kept if item.devices)
    drivers = tuple(kube.DraDriver(name=item.name) for item in dra.drivers[:MAX_DEVICES])
    return kube.Dra(drivers=drivers, slices=slices, device_classes=dra.device_classes[:MAX_DEVICES])


def _slim(device: kube.DraDevice) -> kube.DraDevice:
    """Return what decides of a device: a taint's own words do not, and the evidence file is small."""
    kept = tuple(kube.Taint(key="", effect=taint.effect) for taint in device.taints if taint.effect in _KEEPS_AWAY)
    return kube.DraDevice(name=device.name, uuid=device.uuid, taints=kept[:1])


def views_of(
    dra: kube.Dra,
    listed: Reading[tuple[ListedPod, ...]],
    held: Mapping[str, Mapping[str, tuple[str, ...]]],
    requests: Reading[Mapping[str, int]],
    lookup: join.Units,
    known: Collection[str],
) -> tuple[ResourceView, ...]:
    """Return one view per driver whose devices join to a unit, or whose name is known."""
    return tuple(
        ResourceView(
            name=driver,
            is_dra=True,
            advertised=Known(devices),
            held=_held(listed, held.get(driver, codec.EMPTY)),
            capacity=_NOT_COUNTED,
            allocatable=_NOT_COUNTED,
            requests=requests,
        )
        for driver, devices in _promised(dra, lookup).items()
        if driver in known or any(device.unit is not None for device in devices)
    )


def served(dra: kube.Dra, by_plugin: Collection[str]) -> frozenset[str]:
    """Return the extended resources that DRA serves on this node: those of a DeviceClass that no device plugin offers."""
    names = (item.extended_resource for item in dra.device_classes)
    return frozenset(name for name in names if name and name not in by_plugin)


def _promised(dra: kube.Dra, lookup: join.Units) -> dict[str, tuple[DeviceId, ...]]:
    """Return driver -> devices of its slices."""
    texts: dict[str, set[str]] = {}
    for item in dra.slices:
        ids = texts.setdefault(item.driver, set())
        ids.update(device.uuid or device.name for device in item.devices if not _is_kept_away(device))
    return {driver: _joined(ids, lookup) for driver, ids in texts.items()}


def _is_kept_away(device: kube.DraDevice) -> bool:
    """True if the driver's own taint keeps claims away: to DRA what "unhealthy" is to a plugin."""
    return any(taint.effect in _KEEPS_AWAY for taint in device.taints)


def _joined(ids: Iterable[str], lookup: join.Units) -> tuple[DeviceId, ...]:
    return tuple(join.join(text, lookup) for text in sorted(ids))


def _held(
    listed: Reading[tuple[ListedPod, ...]], held: Mapping[str, tuple[str, ...]]
) -> Reading[Mapping[str, tuple[str, ...]]]:
    match listed:
        case Known():
            return Known(held)
        case Unknown() as unread:
            return unread
