"""Is what an agent says possible at all? The edge where a hostile or broken report stops.

In: a decoded message. Out: every problem at once, each with the field's path; empty: the report may be used.

Invariant: a report that passes cannot promise more than its own numbers allow. Units admitted are at most the free ones,
those at most the usable and advertised ones; nothing is negative, not a number or without bound.

What this cannot do: tell a plausible lie from the truth. An agent can overstate its own node within what it advertises;
it cannot touch another.

Not here: the order of messages and whose they are (feedstate.py).
"""

import math
from collections.abc import Callable, Iterable, Iterator

from muster.model.delta import Delta, NodeLists
from muster.model.reading import Known
from muster.model.report import DeviceReport, Finding, NodeReport, ResourceReport, Topology, Verdict

MAX_DEVICES = 4096
"""Eight GPUs of seven MIG instances with up to 73 replicas each."""
MAX_RESOURCES = 256
"""As many as an agent judges."""
MAX_ENTRIES = 1024
"""Findings, pods and unverified planes: more than 110 pods or 250 causes on one node is a mistake."""
MAX_NAME = 512
"""A qualified resource name has up to 317 characters, namespace/name 317, a replica's id about 60."""
MAX_TEXT = 4096
MAX_COUNT = 2**53
"""Beyond it JSON readers lose units."""

_COUNTS = (
    "admit_strict",
    "admit_lenient",
    "capacity",
    "allocatable",
    "advertised",
    "present",
    "allocated",
    "usable",
    "free",
)
_CHAINS = (
    ("admit_strict", "admit_lenient", "free", "usable", "advertised"),
    ("present", "advertised"),
)
"""faults.md P3 and P3a: each is a part of the next. Usable is not tied to present: a rule that is off, or only observed,
leaves an id usable that the driver does not show."""


def check(report: NodeReport) -> tuple[str, ...]:
    """Return what is impossible about a whole report."""
    return (
        *(_text("node", report.node, MAX_NAME)),
        *_sizes(report),
        *_resources(report),
        *_devices(report.devices),
        *_lists(report),
    )


def check_delta(delta: Delta) -> tuple[str, ...]:
    """Return what is impossible about the parts that a delta brings; the rest was checked when it came."""
    return (
        *_sizes(delta),
        *_resources(delta),
        *_devices(delta.devices),
        *(_lists(delta.lists) if delta.lists is not None else ()),
        *(check_topology(delta.topology) if delta.topology is not None else ()),
    )


def check_size(report: NodeReport) -> tuple[str, ...]:
    """Return what has grown beyond bounds: small deltas add up."""
    return tuple(_sizes(report))


def check_topology(topology: Topology) -> tuple[str, ...]:
    """Return what is impossible about the static facts."""
    problems = []
    if topology.generation < 0:
        problems.append("topology.generation: is negative")
    if len(topology.gpus) > MAX_DEVICES:
        problems.append(f"topology.gpus: {len(topology.gpus)} are more than {MAX_DEVICES}")
    if len({gpu.uuid for gpu in topology.gpus}) < len(topology.gpus):
        problems.append("topology.gpus: one UUID stands twice")
    for index, gpu in enumerate(topology.gpus):
        for field in ("uuid", "pci", "product", "island", "clique"):
            problems += _text(f"topology.gpus[{index}].{field}", getattr(gpu, field), MAX_NAME)
        match gpu.memory_bytes:
            case Known(value) if not 0 <= value <= MAX_COUNT:
                problems.append(f"topology.gpus[{index}].memory_bytes: {value} is out of bounds")
    return tuple(problems)


def _sizes(part: NodeReport | Delta) -> Iterator[str]:
    if len(part.resources) > MAX_RESOURCES:
        yield f"resources: {len(part.resources)} are more than {MAX_RESOURCES}"
    if len(part.devices) > MAX_DEVICES:
        yield f"devices: {len(part.devices)} are more than {MAX_DEVICES}"


def _resources(part: NodeReport | Delta) -> Iterator[str]:
    for name, resource in part.resources.items():
        path = f"resources[{name[:MAX_NAME]}]"
        if not name or len(name) > MAX_NAME or not name.isprintable():
            yield f"{path}: is no resource name"
        for test in _RESOURCE_CHECKS:
            for problem in test(resource):
                yield f"{path}.{problem}"


def _counts_fit(resource: ResourceReport) -> Iterator[str]:
    for name in _COUNTS:
        reading = getattr(resource, name)
        if isinstance(reading, Known) and not 0 <= reading.value <= MAX_COUNT:
            yield f"{name}: {reading.value} is {'negative' if reading.value < 0 else 'out of bounds'}"


