"""What each rule looks at: the fields without which it says nothing, and those that sharpen its cause or its clock.

A table beside the rows, because it answers another question than they do: not what a fault is, but who can see it. The
privileges follow from the fields (agent.model.privilege); docs/rules.md and the fault matrix are made from both.

Invariant: total over `table.ROWS`, and true: tests/agent/core/rules/test_evidence.py replays every rule's capture without
each privilege, and what makes a finding disappear must stand here.
"""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Fields of an Observation, by path."""

    needs: tuple[str, ...]
    """All must be readable. Empty for rules whose evidence is a plane that is not."""
    uses: tuple[str, ...] = ()
    """Any of them may decide between this cause and another, or how long it is normal."""


def _on(*needs: str, uses: tuple[str, ...] = ()) -> Evidence:
    return Evidence(needs=needs, uses=uses)


_GA, _LIST = "kubelet.allocatable", "kubelet.pods"
_GPU, _ERROR, _MIG = "nvml.devices", "nvml.devices.error", "nvml.devices.mig"
_PROCESSES = "nvml.devices.processes"
_NODE, _LABELS = "node_object.allocatable", "node_object.labels"
_STARTED, _KUBELET = "plugins.started_at", "kubelet.started_at"
_ALIVE = "plugins.process_alive"
_CLOCKS = (_NODE, _ALIVE, _STARTED, _KUBELET, "boot")
"""What tells the causes of an empty advertisement apart (rules/registration.py)."""

OF_RULE: Mapping[str, Evidence] = types.MappingProxyType(
    {
        "A1": _on(_GPU, _GA, uses=_CLOCKS),
        "A2": _on(_GPU, _GA, _NODE, uses=_CLOCKS),
        "A3": _on(_GPU, _GA, _NODE, _STARTED, "plugins.socket_present", _KUBELET),
        "A4": _on(_GPU, _GA, _STARTED, "plugins.socket_present", _KUBELET, uses=(_NODE,)),
        "A5": _on(_GPU, _GA, _KUBELET, uses=(_NODE, _ALIVE)),
        "A6": _on(_NODE, _GA, _KUBELET),
        "A8": _on(_LIST, "pods"),
        "A9": _on(_GPU, _GA, _NODE, "plugins.socket_dir"),
        "A10": _on(_GPU, _GA, _NODE, uses=(_MIG, _ALIVE, _STARTED, "plugins.message")),
        "A11": _on(_GPU, _GA, uses=(_NODE, "boot")),
        "A12": _on(_GPU, _GA, _NODE, "plugins"),
        "A13": _on(_GPU, _GA, _NODE, "boot"),
        "A13-driver": _on("boot", uses=("nvml",)),
        "A14": _on(_GPU, _GA, uses=(_LIST,)),
        "B1": _on(_GPU, _GA, _NODE, uses=(_MIG,)),
        "B2": _on(_ERROR, _GA),
        "B3": _on("rejections", _ERROR, _GA, _LIST, uses=(_STARTED, "pods")),
        "B4": _on("rejections", _GA, _LIST, uses=(_STARTED, "pods")),
        "B5": _on("nvml.devices.recovery_action", _GA),
        "B6": _on("nvml.devices.remap", _GA, uses=("nvml.devices.retired_pages_pending",)),
        "B7": _on("nvml.devices.pci", "pci", uses=("boot",)),
        "B8": _on(_ERROR, _GA),
        "B8-init": _on("nvml"),
        "B9": _on(_GA, _LIST, uses=(_NODE, "pods")),
        "B10": _on(_GPU, _GA, _MIG, "nvml.devices.xids", uses=("nvml.devices.recovery_action",)),
        "B11": _on("nvml.devices.events_supported", _GA, _NODE),
        "C1": _on(_GPU, _MIG, _GA),
        "C2": _on(_NODE, _GA),
        "C3": _on(_GPU, _MIG, "boot", _LABELS, uses=("desired_mig", "kubelet.checkpoint")),
        "C3-mode-off": _on(_GPU, "boot", "desired_mig", uses=(_MIG, _GA, "kubelet.checkpoint")),
        "C4": _on(_GPU, _MIG, uses=(_GA, _LABELS)),
        "C5": _on(_GPU, _MIG, uses=(_GA, "plugins.config", _LABELS)),
        "C6": _on(_GPU, _GA, uses=(_MIG,)),
        "C7": _on(_LABELS),
        "C8": _on("desired_mig", _LABELS, _GPU, _MIG),
        "C8-single": _on("desired_mig", _LABELS, _GPU, _MIG, uses=(_GA, "plugins.config")),
        "C12": _on(_GPU, _MIG, _GA, _LABELS),
        "C11": _on(_GPU, _MIG, _GA),
        "D1": _on("nvml"),
        "D3": _on(_GPU, _GA, _NODE, "plugins.connected"),
        "D4": _on("nvml.devices.fabric", _GA, uses=("boot",)),
        "D5": _on(_LABELS),
        "D5-stuck": _on(_LABELS, uses=(_GPU, _GA)),
        "D5-unloaded": _on("nvml", _LABELS),
        "D6": _on("cdi", _LIST, "pods"),
        "E3": _on("rejections", _GA, _LIST, uses=(_KUBELET, "pods")),
        "E4": _on(_GPU, _PROCESSES, _GA, _LIST, uses=("pods",)),
        "E4-listed": _on(_LIST, "pods"),
        "E5": _on(_GPU, _PROCESSES, _GA, _LIST),
        "E6": _on(_GPU, _PROCESSES, "nvml.devices.memory_used_bytes", _GA, _LIST, uses=("mps",)),
        "E7": _on(_NODE, _GA),
        "E8": _on(_GPU, _PROCESSES, _GA, _LIST, uses=("pods",)),
        "E9": _on("rejections"),
        "F2-both": _on(_GPU, _GA, uses=(_LIST,)),
        "F2-both": _on(_GPU, _GA, uses=(_LIST,)),
        "F3": _on(_GPU, _GA, "mps", uses=("plugins.config", _LABELS)),
        "F3-race": _on("mps", _GA, uses=("plugins.config", _LABELS)),
        "G1": _on(_LABELS, _GPU),
        "G2": _on(_GPU, _GA, "dra.slices", uses=(_LIST,)),
        "G3": _on(_GPU, "dra.slices", "dra.drivers.registration_socket_present", uses=("dra.drivers.answering",)),
        "H2": _on(uses=(_GA, _LIST)),
        "H3": _on(_ERROR, uses=(_MIG, _GA, "pci")),
        "H4": _on(uses=(_GA, _LIST)),
        "H4-refused": _on(uses=(_GA, _LIST)),
        "H5": _on(_GPU, _GA),
        "P4": _on(_GPU, _GA, _LIST, uses=(_MIG, _NODE, "pods")),
        "S4-high": _on(_NODE, _GA),
        "S4-low": _on(_NODE, _GA),
        "api-slice": _on(uses=("node_object", "pods")),
        "device-file-gpu": _on("device_nodes", _GPU, _GA),
        "device-files": _on("device_nodes", _GPU, _GA),
        "driver-not-loaded": _on("nvml"),
        "expected-gpus": _on("expected", _GPU, uses=("pci", "boot")),
        "gpu-drained": _on("nvml.devices.drain", _GA),
        "gpu-hardware": _on(_ERROR, _GA),
        "gpu-unreadable": _on(_ERROR, _GA),
        "maintenance": _on(_LABELS),
        "nvml-closed": _on("nvml"),
        "nvml-unreadable": _on(uses=("nvml",)),
        "pod-rejected": _on("rejections"),
        "row-remap-failed": _on("nvml.devices.remap", _GA),
        "sram-threshold": _on("nvml.devices.ecc", _GA),
        "xid-fatal": _on(_GPU, _GA, uses=(_MIG, "nvml.devices.xids", "kernel_log", "nvml.devices.recovery_action")),
    }
)
"""Rule id -> what it looks at."""
