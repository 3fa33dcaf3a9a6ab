"""What the API server says about one node: the slice that the admitter sends to its agent, and a part of every capture.

Values only. Field names are those of contracts/capture.schema.json and proto/muster/v1/planes.proto, which
muster.model.codec relies on; a test compares all three.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from muster.model import codec
from muster.model.reading import NOT_COLLECTED, Reading


class ContainerKind(enum.StrEnum):
    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


class ContainerState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


class PodPhase(enum.StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    value: str = ""
    effect: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    type: str
    status: str
    reason: str = ""
    since: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """The Node object. In `capacity` and `allocatable` an absent key is not the same as 0 (faults.md S2)."""

    heartbeat_at: datetime.datetime | None = None
    """The Ready condition's last heartbeat, or the node Lease's renewal."""
    ready: Reading[bool] = NOT_COLLECTED
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = codec.mapping()
    annotations: Mapping[str, str] = codec.mapping()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    conditions: tuple[NodeCondition, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    kind: ContainerKind | None = None
    state: ContainerState | None = None
    since: datetime.datetime | None = None
    """Start of that state."""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    requests: Mapping[str, int] = codec.mapping()
    """Extended resources, name -> count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod bound to the node, from the API server."""

    namespace: str
    name: str
    uid: str
    phase: PodPhase
    reason: str = ""
    created_at: datetime.datetime | None = None
    deletion_at: datetime.datetime | None = None
    owner_kind: str = ""
    requests: Mapping[str, int] = codec.mapping()
    containers: tuple[Container, ...] = ()

    @property
    def full_name(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"

    @property
    def is_finished(self) -> bool:
        """A finished pod holds nothing (faults.md E1)."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A pod that this node's kubelet refused."""

    at: datetime.datetime
    pod: str = ""
    """namespace/name"""
    uid: str = ""
    reason: str
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginResource:
    healthy: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A device plugin on the node: the process half from the reader, the pod half from the slice."""

    resource_prefix: str = ""
    pod: str = ""
    """namespace/name"""
    pod_phase: str = ""
    process_alive: Reading[bool] = NOT_COLLECTED
    started_at: Reading[datetime.datetime] = NOT_COLLECTED
    """Process start."""
    restarts: Reading[int] = NOT_COLLECTED
    crash_looping: Reading[bool] = NOT_COLLECTED
    socket_present: Reading[bool] = NOT_COLLECTED
    """Socket file beside the kubelet's registration socket."""
    socket_dir: str = ""
    """Directory of the socket when it is another one."""
    connected: Reading[bool] = NOT_COLLECTED
    """A stream to the kubelet is known to be open."""
    config: Mapping[str, str] = codec.mapping()
    message: str = ""
    version: str = ""
    resources: Mapping[str, PluginResource] = codec.mapping()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraDriver:
    name: str
    registration_socket_present: Reading[bool] = NOT_COLLECTED
    answering: Reading[bool] = NOT_COLLECTED
    pod: str = ""
    started_at: Reading[datetime.datetime] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraDevice:
    name: str
    uuid: str = ""
    type: str = ""
    taints: tuple[Taint, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraSlice:
    driver: str
    pool: str = ""
    published_at: datetime.datetime | None = None
    devices: tuple[DraDevice, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    name: str
    extended_resource: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dra:
    """Dynamic resource allocation on the node."""

    drivers: tuple[DraDriver, ...] = ()
    slices: tuple[DraSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout:
    gpus: str
    """`all` or a list of indices."""
    profiles: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredMig:
    """The geometry that the node's mig.config label asks for."""

    name: str
    layout: tuple[MigLayout, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlice:
    """Everything the admitter knows about one node and its agent does not."""

    node_object: Reading[NodeObject] = NOT_COLLECTED
    pods: Reading[tuple[Pod, ...]] = NOT_COLLECTED
    rejections: tuple[Rejection, ...] = ()
    plugins: Reading[tuple[Plugin, ...]] = NOT_COLLECTED
    dra: Reading[Dra] = NOT_COLLECTED
    desired_mig: Reading[DesiredMig] = NOT_COLLECTED
    features: Mapping[str, bool] = codec.mapping()
    """Cluster features that change meaning, name -> on."""