def _parts_fit(resource: ResourceReport) -> Iterator[str]:
    """Compare each known count with the next known one of its chain."""
    for chain in _CHAINS:
        smaller_name, smaller = "", -1
        for name in chain:
            reading = getattr(resource, name)
            if isinstance(reading, Known):
                if smaller > reading.value:
                    yield f"{smaller_name}: {smaller} is more than {name}, {reading.value}"
                smaller_name, smaller = name, reading.value


def _risk_fits(resource: ResourceReport) -> Iterator[str]:
    reading = resource.pick_risk
    if isinstance(reading, Known) and not (math.isfinite(reading.value) and 0 <= reading.value <= 1):
        yield f"pick_risk: {reading.value} is not within 0..1"


def _blind_admits_nothing(resource: ResourceReport) -> Iterator[str]:
    if resource.verdict is Verdict.BLIND:
        for name in ("admit_strict", "admit_lenient"):
            reading = getattr(resource, name)
            if isinstance(reading, Known) and reading.value > 0:
                yield f"{name}: {reading.value} is admitted while BLIND"


def _ids_fit(resource: ResourceReport) -> Iterator[str]:
    yield from _texts("free_devices", resource.free_devices, MAX_DEVICES)
    yield from _texts("planes", resource.planes, MAX_ENTRIES)
    if len(set(resource.free_devices)) < len(resource.free_devices):
        yield "free_devices: one id stands twice"


def _counted_fits(resource: ResourceReport) -> Iterator[str]:
    counted = resource.counted
    if len(counted) > MAX_DEVICES:
        yield f"counted: {len(counted)} are more than {MAX_DEVICES}"
    if len({pod.uid for pod in counted}) < len(counted):
        yield "counted: one pod stands twice"
    for pod in counted:
        if not 0 <= pod.units <= MAX_COUNT or not 0 < len(pod.uid) <= MAX_NAME:
            yield f"counted[{pod.uid[:MAX_NAME]}]: {pod.units} units is out of bounds"


def _findings_fit(resource: ResourceReport) -> Iterator[str]:
    yield from _findings("findings", resource.findings)


_RESOURCE_CHECKS: tuple[Callable[[ResourceReport], Iterator[str]], ...] = (
    _counts_fit,
    _parts_fit,
    _risk_fits,
    _blind_admits_nothing,
    _ids_fit,
    _counted_fits,
    _findings_fit,
)


def _devices(devices: tuple[DeviceReport, ...]) -> Iterator[str]:
    previous = ""
    for index, device in enumerate(devices):
        if device.uuid <= previous:
            yield f"devices[{index}]: {device.uuid[:MAX_NAME]!r} is empty, out of order or there twice"
        previous = device.uuid
        if len(device.uuid) + len(device.pci) + len(device.parent) + len(device.reason) > MAX_NAME:
            yield f"devices[{index}]: its names are longer than {MAX_NAME} together"
        yield from _text(f"devices[{index}].detail", device.detail, MAX_TEXT)
        if device.pods:
            yield from _texts(f"devices[{index}].pods", device.pods, MAX_ENTRIES)


def _lists(part: NodeReport | NodeLists) -> Iterator[str]:
    yield from _findings("node_findings", part.node_findings)
    if len(part.pods) > MAX_ENTRIES:
        yield f"pods: {len(part.pods)} are more than {MAX_ENTRIES}"
    for index, pod in enumerate(part.pods):
        yield from _text(f"pods[{index}].pod", pod.pod, MAX_NAME)
        yield from _text(f"pods[{index}].uid", pod.uid, MAX_NAME)
        yield from _text(f"pods[{index}].reason", pod.reason, MAX_NAME)
        yield from _texts(f"pods[{index}].devices", pod.devices, MAX_DEVICES)
    yield from _texts("unverified", part.unverified, MAX_ENTRIES, MAX_TEXT)
    if part.maintenance is not None:
        yield from _text("maintenance.marker", part.maintenance.marker, MAX_TEXT)


def _findings(path: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    if len(findings) > MAX_ENTRIES:
        yield f"{path}: {len(findings)} are more than {MAX_ENTRIES}"
    for index, finding in enumerate(findings):
        for field in ("cause", "reason", "detail", "remedy", "rule", "clears_when"):
            yield from _text(f"{path}[{index}].{field}", getattr(finding, field), MAX_TEXT)
        yield from _texts(f"{path}[{index}].devices", finding.devices, MAX_DEVICES)


def _text(path: str, text: str, bound: int) -> Iterable[str]:
    return () if len(text) <= bound else (f"{path}: {len(text)} characters are more than {bound}",)


def _texts(path: str, texts: tuple[str, ...], bound: int, length: int = MAX_NAME) -> Iterable[str]:
    if len(texts) > bound:
        return (f"{path}: {len(texts)} are more than {bound}",)
    if texts and max(map(len, texts)) > length:
        return (f"{path}: an entry is longer than {length}",)
    return ()
