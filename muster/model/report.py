"""What an agent says about its node: the verdict, the numbers and why.

Values only. `NodeReport` is contracts/verdict.schema.json (`muster-agent replay --json`) and the body of the feed's
Snapshot alike; what only the feed carries is marked `json=False`. Field names are those of the schema and of
proto/muster/v1/feed.proto.
"""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping

from muster.model import codec
from muster.model.reading import NOT_COLLECTED, Reading

SCHEMA = "muster.verdict/v1"


class Verdict(enum.StrEnum):
    """Worst first: `worst()` relies on the order of definition."""

    BLOCKED = "BLOCKED"
    BLIND = "BLIND"
    WRONG_SHAPE = "WRONG_SHAPE"
    OVER = "OVER"
    CONTENDED = "CONTENDED"
    UNDER = "UNDER"
    TRANSIENT = "TRANSIENT"
    OK = "OK"


_BADNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}


def worst(verdicts: "tuple[Verdict, ...]") -> Verdict:
    """The worst of them; OK for none.

    >>> worst((Verdict.UNDER, Verdict.OVER, Verdict.OK)).value
    'OVER'
    """
    return min(verdicts, key=_BADNESS.__getitem__, default=Verdict.OK)


def verdict_of(findings: "Iterable[Finding]") -> Verdict:
    """Return the verdict that the findings name together; those that are only observed name none."""
    return worst(tuple(finding.verdict for finding in findings if not finding.observed))


class DeviceState(enum.StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    LOST = "lost"
    UNKNOWN = "unknown"
    STALE = "stale"


class Holder(enum.StrEnum):
    POD = "pod"
    FOREIGN = "foreign"
    NONE = "none"
    UNKNOWN = "unknown"


class PodState(enum.StrEnum):
    AT_RISK = "at_risk"
    WITHOUT_DEVICE = "without_device"
    ON_BAD_DEVICE = "on_bad_device"
    REJECTED = "rejected"
    HOLDER_WITHOUT_RECORD = "holder_without_record"
    TERMINATING = "terminating"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One disagreement between planes, with what ends it."""

    verdict: Verdict
    cause: str
    """Catalogue name in PascalCase (PluginDownInGrace), or another from docs/rules.md."""
    reason: str
    """Member of muster.model.vocabulary.Reason."""
    since: datetime.datetime | None = None
    """First sample that showed it."""
    devices: tuple[str, ...] = ()
    """UUIDs, sorted."""
    units: int | None = None
    """Units it takes away or adds."""
    detail: str
    """One sorted, bounded line."""
    remedy: str = ""
    """Member of muster.model.vocabulary.Remedy."""
    rule: str = ""
    """Rule id and version."""
    clears_when: str = ""
    deadline: datetime.datetime | None = None
    """When a transient finding ends or becomes a verdict of its own."""
    observed: bool = codec.feed_only(default=False)
    """Its rule is in mode observe: it is told, and changes neither verdict nor admit."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CountedPod:
    """A bound pod whose units a resource's numbers already contain."""

    uid: str
    units: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceReport:
    """One resource of one node. A count that is Unknown is null in JSON, its reason under `unknown`."""

    verdict: Verdict
    admit_strict: Reading[int] = codec.reading(counted=True)
    """Units that may be admitted whoever picks the device."""
    admit_lenient: Reading[int] = codec.reading(counted=True)
    """Units that exist and are free; a pick may hit a bad id."""
    pick_risk: Reading[float] = codec.reading(counted=True)
    """Bad ids among the free ids, 0..1."""
    capacity: Reading[int] = codec.reading(counted=True)
    allocatable: Reading[int] = codec.reading(counted=True)
    advertised: Reading[int] = codec.reading(counted=True)
    present: Reading[int] = codec.reading(counted=True)
    allocated: Reading[int] = codec.reading(counted=True)
    usable: Reading[int] = codec.reading(counted=True)
    free: Reading[int] = codec.reading(counted=True)
    deadline: datetime.datetime | None = codec.nullable()
    """When a TRANSIENT ends."""
    findings: tuple[Finding, ...] = codec.always(())
    free_devices: tuple[str, ...] = codec.feed_only(())
    """Ids behind `free`: the forecast of a lease."""
    counted: tuple[CountedPod, ...] = codec.feed_only(())
    """Pods that these numbers have already subtracted; a lease member with another UID has not been."""
    planes: tuple[str, ...] = codec.feed_only(())
    """Planes the numbers rest on; the heartbeat carries their ages."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigShape:
    """How a MIG instance is cut, by the driver's own numbers: names vary by product and driver (faults.md C9, C10)."""

    profile: str
    compute_slices: Reading[int] = NOT_COLLECTED
    """Of the compute instance."""
    gpu_slices: Reading[int] = NOT_COLLECTED
    """Of its GPU instance."""
    memory_bytes: Reading[int] = NOT_COLLECTED
    attributes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One GPU or MIG instance."""

    uuid: str
    pci: str = ""
    parent: str = ""
    """Parent GPU of a MIG instance."""
    state: DeviceState
    reason: str
    holder: Holder
    pods: tuple[str, ...] = ()
    """namespace/name"""
    detail: str = ""
    shape: MigShape | None = codec.feed_only(default=None)
    """None: a whole GPU, or an instance that the driver does not show."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodFinding:
    """What hits one pod only."""

    pod: str
    """namespace/name"""
    uid: str = ""
    state: PodState
    reason: str
    devices: tuple[str, ...] = ()
    message: str = codec.feed_only(default="")
    """Of a rejected pod: what the kubelet said, bounded."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    marker: str = ""
    since: datetime.datetime | None = None
    deadline: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The verdict on one node. `devices`, `pods` and `unverified` are sorted."""

    schema: str = codec.always(SCHEMA)
    node: str
    taken_at: datetime.datetime
    verdict: Verdict
    resources: Mapping[str, ResourceReport]
    node_findings: tuple[Finding, ...] = codec.always(())
    devices: tuple[DeviceReport, ...] = codec.always(())
    pods: tuple[PodFinding, ...] = codec.always(())
    unverified: tuple[str, ...] = codec.always(())
    """`plane: reason` for every optional plane or check that could not be read."""
    maintenance: Maintenance | None = codec.nullable()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuTopology:
    """Static facts of one GPU, sent once per topology generation."""

    uuid: str
    pci: str = ""
    product: str = ""
    memory_bytes: Reading[int] = NOT_COLLECTED
    numa_node: Reading[int] = NOT_COLLECTED
    island: str = ""
    """Name of the NVLink island in the node; equal names: each joined to each. Empty: alone or not known."""
    clique: str = ""
    """`<cluster uuid>.<clique>` of a completed, healthy, non-zero fabric; empty otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    generation: int
    gpus: tuple[GpuTopology, ...] = ()
