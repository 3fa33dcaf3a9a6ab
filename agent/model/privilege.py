"""What a container must be allowed so that a plane can be read, field by field.

Values only. The DaemonSet's profiles (hack/matrix/profiles.py) are what they lack of these; docs/rules.md names the ones
that each rule rests on.

Invariant: every field of an Observation is covered, by its own row or by that of the plane it is in; a test walks the
types. The longest row that fits decides.
"""

import enum
import types
from collections.abc import Mapping


class Privilege(enum.StrEnum):
    """One thing that somebody has to grant."""

    NONE = "none"
    """Every container sees it: sysfs, the boot."""
    GPU_DEVICES = "gpu-devices"
    """The driver's device files and library in the reader: injected, or the host's."""
    MIG_MONITOR = "mig-monitor"
    """CAP_SYS_ADMIN in the reader: MIG instances that it was not given (faults.md H3)."""
    HOST_PID = "host-pid"
    """hostPID: whose a process on a GPU is, when kubelet and plugins started, whether the MPS daemon is alive."""
    KERNEL_LOG = "kernel-log"
    """/dev/kmsg in the reader: privileged, or CAP_SYSLOG and the device."""
    HOST_FILES = "host-files"
    """The host's files in the reader, read-only: /dev, CDI specs, sockets of plugins and DRA drivers."""
    POD_RESOURCES = "pod-resources"
    """The kubelet's pod-resources socket in the agent."""
    CHECKPOINT = "checkpoint"
    """The kubelet's device-plugins folder in the agent."""
    NODE_SLICE = "node-slice"
    """An admitter that watches Nodes, Pods, Events and ResourceSlices, and sends this node's part."""


OF_FIELD: Mapping[str, Privilege] = types.MappingProxyType(
    {
        "boot": Privilege.NONE,
        "pci": Privilege.NONE,
        "expected": Privilege.NONE,
        "nvml": Privilege.GPU_DEVICES,
        "nvml.devices.mig": Privilege.MIG_MONITOR,
        "nvml.devices.processes": Privilege.HOST_PID,
        "device_nodes": Privilege.HOST_FILES,
        "kernel_log": Privilege.KERNEL_LOG,
        "kubelet.started_at": Privilege.HOST_PID,
        "kubelet.allocatable": Privilege.POD_RESOURCES,
        "kubelet.pods": Privilege.POD_RESOURCES,
        "kubelet.version": Privilege.POD_RESOURCES,
        "kubelet.checkpoint": Privilege.CHECKPOINT,
        "plugins": Privilege.NODE_SLICE,
        "plugins.process_alive": Privilege.HOST_PID,
        "plugins.started_at": Privilege.HOST_PID,
        "plugins.connected": Privilege.HOST_PID,
        "plugins.socket_present": Privilege.HOST_FILES,
        "plugins.socket_dir": Privilege.HOST_FILES,
        "plugins.resources": Privilege.HOST_FILES,
        "dra": Privilege.NODE_SLICE,
        "dra.drivers.registration_socket_present": Privilege.HOST_FILES,
        "dra.drivers.answering": Privilege.HOST_FILES,
        "dra.drivers.started_at": Privilege.HOST_PID,
        "cdi": Privilege.HOST_FILES,
        "mps": Privilege.HOST_PID,
        "desired_mig": Privilege.NODE_SLICE,
        "node_object": Privilege.NODE_SLICE,
        "pods": Privilege.NODE_SLICE,
        "rejections": Privilege.NODE_SLICE,
        "features": Privilege.NODE_SLICE,
    }
)
"""Field of an Observation -> what reading it takes."""


def of(path: str) -> Privilege:
    """Return the privilege of a field.

    >>> of("nvml.devices.processes.cgroup").value, of("nvml.devices.error").value
    ('host-pid', 'gpu-devices')
    """
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = OF_FIELD.get(".".join(parts[:length]))
        if found is not None:
            return found
    raise KeyError(path)
