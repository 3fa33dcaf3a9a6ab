"""What the devices behind one resource of a node are: whole GPUs, MIG instances, replicas; where NVLink and NUMA put them.

Input: a resource's report, the node's topology, the ids that are free, how its instances are cut, the node's labels. Output: a Shape.

Invariant: an island or a clique is named only if *every* free device is in it, since the kubelet picks the device and
nobody above it can choose. NUMA counts are given only where the kubelet's policy refuses a pod for them and every free
device's NUMA node is known; units that are leased and not yet counted may sit anywhere, so each NUMA node is short of them.
What an instance is follows from the driver's numbers, and from names only where there are none: a name says another figure on
another product (faults.md C9, C10). Of several instances the least of each figure counts, since the kubelet picks.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from admitter.model.nodefacts import NodeFacts
from admitter.model.supply import MigShape, Shape
from muster.model import codec
from muster.model import report as reports
from muster.model.reading import Known, Reading
from muster.model.report import ResourceReport, Topology
from muster.model.vocabulary import Reason

_MIG_NAME = re.compile(r"mig-(?:(\d+)c\.)?(\d+)g\.(\d+)gb", re.IGNORECASE)
# An instance can be smaller than its name: 20.0 GiB were captured behind 1g.24gb, 0.89 of it (topology.md section 3).
_MEMORY_OF_NAME = 0.89e9
_REPLICA_MARK = "::"
"""The device plugin's separator between a GPU and its replica number."""
_PRODUCT = "nvidia.com/gpu.product"
"""Ends with `-MIG-1g.10gb` where the plugin's strategy is `single` and the GPUs are cut."""
_REFUSING = {"restricted": False, "single-numa-node": True}
"""Topology Manager policies that refuse a pod -> whether one NUMA node must hold it."""

Cuts: TypeAlias = Mapping[str, reports.MigShape]
"""UUID of a MIG instance -> how the driver says that it is cut."""


def shape(
    resource: str,
    report: ResourceReport,
    topology: Topology,
    devices: tuple[str, ...],
    facts: NodeFacts | None,
    *,
    cuts: Cuts = codec.EMPTY,
    held: int = 0,
) -> Shape:
    """Return what the devices are; `devices` are the ids that may be picked."""
    is_whole = not any(device.startswith("MIG-") for device in devices)
    policy = facts.topology_policy if facts is not None else ""
    free = _numa(topology, devices) if policy in _REFUSING and is_whole else None
    islands = {gpu.uuid: gpu.island for gpu in topology.gpus}
    return Shape(
        is_shared=resource.endswith(".shared")
        or any(_REPLICA_MARK in device for device in devices)
        or any(finding.reason == Reason.REPLICAS for finding in report.findings),
        is_whole=is_whole,
        mig=_least(devices, cuts, mig_shape(resource) or (None if is_whole else mig_shape(_product(facts)))),
        island=_common(devices, islands),
        clique=_common(devices, {gpu.uuid: gpu.clique for gpu in topology.gpus}),
        numa=() if free is None else tuple(sorted((max(0, count - held) for count in free.values()), reverse=True)),
        numa_size=0 if free is None else _largest(topology),
        has_numa_islands=free is not None and all(_common(group, islands) for group in _by_numa(topology, devices)),
        is_single_numa=free is not None and _REFUSING[policy],
    )


def mig_shape(name: str) -> MigShape | None:
    """Return what a MIG resource's or product's name promises at least.

    >>> mig_shape("nvidia.com/mig-2g.20gb").compute_slices, mig_shape("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb").compute_slices
    (2, 1)
    >>> mig_shape("nvidia.com/mig-1c.3g.20gb").compute_slices
    1
    >>> mig_shape("nvidia.com/gpu")
    """
    found = _MIG_NAME.search(name)
    if found is None:
        return None
    return MigShape(compute_slices=int(found[1] or found[2]), memory_bytes=int(int(found[3]) * _MEMORY_OF_NAME))


def cuts_of(node: reports.NodeReport) -> Cuts:
    """Return how the node's MIG instances are cut."""
    return {device.uuid: device.shape for device in node.devices if device.shape is not None}


def at_best(resource: str, facts: NodeFacts | None, cuts: Cuts) -> MigShape | None:
    """Return what a resource may have to offer once all is free: its instances are those that have the name's slices."""
    named = mig_shape(resource) or mig_shape(_product(facts))
    if named is None:
        return None
    kin = [cut.memory_bytes for cut in cuts.values() if cut.compute_slices == Known(named.compute_slices)]
    sizes = [size.value for size in kin if isinstance(size, Known)]
    return MigShape(compute_slices=named.compute_slices, memory_bytes=max(sizes, default=named.memory_bytes))


def _product(facts: NodeFacts | None) -> str:
    return facts.labels.get(_PRODUCT, "") if facts is not None else ""


def _least(devices: tuple[str, ...], cuts: Cuts, named: MigShape | None) -> MigShape | None:
    found = [cuts.get(device.partition(_REPLICA_MARK)[0]) for device in devices]
    slices = _lowest([cut.compute_slices for cut in found if cut is not None], len(found))
    memory = _lowest([cut.memory_bytes for cut in found if cut is not None], len(found))
    if named is not None:
        slices = named.compute_slices if slices is None else slices
        memory = named.memory_bytes if memory is None else memory
    return None if slices is None or memory is None else MigShape(compute_slices=slices, memory_bytes=memory)


def _lowest(readings: list[Reading[int]], devices: int) -> int | None:
    """Return the lowest figure, if every device has one."""
    known = [reading.value for reading in readings if isinstance(reading, Known)]
    return min(known) if known and len(known) == devices else None


def _numa(topology: Topology, devices: Iterable[str]) -> dict[int, int] | None:
    """Return the number of devices by NUMA node; None if one's is not known: then the kubelet may not know it either."""
    nodes = {gpu.uuid: gpu.numa_node for gpu in topology.gpus}
    counts: dict[int, int] = {}
    for device in devices:
        found = nodes.get(device)
        if not isinstance(found, Known):
            return None
        counts[found.value] = counts.get(found.value, 0) + 1
    return counts


def _largest(topology: Topology) -> int:
    sizes = _numa(topology, (gpu.uuid for gpu in topology.gpus)) or {}
    return max(sizes.values(), default=0)


def _by_numa(topology: Topology, devices: tuple[str, ...]) -> list[tuple[str, ...]]:
    groups: dict[object, tuple[str, ...]] = {}
    for gpu in topology.gpus:
        if gpu.uuid in devices:
            groups[gpu.numa_node] = (*groups.get(gpu.numa_node, ()), gpu.uuid)
    return list(groups.values())


def _common(devices: tuple[str, ...], domains: Mapping[str, str]) -> str:
    """Return the one domain of all devices; empty if there are several, none, or a device of unknown domain."""
    found = {domains.get(device, "") for device in devices}
    return found.pop() if len(found) == 1 else ""
