"""Put together what several sources say about one thing.

In: the reader's half and the admitter's half of the device plugins; this pass's and the last pass's GPUs. Out: the planes
of an Observation. Pure.

Invariant: a value is carried over only onto the device with the same UUID, and only where this pass did not ask
(NotCollected): a field that was asked for and failed keeps its reason.
"""

import dataclasses
from collections.abc import Mapping

from agent.model import planes
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

STATIC = ("product", "memory_bytes", "numa_node", "nvlinks", "events_supported", "persistence", "licence")
"""Read once per generation of the driver's devices."""

PROCESSES = ("processes",)
"""Read every 30 s and on change (design.md section 7)."""

_POD_HALF = ("pod", "pod_phase", "restarts", "crash_looping", "message", "version")
"""What only the API server knows of a plugin."""

Plugins = Reading[tuple[kube.Plugin, ...]]


def carry(fresh: planes.Nvml, before: Mapping[str, planes.Gpu]) -> planes.Nvml:
    """Return the pass with what it did not ask for taken from the last one."""
    return dataclasses.replace(fresh, devices=tuple(_carry_gpu(gpu, before.get(gpu.uuid)) for gpu in fresh.devices))


def lacks_static(nvml: planes.Nvml) -> bool:
    """Return whether a device that answers has static facts nobody has read yet."""
    return any(not gpu.error and gpu.product == NOT_COLLECTED for gpu in nvml.devices)


def _carry_gpu(gpu: planes.Gpu, before: planes.Gpu | None) -> planes.Gpu:
    if before is None or not gpu.uuid:
        return gpu
    kept = {
        name: getattr(before, name)
        for name in (*STATIC, *PROCESSES)
        if getattr(gpu, name) == NOT_COLLECTED and getattr(before, name) != NOT_COLLECTED
    }
    return dataclasses.replace(gpu, **kept) if kept else gpu


def plugins(process_half: Plugins, pod_half: Plugins) -> Plugins:
    """Join both halves by resource prefix; one half alone is still worth having."""
    match process_half, pod_half:
        case Known(processes), Known(pods):
            return Known(_joined(processes, pods))
        case Known(), Unknown():
            return process_half
        case Unknown(), Known():
            return pod_half
        case _:
            return process_half


def _joined(processes: tuple[kube.Plugin, ...], pods: tuple[kube.Plugin, ...]) -> tuple[kube.Plugin, ...]:
    by_prefix = {plugin.resource_prefix: plugin for plugin in pods}
    joined = []
    for process in processes:
        pod = by_prefix.pop(process.resource_prefix, None)
        if pod is None and len(processes) == 1 and len(pods) == 1:
            # One of each on the node: they are the same plugin, even if a half does not know its prefix.
            pod = by_prefix.pop(pods[0].resource_prefix)
        half = {} if pod is None else {name: getattr(pod, name) for name in _POD_HALF}
        if pod is not None and not process.resource_prefix:
            half["resource_prefix"] = pod.resource_prefix
        if pod is not None and not process.config:
            half["config"] = pod.config
        joined.append(dataclasses.replace(process, **half))
    return tuple(sorted((*joined, *by_prefix.values()), key=lambda plugin: (plugin.resource_prefix, plugin.pod)))
