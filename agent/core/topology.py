"""Static topology of a node: which GPUs are joined by NVLink, and to which fabric clique each belongs.

Input: what NVML said, and the topology published before. Output: the topology to publish; the same generation unless a
static fact changed.

Invariant: an unreadable fact joins nobody: a GPU without readable links has no island, a fabric that is not completed,
healthy and non-zero no clique. An NVML or a GPU that does not answer keeps what was known, since it says nothing about
the wiring.

Why components are checked to be complete: an island is a set in which each GPU is joined to each (design.md section 6); in
a cube mesh the connected component is larger than that, and is no island.
"""

import dataclasses
from collections.abc import Collection, Mapping

from agent.core import kernel_log
from agent.model import planes
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown
from muster.model.report import GpuTopology, Topology

_ZERO = frozenset("0-")
_SUCCESS = ("success", "nvml_success")
_SWITCH = "switch"


def topology(nvml: Reading[planes.Nvml], previous: Topology) -> Topology:
    """Return the topology to publish after this sample."""
    match nvml:
        case Unknown():
            return previous
        case Known(value):
            gpus = _gpus(value, {gpu.uuid: gpu for gpu in previous.gpus})
    if gpus == previous.gpus and previous.generation > 0:
        return previous
    return Topology(generation=previous.generation + 1, gpus=gpus)


def _gpus(nvml: planes.Nvml, before: Mapping[str, GpuTopology]) -> tuple[GpuTopology, ...]:
    answering = {gpu.uuid: gpu for gpu in sorted(nvml.devices, key=repr) if not gpu.error}
    silent = {gpu.uuid for gpu in nvml.devices if gpu.error} & before.keys()
    islands = _with_old_names(_islands(answering), before, silent)
    result = {uuid: _gpu(gpu, islands.get(uuid, ""), before.get(uuid)) for uuid, gpu in answering.items()}
    for uuid in silent:
        result.setdefault(uuid, before[uuid])
    return tuple(result[uuid] for uuid in sorted(result))


def _gpu(gpu: planes.Gpu, island: str, before: GpuTopology | None) -> GpuTopology:
    fresh = GpuTopology(
        uuid=gpu.uuid,
        pci=_text(gpu.pci),
        product=_text(gpu.product),
        memory_bytes=gpu.memory_bytes,
        numa_node=gpu.numa_node,
        island=island,
        clique=clique_of(gpu),
    )
    if before is None:
        return fresh
    # A static fact that one sample did not bring is still the fact of the sample before.
    return dataclasses.replace(
        fresh,
        pci=fresh.pci or before.pci,
        product=fresh.product or before.product,
        memory_bytes=_kept(fresh.memory_bytes, before.memory_bytes),
        numa_node=_kept(fresh.numa_node, before.numa_node),
        island=island if isinstance(gpu.nvlinks, Known) else before.island,
        clique=fresh.clique if isinstance(gpu.fabric, Known) else before.clique,
    )


def _kept(now: Reading[int], before: Reading[int]) -> Reading[int]:
    return before if now == NOT_COLLECTED else now


def clique_of(gpu: planes.Gpu) -> str:
    """Return `<cluster uuid>.<clique>` of a fabric shared with other nodes; empty for any other."""
    match gpu.fabric:
        case Unknown():
            return ""
        case Known(fabric):
            pass
    if fabric.state is not planes.FabricState.COMPLETED or fabric.summary == Known(planes.FabricSummary.UNHEALTHY):
        return ""
    match fabric.status, fabric.cluster_uuid, fabric.clique:
        case Known(status), Known(uuid), Known(clique):
            is_shared = status.lower() in _SUCCESS and not set(uuid) <= _ZERO
            return f"{uuid}.{clique}" if is_shared else ""
        case _:
            return ""


def _islands(gpus: Mapping[str, planes.Gpu]) -> dict[str, str]:
    """Return the island of each GPU that is in one, named by its first UUID."""
    peers = {uuid: _peers(gpu, gpus) for uuid, gpu in gpus.items()}
    joined = {uuid: {other for other in peers[uuid] if uuid in peers[other]} for uuid in gpus}
    result: dict[str, str] = {}
    for uuid in sorted(gpus):
        members = {uuid} | joined[uuid]
        is_complete = all(members == {other} | joined[other] for other in members)
        if len(members) > 1 and is_complete:
            result[uuid] = min(members)
    return result


def _with_old_names(
    islands: Mapping[str, str], before: Mapping[str, GpuTopology], silent: Collection[str]
) -> dict[str, str]:
    """Return the islands, each under the name it had while a GPU of it is silent: the wiring is still the same."""
    kept = {before[uuid].island for uuid in silent} - {""}
    return {
        uuid: before[uuid].island if uuid in before and before[uuid].island in kept else name
        for uuid, name in islands.items()
    }


def _peers(gpu: planes.Gpu, gpus: Mapping[str, planes.Gpu]) -> set[str]:
    """Return the GPUs at the far end of this one's links, directly or through a switch."""
    ends = _far_ends(gpu)
    if ends is None:
        return set()
    if _SWITCH in ends:
        others = ((uuid, _far_ends(other)) for uuid, other in gpus.items())
        return {uuid for uuid, theirs in others if theirs is not None and _SWITCH in theirs} - {gpu.uuid}
    by_pci = {
        kernel_log.normalised(pci.value): uuid for uuid, item in gpus.items() if isinstance(pci := item.pci, Known)
    }
    return {by_pci[address] for address in ends if address in by_pci} - {gpu.uuid}


def _far_ends(gpu: planes.Gpu) -> frozenset[str] | None:
    """Return the remote addresses, or the word switch; None unless the links were read and all of them are active."""
    match gpu.nvlinks:
        case Unknown():
            return None
        case Known(links):
            pass
    if any(link.state not in (planes.LinkState.ACTIVE, planes.LinkState.SLEEP) for link in links):
        return None
    return frozenset(_far_end(link) for link in links)


def _far_end(link: planes.NvLink) -> str:
    """Return where a link leads. Active with an unidentified remote is a switch (topology.md section 1.2)."""
    match link.remote, link.remote_pci:
        case Known(planes.LinkRemote.GPU), Known(address):
            return kernel_log.normalised(address)
        case Known(planes.LinkRemote.NPU | planes.LinkRemote.GPU), _:
            return ""
        case _:
            return _SWITCH


def _text(reading: Reading[str]) -> str:
    match reading:
        case Known(text):
            return text
        case Unknown():
            return ""
