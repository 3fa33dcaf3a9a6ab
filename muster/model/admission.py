"""What a client of the admitter says and hears, as values: gangs to ask for, states to be told, nodes to look at.

Values and their protobuf forms only. What a valid gang is, the admitter alone decides; it answers with every problem at
once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from muster.model import codec, pbform
from muster.model.report import NodeReport, Topology
from muster.model.warmth import NodeWarmth
from muster.pb.muster.v1 import admission_pb2, inspect_pb2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """One MIG instance a pod, of at least this shape."""

    compute_slices: int
    min_memory_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Units of a named resource a pod."""

    name: str
    quantity: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Podset:
    """Like pods of a gang."""

    name: str = "main"
    count: int
    request: int | Mig | Quantity
    """A number means whole GPUs."""
    topology: str = ""
    """`required=LEVEL` or `preferred=LEVEL` with LEVEL of island, node, clique."""
    pod_class: str = ""
    """gang (default), restartable, shared"""
    max_runtime_seconds: float | None = None
    images: tuple[str, ...] = ()
    """That its pods run: nodes that have them are preferred, and may be told to have them ready."""
    runtime_handler: str = ""
    """Of its RuntimeClass; empty: the node's default."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    namespace: str
    name: str
    request_id: str
    """Chosen by the client, once for each time it wants the gang: the same one finds its lease again."""
    podsets: tuple[Podset, ...]
    priority: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    podset: str
    node: str
    pods: int
    resource: str
    units: int
    forecast_devices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    reason: str
    """Member of muster.model.vocabulary.WaitReason."""
    summary: str
    position: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    lease_id: str
    term: int
    snapshot_version: int
    placements: tuple[Placement, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    snapshot_version: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    reason: str
    """Member of muster.model.vocabulary.EndReason."""
    detail: str


State: TypeAlias = Waiting | Leased | Started | Ended


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """One node, as the admitter knows it."""

    node: str
    report: NodeReport
    topology: Topology
    age_seconds: float
    """Since its agent was last heard, when this was sent."""
    stale: bool
    leased: Mapping[str, int] = codec.mapping()
    """Leased and not yet counted by the agent, by resource."""
    admissible: Mapping[str, int] = codec.mapping()
    """What may still be admitted, by resource."""
    warmth: NodeWarmth | None = None
    """None: the node has no warmer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """Nodes that are new or different, whole, and nodes that are gone."""

    version: int
    nodes: Mapping[str, NodeCapacity]
    removed: tuple[str, ...] = ()
    synced: bool = False
    """Everything that was known when the watch began has been told now."""


def open_message(gang: Gang) -> admission_pb2.OpenGang:
    """Return a gang as its message."""
    return admission_pb2.OpenGang(
        namespace=gang.namespace,
        gang=gang.name,
        request_id=gang.request_id,
        priority=gang.priority,
        podsets=[_podset_message(podset) for podset in gang.podsets],
    )


def _podset_message(podset: Podset) -> admission_pb2.Podset:
    # `class` is a keyword here and a field there.
    fields: dict[str, Any] = {"class": podset.pod_class}
    message = admission_pb2.Podset(
        name=podset.name,
        count=podset.count,
        topology=podset.topology,
        images=podset.images,
        runtime_handler=podset.runtime_handler,
        **fields,
    )
    match podset.request:
        case Mig(compute_slices=slices, min_memory_bytes=memory):
            message.mig.compute_slices, message.mig.min_memory_bytes = slices, memory
        case Quantity(name=name, quantity=quantity):
            message.resource.name, message.resource.quantity = name, quantity
        case gpus:
            message.gpus = gpus
    if podset.max_runtime_seconds is not None:
        message.max_runtime.FromMilliseconds(round(podset.max_runtime_seconds * 1000))
    return message


def state_of(message: admission_pb2.AdmitResponse) -> State | None:
    """Return what the admitter said; None for a message of a newer one that this version does not know."""
    match message.WhichOneof("message"):
        case "waiting":
            why = message.waiting.why
            return Waiting(reason=why.reason, summary=why.summary, position=why.position)
        case "leased":
            leased = message.leased
            return Leased(
                lease_id=leased.lease_id,
                term=leased.term,
                snapshot_version=leased.snapshot_version,
                placements=tuple(_placement(place) for place in leased.placements),
            )
        case "started":
            return Started(snapshot_version=message.started.snapshot_version)
        case "ended":
            return Ended(reason=message.ended.reason, detail=message.ended.detail)
    return None


def _placement(message: admission_pb2.Placement) -> Placement:
    return Placement(
        podset=message.podset,
        node=message.node,
        pods=message.pods,
        resource=message.resource,
        units=message.units,
        forecast_devices=tuple(message.forecast_devices),
    )


def change_of(message: inspect_pb2.WatchCapacityResponse) -> CapacityChange:
    """Return one step of the merged feed."""
    return CapacityChange(
        version=message.version,
        nodes={node.node: capacity_of(node) for node in message.nodes},
        removed=tuple(message.removed),
        synced=message.synced,
    )


def capacity_of(message: inspect_pb2.NodeCapacity) -> NodeCapacity:
    """Return one node."""
    return NodeCapacity(
        node=message.node,
        report=pbform.from_pb(NodeReport, message.report),
        topology=pbform.from_pb(Topology, message.topology),
        age_seconds=message.age.ToMilliseconds() / 1000,
        stale=message.stale,
        leased=codec.freeze(dict(message.leased)),
        admissible=codec.freeze(dict(message.admissible)),
        warmth=pbform.from_pb(NodeWarmth, message.warmth) if message.HasField("warmth") else None,
    )
