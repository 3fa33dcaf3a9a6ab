"""Put together what the reader and the admitter say about a device plugin.

In: the process half (the reader's) and the pod half (the slice's). Out: the `plugins` plane of an Observation. Pure.

Invariant: one half alone is kept; nothing one side knows is lost because the other is silent. Where both were asked, a
plugin that has neither a process nor a pod is not on the node (faults.md A12).
"""

import dataclasses

from muster.model import kube
from muster.model.reading import Known, Reading, Unknown

_POD_HALF = ("pod", "pod_phase", "restarts", "crash_looping", "message", "version")
"""What only the API server knows of a plugin."""

Plugins = Reading[tuple[kube.Plugin, ...]]


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
        if pod is None and process.process_alive == Known(False):  # noqa: FBT003
            continue
        half = {} if pod is None else {name: getattr(pod, name) for name in _POD_HALF}
        if pod is not None and not process.resource_prefix:
            half["resource_prefix"] = pod.resource_prefix
        if pod is not None and not process.config:
            half["config"] = pod.config
        joined.append(dataclasses.replace(process, **half))
    return tuple(sorted((*joined, *by_prefix.values()), key=lambda plugin: (plugin.resource_prefix, plugin.pod)))
