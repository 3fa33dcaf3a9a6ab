"""One node at one moment, with the planes joined: what every rule and every number is computed from.

Values only, built whole by agent.core.assemble. A `Unit` is something a pod can be given (a GPU or a MIG instance); a
`ResourceView` is one resource name with its ids joined to units.

Invariant: what could not be read stays Unknown with its reason; an id that joins to no unit is kept with `unit=None`,
never dropped. Everything is sorted, so the order in which a plane listed things cannot matter.
"""

import dataclasses
import datetime
from collections.abc import Mapping

from agent.model import planes
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A physical device that a pod can be given, as the driver shows it."""

    uuid: str
    parent: str
    """UUID of the GPU: its own for a whole one."""
    gi: int | None = None
    ci: int | None = None
    profile: str = ""
    """Of a MIG instance, in the plugin's spelling (1g.10gb.me)."""
    instance: planes.MigInstance | None = None
    """What the driver says of a MIG instance: slices, memory, attributes."""
    gpu: planes.Gpu

    @property
    def is_mig(self) -> bool:
        """True for an instance, False for a whole GPU."""
        return self.gi is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceId:
    """An id that the kubelet knows, and the unit it joins to."""

    id: str
    uuid: str
    """UUID of the unit; without one, the id less its replica suffix."""
    unit: Unit | None
    is_replica: bool = False
    is_passthrough: bool = False
    """An IOMMU group that is bound to vfio: offered to VMs, invisible to NVML by design (faults.md F4)."""

    @property
    def is_lacking(self) -> bool:
        """True if it joins to nothing that can be opened or handed to a VM."""
        return self.unit is None and not self.is_passthrough


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListedPod:
    """A pod in the kubelet's List that may hold devices, and which pods of the API it can be."""

    full_name: str
    uids: tuple[str, ...]
    """Empty: the API does not know the name (or there is no API)."""
    ids: Mapping[str, tuple[str, ...]]
    """Resource -> distinct ids held."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process with a context on a GPU."""

    pid: int
    name: str
    used_bytes: Reading[int]
    gpu: str
    """UUID of the GPU."""
    units: tuple[str, ...]
    """UUIDs of the units it may be on: one, or all instances of a GPU where the driver does not say."""
    owner: Reading[str]
    """Pod UID; Known(""): its cgroup is no pod's."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """One resource name, in every plane that speaks of it."""

    name: str
    is_dra: bool = False
    """Promised by a DRA driver's slices, under the driver's name; neither GA nor the Node counts it."""
    advertised: Reading[tuple[DeviceId, ...]]
    """GetAllocatableResources; Known(()) when it does not name the resource. Slices, for DRA."""
    held: Reading[Mapping[str, tuple[str, ...]]]
    """Id -> namespace/name of its holders, from List, finished pods left out."""
    capacity: Reading[int]
    """Unknown("KeyAbsent"): the Node has no such key, which is not 0 (faults.md S2)."""
    allocatable: Reading[int]
    requests: Reading[Mapping[str, int]]
    """Pod UID -> units asked for, bound and unfinished pods only."""

    def ids(self) -> tuple[DeviceId, ...]:
        """Return the advertised ids; none where they could not be read."""
        match self.advertised:
            case Known(ids):
                return ids
            case Unknown():
                return ()

    def holders(self) -> Mapping[str, tuple[str, ...]]:
        """Return who holds which id; nobody where List could not be read."""
        match self.held:
            case Known(held):
                return held
            case Unknown():
                return {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All planes of one sample, joined."""

    node: str
    now: datetime.datetime
    api_server: bool
    """Node and Pods are planes here, and required."""
    observation: planes.Observation
    nvml: Reading[planes.Nvml]
    allocatable: Reading[tuple[planes.DeviceIds, ...]]
    listed: Reading[tuple[ListedPod, ...]]
    checkpoint: Reading[planes.Checkpoint]
    kubelet_started_at: Reading[datetime.datetime]
    units: tuple[Unit, ...]
    """Openable units, sorted by UUID. An unreadable NVML has none."""
    gpus: tuple[planes.Gpu, ...]
    """Every GPU that NVML listed, silent ones too, sorted by UUID."""
    resources: tuple[ResourceView, ...]
    """Names that have a verdict, sorted."""
    dra: kube.Dra
    """The DRA plane, or what was read of it last: who allocates does not change with a failed read."""
    pods: Reading[tuple[kube.Pod, ...]]
    """Bound and unfinished, sorted by UID."""
    processes: tuple[GpuProcess, ...]
    xids: Mapping[str, tuple[planes.Xid, ...]]
    """GPU UUID -> its Xids since boot, from NVML and the kernel log."""
    plugins: tuple[kube.Plugin, ...]
    """Those that may serve a GPU resource."""
    mig_strategy: str
    """single, mixed, none, or empty where nothing tells."""

    def unit(self, uuid: str) -> Unit | None:
        """Return the unit of that UUID."""
        return next((unit for unit in self.units if unit.uuid == uuid), None)

    def resource(self, name: str) -> ResourceView | None:
        """Return the view of that name."""
        return next((view for view in self.resources if view.name == name), None)

    def advertised_uuids(self) -> frozenset[str]:
        """UUIDs that any resource name or DRA slice promises."""
        return frozenset(device.uuid for view in self.resources for device in view.ids())

    def age_of(self, instant: Reading[datetime.datetime]) -> datetime.timedelta | None:
        """Return how long ago an instant was; None where it is not known."""
        match instant:
            case Known(value):
                return self.now - value
            case Unknown():
                return None

    @property
    def boot_age(self) -> datetime.timedelta | None:
        """Time since boot; None where it is not known."""
        match self.observation.boot:
            case Known(boot):
                return self.now - boot.at
            case Unknown():
                return None
