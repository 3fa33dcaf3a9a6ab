"""What every plane said about one node at one moment: the agent's only input.

Values only, one `Observation` for one line of a capture. Field names are those of contracts/capture.schema.json and of
proto/muster/v1/planes.proto; a test compares all three. The half that comes from the API server is in
muster.model.kube, since the admitter speaks it too.

Why one file longer than most: it is read beside the schema, type by type, and has no logic to split along.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Reading

SCHEMA = "muster.capture/v1"


class FabricState(enum.StrEnum):
    NOT_SUPPORTED = "not_supported"
    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class FabricSummary(enum.StrEnum):
    NOT_SUPPORTED = "not_supported"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    LIMITED_CAPACITY = "limited_capacity"


class LinkState(enum.StrEnum):
    INACTIVE = "inactive"
    ACTIVE = "active"
    SLEEP = "sleep"
    TRAFFIC_DISABLED = "traffic_disabled"


class LinkRemote(enum.StrEnum):
    GPU = "gpu"
    SWITCH = "switch"
    NPU = "npu"
    UNKNOWN = "unknown"


class XidSource(enum.StrEnum):
    NVML = "nvml"
    KERNEL_LOG = "kernel_log"


class RecoveryAction(enum.StrEnum):
    """NVML field 230."""

    NONE = "none"
    RESET = "reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    BUS_RESET = "bus_reset"
    SYSTEM_REBOOT = "system_reboot"
    UNSUPPORTED = "unsupported"


class PciClass(enum.StrEnum):
    DISPLAY = "display"
    THREE_D = "3d"
    OTHER = "other"


class IdTopology(enum.StrEnum):
    """The three empty-looking forms of a device's topology (faults.md S7)."""

    ABSENT = "absent"
    EMPTY_NODE = "empty_node"
    NODES = "nodes"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    id: str
    at: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    uuid: str
    gi: int
    ci: int
    profile: str
    compute_slices: Reading[int] = NOT_COLLECTED
    """Compute slices of the compute instance."""
    gpu_slices: Reading[int] = NOT_COLLECTED
    """Compute slices of its GPU instance."""
    memory_bytes: Reading[int] = NOT_COLLECTED
    attributes: tuple[str, ...] = ()
    """me, gfx, me.all, -me"""
    start: Reading[int] = NOT_COLLECTED
    """First memory slice."""
    size: Reading[int] = NOT_COLLECTED
    """Memory slices."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    current: bool
    pending: bool
    instances: tuple[MigInstance, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remap:
    correctable: Reading[int] = NOT_COLLECTED
    uncorrectable: Reading[int] = NOT_COLLECTED
    pending: Reading[bool] = NOT_COLLECTED
    failed: Reading[bool] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ecc:
    volatile_corrected: Reading[int] = NOT_COLLECTED
    volatile_uncorrected: Reading[int] = NOT_COLLECTED
    aggregate_corrected: Reading[int] = NOT_COLLECTED
    aggregate_uncorrected: Reading[int] = NOT_COLLECTED
    sram_uncorrected: Reading[int] = NOT_COLLECTED
    """Since the last reset, like the other volatile ones: the board's own count would never end."""
    sram_threshold_exceeded: Reading[bool] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    state: FabricState
    status: Reading[str] = NOT_COLLECTED
    """`success` or the NVML error name; valid only when completed."""
    cluster_uuid: Reading[str] = NOT_COLLECTED
    """All zero: a single-node fabric, shared with nobody."""
    clique: Reading[int] = NOT_COLLECTED
    summary: Reading[FabricSummary] = NOT_COLLECTED
    health: Mapping[str, str] = codec.mapping(mixed=True)
    """Health mask, field -> value as topology.md section 1.2 names them, as text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    link: int
    state: LinkState
    remote: Reading[LinkRemote] = NOT_COLLECTED
    remote_pci: Reading[str] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    code: int
    at: datetime.datetime
    gi: int | None = None
    """GPU instance id; None = the whole GPU."""
    ci: int | None = None
    source: XidSource = XidSource.NVML


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    """Host pid."""
    used_bytes: Reading[int] = codec.reading(null="NotReported")
    cgroup: Reading[str] = NOT_COLLECTED
    """The process's cgroup path; unknown where the host PID view is missing."""
    gi: int | None = None
    ci: int | None = None
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    licensed: bool
    expiry: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confidential:
    feature: Reading[bool] = NOT_COLLECTED
    ready: Reading[bool] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the driver shows it."""

    uuid: str
    pci: Reading[str] = NOT_COLLECTED
    """Bus address, lower case, 0000:1b:00.0."""
    index: Reading[int] = NOT_COLLECTED
    """Enumeration index; display only, never an identity (faults.md D7)."""
    product: Reading[str] = NOT_COLLECTED
    error: str = ""
    """What the identifying query answered (GPU_IS_LOST, TIMEOUT, ...); empty: it answers."""
    memory_bytes: Reading[int] = NOT_COLLECTED
    memory_used_bytes: Reading[int] = NOT_COLLECTED
    utilization_percent: Reading[int] = NOT_COLLECTED
    numa_node: Reading[int] = codec.reading(null="NotKnown")
    mig: Reading[Mig] = codec.reading(error=True)
    recovery_action: Reading[RecoveryAction] = NOT_COLLECTED
    remap: Reading[Remap] = codec.reading(error=True)
    retired_pages_pending: Reading[bool] = NOT_COLLECTED
    ecc: Reading[Ecc] = codec.reading(error=True)
    fabric: Reading[Fabric] = codec.reading(error=True)
    nvlinks: Reading[tuple[NvLink, ...]] = codec.reading(error=True)
    clocks_reasons: Reading[tuple[str, ...]] = NOT_COLLECTED
    temperature_c: Reading[int] = NOT_COLLECTED
    power_mw: Reading[int] = NOT_COLLECTED
    xids: Reading[tuple[Xid, ...]] = NOT_COLLECTED
    """Events seen since boot, oldest first."""
    events_supported: Reading[tuple[str, ...]] = NOT_COLLECTED
    processes: Reading[tuple[Process, ...]] = codec.reading(error=True)
    licence: Reading[Licence] = codec.reading(error=True)
    confidential: Reading[Confidential] = codec.reading(error=True)
    drain: Reading[bool] = NOT_COLLECTED
    persistence: Reading[bool] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    driver_version: Reading[str] = NOT_COLLECTED
    """The library's view."""
    kernel_module_version: Reading[str] = NOT_COLLECTED
    """The loaded module."""
    device_count: Reading[int] = NOT_COLLECTED
    """What the driver counts; may differ from the devices listed."""
    devices: tuple[Gpu, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """An NVIDIA function on the bus."""

    address: str
    driver: str | None
    """Bound kernel driver; None = none is bound."""
    numa_node: Reading[int] = NOT_COLLECTED
    iommu_group: Reading[int] = NOT_COLLECTED
    class_: Reading[PciClass] = codec.reading(name="class")
    drain: Reading[bool] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file of the driver."""

    path: str
    present: bool
    """A character device with the driver's major number is there."""
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    at: datetime.datetime
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIds:
    """Device ids of one resource; one entry per device per NUMA node (faults.md S6)."""

    resource: str
    ids: tuple[str, ...]
    topology: IdTopology | None = None
    numa_nodes: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDevice:
    driver: str = ""
    pool: str = ""
    device: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    namespace: str = ""
    name: str = ""
    devices: tuple[ClaimDevice, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListedContainer:
    name: str
    devices: tuple[DeviceIds, ...]
    claims: tuple[Claim, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListedPod:
    """A pod in the kubelet's pod-resources List."""

    namespace: str
    name: str
    uid: str = ""
    """Only if the kubelet gives it; the v1 API does not."""
    containers: tuple[ListedContainer, ...]

    @property
    def full_name(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPod:
    uid: str
    container: str = ""
    resource: str
    ids: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The kubelet's device-manager checkpoint: a hint, never a count (faults.md S11)."""

    registered: Mapping[str, tuple[str, ...]]
    pods: tuple[CheckpointPod, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    started_at: Reading[datetime.datetime] = NOT_COLLECTED
    version: str = ""
    allocatable: Reading[tuple[DeviceIds, ...]] = codec.reading(error=True)
    """GetAllocatableResources."""
    pods: Reading[tuple[ListedPod, ...]] = codec.reading(error=True)
    """List."""
    checkpoint: Reading[Checkpoint] = codec.reading(error=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CdiSpec:
    kind: str
    written_at: datetime.datetime | None = None
    devices: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mps:
    daemon_alive: Reading[bool] = NOT_COLLECTED
    ready: Reading[bool] = NOT_COLLECTED
    started_at: Reading[datetime.datetime] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    gpus: int
    source: str
    """`operator` or `learned`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One line of a capture."""

    schema: str = codec.always(SCHEMA)
    node: str
    taken_at: datetime.datetime
    boot: Reading[Boot] = codec.reading(error=True)
    nvml: Reading[Nvml] = codec.reading(error=True)
    pci: Reading[tuple[PciFunction, ...]] = codec.reading(error=True)
    device_nodes: Reading[tuple[DeviceNode, ...]] = codec.reading(error=True)
    kernel_log: Reading[tuple[KernelRecord, ...]] = codec.reading(error=True)
    kubelet: Reading[Kubelet] = codec.reading(error=True)
    plugins: Reading[tuple[kube.Plugin, ...]] = codec.reading(error=True)
    dra: Reading[kube.Dra] = codec.reading(error=True)
    cdi: Reading[tuple[CdiSpec, ...]] = codec.reading(error=True)
    mps: Reading[Mps] = codec.reading(error=True)
    desired_mig: Reading[kube.DesiredMig] = codec.reading(error=True)
    node_object: Reading[kube.NodeObject] = codec.reading(error=True)
    pods: Reading[tuple[kube.Pod, ...]] = codec.reading(error=True)
    rejections: tuple[kube.Rejection, ...] = ()
    expected: Expected | None = None
    features: Mapping[str, bool] = codec.mapping()
    notes: str = ""
    """For people; the core never reads it."""
