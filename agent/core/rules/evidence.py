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
    clocks: tuple[str, ...] = ()
    """Rows of policy.DURATIONS that it asks besides its own `wait`: a window in which the state is normal, or counts."""


def _on(*needs: str, uses: tuple[str, ...] = (), clocks: tuple[str, ...] = ()) -> Evidence:
    return Evidence(needs=needs, uses=uses, clocks=clocks)


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
        "A4": _on(
            _GPU,
            _GA,
            _STARTED,
            "plugins.socket_present",
            _KUBELET,
            uses=(_NODE,),
            clocks=("kubelet-socket", "kubelet-restart"),
        ),
        "A5": _on(_GPU, _GA, _KUBELET, uses=(_NODE, _ALIVE), clocks=("kubelet-restart", "alloc-flash")),
        "A6": _on(_NODE, _GA, _KUBELET, clocks=("alloc-flash",)),
        "A8": _on(_LIST, "pods", clocks=("container-without-device",)),
        "A9": _on(_GPU, _GA, _NODE, "plugins.socket_dir"),
        "A10": _on(_GPU, _GA, _NODE, uses=(_MIG, _ALIVE, _STARTED, "plugins.message"), clocks=("plugin-waiting",)),
        "A11": _on(_GPU, _GA, uses=(_NODE, "boot"), clocks=("node-boot",)),
        "A12": _on(_GPU, _GA, _NODE, "plugins"),
        "A13": _on(_GPU, _GA, _NODE, "boot", clocks=("node-boot",)),
        "A13-driver": _on("boot", uses=("nvml",), clocks=("node-boot",)),
        "A14": _on(_GPU, _GA, uses=(_LIST,)),
        "B1": _on(_GPU, _GA, _NODE, uses=(_MIG,)),
        "B2": _on(_ERROR, _GA),
        "B3": _on(
            "rejections",
            _ERROR,
            _GA,
            _LIST,
            uses=(_STARTED, "pods"),
            clocks=("gpu-lost", "rejection-recent", "rejection-unanswerable"),
        ),
        "B4": _on(
            "rejections",
            _GA,
            _LIST,
            uses=(_STARTED, "pods"),
            clocks=("rejection-burst", "rejection-recent", "rejection-unanswerable"),
        ),
        "B5": _on("nvml.devices.recovery_action", _GA),
        "B6": _on("nvml.devices.remap", _GA, uses=("nvml.devices.retired_pages_pending",)),
        "B7": _on("nvml.devices.pci", "pci", uses=("boot",), clocks=("node-boot",)),
        "B8": _on(_ERROR, _GA),
        "B8-init": _on("nvml"),
        "B9": _on(_GA, _LIST, uses=(_NODE, "pods")),
        "B10": _on(_GPU, _GA, _MIG, "nvml.devices.xids", uses=("nvml.devices.recovery_action",)),
        "B11": _on("nvml.devices.events_supported", _GA, _NODE),
        "C1": _on(_GPU, _MIG, _GA),
        "C2": _on(_NODE, _GA, clocks=("kubelet-restart",)),
        "C3": _on(
            _GPU, _MIG, "boot", _LABELS, uses=("desired_mig", "kubelet.checkpoint"), clocks=("mig-reapply", "node-boot")
        ),
        "C3-mode-off": _on(_GPU, "boot", "desired_mig.layout", uses=(_MIG, _GA, "kubelet.checkpoint")),
        "C4": _on(_GPU, _MIG, uses=(_GA, _LABELS)),
        "C5": _on(_GPU, _MIG, uses=(_GA, "plugins.config", _LABELS)),
        "C6": _on(_GPU, _GA, uses=(_MIG,)),
        "C7": _on(_LABELS, clocks=("maintenance-mig", "maintenance-serving", "maintenance-moving")),
        "C8": _on("desired_mig.layout", _LABELS, _GPU, _MIG),
        "C8-single": _on("desired_mig.layout", _LABELS, _GPU, _MIG, uses=(_GA, "plugins.config")),
        "C12": _on(_GPU, _MIG, _GA, _LABELS),
        "C11": _on(_GPU, _MIG, _GA),
        "D1": _on("nvml"),
        "D3": _on(_GPU, _GA, _NODE, "plugins.connected"),
        "D4": _on("nvml.devices.fabric", _GA, uses=("boot",), clocks=("fabric",)),
        "D5": _on(_LABELS, clocks=("maintenance-driver",)),
        "D5-stuck": _on(_LABELS, uses=(_GPU, _GA), clocks=("maintenance-driver", "maintenance-serving")),
        "D5-unloaded": _on("nvml", _LABELS),
        "D6": _on("cdi", _LIST, "pods"),
        "E3": _on("rejections", _GA, _LIST, uses=(_KUBELET,), clocks=("rejection-recent", "rejection-unanswerable")),
        "E4": _on(_GPU, _PROCESSES, _GA, _LIST, uses=("pods",)),
        "E4-listed": _on(_LIST, "pods", clocks=("pod-teardown",)),
        "E5": _on(_GPU, _PROCESSES, _GA, _LIST),
        "E6": _on(_GPU, _PROCESSES, "nvml.devices.memory_used_bytes", _GA, _LIST, uses=("mps",)),
        "E7": _on(_NODE, _GA),
        "E8": _on(_GPU, _PROCESSES, _GA, _LIST, uses=("pods",)),
        "E9": _on("rejections", clocks=("rejection-recent",)),
        "F2-both": _on(_GPU, _GA, uses=(_LIST,)),
        "F3": _on(_GPU, _GA, "mps", _LABELS, uses=("plugins.config",)),
        "F3-race": _on("mps", _GA, _LABELS, uses=("plugins.config",)),
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
        "device-file-gpu": _on("device_nodes", _GPU, _GA, clocks=("node-boot",)),
        "device-files": _on("device_nodes", _GPU, uses=(_GA,), clocks=("node-boot",)),
        "driver-not-loaded": _on("nvml"),
        "expected-gpus": _on("expected", _GPU, uses=("pci", "boot"), clocks=("node-boot",)),
        "gpu-drained": _on("nvml.devices.drain", _GA),
        "gpu-hardware": _on(_ERROR, _GA),
        "gpu-unreadable": _on(_ERROR, _GA),
        "maintenance": _on(
            _LABELS, clocks=("maintenance-mig", "maintenance-driver", "maintenance-serving", "maintenance-moving")
        ),
        "nvml-closed": _on("nvml", clocks=("maintenance-mig", "maintenance-driver")),
        "nvml-unreadable": _on(uses=("nvml",)),
        "pod-rejected": _on("rejections", clocks=("rejection-burst", "rejection-recent")),
        "row-remap-failed": _on("nvml.devices.remap", _GA),
        "sram-threshold": _on("nvml.devices.ecc", _GA),
        "F4": _on(_GPU, _GA, "pci"),
        "dra-unpublished": _on(_GPU, _GA, "plugins", "dra.drivers", uses=("dra.slices", "boot")),
        "pci-drained": _on(_GPU, "nvml.devices.pci", "pci"),
        "gpu-unasked": _on(_GPU, _PROCESSES, _GA, _LIST, "pods"),
        "management-tool": _on(_GPU, _PROCESSES, _GA, _LIST),
        "operator-pod": _on(_GA, _LIST),
        "F5": _on(_GPU, _GA, "nvml.devices.licence", uses=("boot",)),
        "confidential-not-ready": _on(_GPU, _GA, "nvml.devices.confidential"),
        "fabric-degraded": _on(_GPU, _GA, "nvml.devices.fabric"),
        "nvlink-down": _on(_GPU, _GA, "nvml.devices.nvlinks"),
        "slowdown": _on(_GPU, _GA, "nvml.devices.clocks_reasons"),
        "sram-errors": _on(_GPU, _GA, "nvml.devices.ecc"),
        "xid-degraded": _on(_GPU, _GA, uses=(_MIG, "nvml.devices.xids", "kernel_log", "nvml.devices.recovery_action")),
        "xid-fatal": _on(_GPU, _GA, uses=(_MIG, "nvml.devices.xids", "kernel_log", "nvml.devices.recovery_action")),
    }
)
"""Rule id -> what it looks at."""

UNREAD = frozenset({"dra.drivers.pod", "dra.drivers.started_at", "plugins.resources"})
"""Fields that captures may have and no source reads (docs/fields.md says why): no rule may look at one, or it would decide
captures and be silent on a running agent."""
