"""Faults whose check can no longer be read: what the last readable sample said goes on (design.md section 5).

Input: the evidence of the last sample, this one's suspicions, and which checks failed. Output: the suspicions that only a
failed read has made disappear.

Invariant: a failed read neither raises a number nor completes any evidence; the next one that succeeds decides again. A
check that is not collected, or that the hardware does not have, has not failed.

Why here and not in each rule: every rule would need the reading before, and would forget it.

Not here: required planes, whose failure is BLIND and keeps all evidence.
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.core.context import Context, unheld
from agent.core.rules import degraded, table
from agent.model import planes
from agent.model.finding import Rule, Suspicion
from agent.model.policy import Mode
from agent.model.snapshot import DeviceId, ResourceView, Snapshot
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

_OF_GPU: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "B5": ("recovery_action",),
        "B6": ("remap.pending", "retired_pages_pending"),
        "row-remap-failed": ("remap.failed",),
        "sram-threshold": ("ecc.sram_threshold_exceeded",),
        "gpu-drained": ("drain",),
        "confidential-not-ready": ("confidential", "confidential.ready"),
        "xid-fatal": ("xids",),
        "B10": ("xids",),
        "D4": ("fabric.status",),
        "C1": ("mig",),
        "E4": ("processes",),
        "E5": ("processes",),
        "E6": ("processes", "memory_used_bytes"),
        "E8": ("processes",),
    }
)
"""Rule -> what it reads of a GPU; one that fails is enough."""

_OF_NODE: Mapping[str, str] = types.MappingProxyType(
    {
        "device-files": "device_nodes",
        "device-file-gpu": "device_nodes",
        "D6": "cdi",
        "F3-race": "mps",
        "G3": "dra",
        "xid-fatal": "kernel_log",
    }
)
"""Rule -> the optional plane it rests on."""

_OF_PROCESSES = ("E4", "E5", "E6", "E8")
_OF_GEOMETRY = ("C5", "C8-single")
"""Rules that compare the geometries of all GPUs: one that nobody can read may be the odd one."""

_BLOCKING = ("device-files", "D6", "F3-race", "G3", *_OF_GEOMETRY)
_SHAPE = "shape"
_ABSENT_BY_NATURE = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NotSupported")


def find(context: Context, shown: Iterable[Suspicion]) -> Iterator[Suspicion]:
    """Yield the suspicions of the last sample that this one could neither confirm nor clear."""
    taken: dict[str, set[str]] = {}
    for suspicion in shown:
        taken.setdefault(suspicion.key, set()).update(suspicion.ids)
    for evidence in context.history.evidence:
        rule_id, _, rest = evidence.key.partition("|")
        resource, _, subject = rest.partition("|")
        rule, view = table.ROWS.get(rule_id), context.snapshot.resource(resource)
        if rule is None or view is None or context.policy.mode(rule_id) is Mode.OFF:
            continue
        devices = [
            device
            for device in _devices(context, rule, view, subject)
            if device.id not in taken.get(evidence.key, set())
        ]
        is_unread = (
            _is_plane_unread(context, rule_id)
            or _is_driver_unread(context, rule_id, resource)
            or (rule_id in _OF_GEOMETRY and _is_geometry_unread(context.snapshot))
        )
        if devices or (rule_id in _BLOCKING and evidence.key not in taken and is_unread):
            yield _again(rule, resource, subject, devices)


def _again(rule: Rule, resource: str, subject: str, devices: list[DeviceId]) -> Suspicion:
    return Suspicion(
        rule=rule,
        resource=resource,
        subject=subject,
        ids=tuple(device.id for device in devices),
        devices=tuple(sorted({device.uuid for device in devices})),
        units=len(devices) or None,
        detail=f"{subject or resource}: its check cannot be read, and what it said last stands",
        is_carried=True,
    )


def _devices(context: Context, rule: Rule, view: ResourceView, subject: str) -> Iterator[DeviceId]:
    """Yield the ids that the evidence is about and that nobody could look at."""
    for device in unheld(view) if rule.id in _OF_PROCESSES else view.ids():
        if device.unit is None or subject not in (device.id, device.uuid, _SHAPE):
            continue
        if subject == _SHAPE and device.unit.is_mig:
            continue
        of_gpu = any(_is_unread(device.unit.gpu, path) for path in _OF_GPU.get(rule.id, ()))
        of_process = rule.id in _OF_PROCESSES and _is_ownerless(context.snapshot, device.unit.parent)
        is_answered = rule.id in ("xid-fatal", "B10") and degraded.is_answered(device.unit.gpu)
        if not is_answered and (of_gpu or of_process or _is_plane_unread(context, rule.id)):
            yield device


def _is_plane_unread(context: Context, rule_id: str) -> bool:
    plane = _OF_NODE.get(rule_id, "")
    return bool(plane) and _has_failed(getattr(context.snapshot.observation, plane))


def _is_driver_unread(context: Context, rule_id: str, resource: str) -> bool:
    """True if the plane could be read, and whether this resource's driver is there could not."""
    match context.snapshot.observation.dra:
        case Known(dra) if rule_id == "G3":
            own = [driver for driver in dra.drivers if driver.name == resource]
            return any(_has_failed(said) for item in own for said in (item.registration_socket_present, item.answering))
        case _:
            return False


def _is_geometry_unread(snapshot: Snapshot) -> bool:
    """True if a GPU is there and does not say how it is cut."""
    return any(gpu.error or _has_failed(gpu.mig) for gpu in snapshot.gpus)


def _is_ownerless(snapshot: Snapshot, gpu: str) -> bool:
    """True if a process is on the GPU and nobody can say whose."""
    return any(process.gpu == gpu and isinstance(process.owner, Unknown) for process in snapshot.processes)


def _is_unread(gpu: planes.Gpu, path: str) -> bool:
    value: Any = gpu
    for name in path.split("."):
        match getattr(value, name):
            case Known(inner):
                value = inner
            case unread:
                return _has_failed(unread)
    return False


def _has_failed(reading: Reading[Any]) -> bool:
    match reading:
        case Unknown(reason) as unread:
            return unread != NOT_COLLECTED and reason not in _ABSENT_BY_NATURE
        case Known():
            return False
