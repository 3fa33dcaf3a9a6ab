"""What a client asks for: a gang of podsets that start together or not at all.

Values only; core/request.py makes them from a message and checks them, so that a Gang in hand is a valid one.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import TypeAlias

from admitter.model.cluster import ANYWHERE, Constraints
from admitter.model.content import NOTHING, Content
from muster.model import codec


class PodClass(enum.StrEnum):
    """What a podset puts up with (design.md section 6, `muster.dev/class`)."""

    GANG = "gang"
    RESTARTABLE = "restartable"
    """May be rejected once and started again: alone, it may take units at a pick risk."""
    SHARED = "shared"
    """Accepts time-sliced or MPS replicas."""


class Level(enum.StrEnum):
    """Topology domains that every fleet has, finest first. Those of the network have the names that the settings give."""

    ISLAND = "island"
    NODE = "node"
    CLIQUE = "clique"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWish:
    """All pods of the podset in one domain of this level."""

    level: str
    """A Level, or the name of a configured network level."""
    required: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """Whole GPUs a pod."""

    gpus: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigRequest:
    """One MIG instance a pod, of at least this shape."""

    compute_slices: int
    min_memory_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """Units of a named extended resource a pod."""

    name: str
    quantity: int


Request: TypeAlias = GpuRequest | MigRequest | ResourceRequest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Podset:
    """Like pods of a gang. Pods that ask for no device need no lease: they are let go with the gang, and are no podset."""

    name: str
    count: int
    request: Request
    topology: TopologyWish | None = None
    pod_class: PodClass = PodClass.GANG
    max_runtime_seconds: float | None = None
    requests: Mapping[str, int] = codec.mapping()
    """What a pod takes beside `request` (cpu in thousandths, memory in bytes, other extended resources), its slot apart."""
    constraints: Constraints = ANYWHERE
    content: Content = dataclasses.field(default=NOTHING, compare=False)
    """No part of what a place is judged by, so two podsets that differ in it ask for the same."""

    @property
    def units_per_pod(self) -> int:
        """Units of whatever resource serves it."""
        match self.request:
            case GpuRequest(gpus=gpus):
                return gpus
            case MigRequest():
                return 1
            case ResourceRequest(quantity=quantity):
                return quantity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    namespace: str
    name: str
    request_id: str
    """The client's own: the same one attaches again to the same lease."""
    priority: int = 0
    podsets: tuple[Podset, ...]

    @property
    def full_name(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"

    @property
    def pods(self) -> int:
        """Members in all."""
        return sum(podset.count for podset in self.podsets)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod of the gang that the client has seen appear."""

    podset: str
    uid: str
    node: str
    started_at: float | None = dataclasses.field(default=None, compare=False)
    """Admitter's monotonic clock: when its kubelet took notice of it, where the client knows."""
