"""What a decision says: a grant with its placements, or a refusal with its explanation.

Values only. Every refusal carries a closed reason, one bounded line for a person and the nodes that were refused, so
that nobody has to be asked twice why a gang waits.
"""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from admitter.model.content import ImagePolicy
from admitter.model.lease import Placement
from admitter.model.promise import TrustPolicy
from admitter.model.queue import QueuePolicy
from muster.model import codec
from muster.model.vocabulary import WaitReason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """A level above the fabric clique: nodes that share the label's value are one domain."""

    name: str
    """What a podset calls it: `required=rack`."""
    label: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings that decisions rest on."""

    gpu_resource: str = "nvidia.com/gpu"
    """The resource that serves a request in whole GPUs."""
    lenient_pick_risk: float = 0.0
    """A restartable single may take lenient units up to this share of bad ids; 0: strict units only."""
    search_steps: int = 2_000
    """Most steps of the exact search that follows when best fit finds no place for several podsets."""
    named_nodes: int = 32
    """Most refused nodes listed in an explanation."""
    levels: tuple[NetworkLevel, ...] = ()
    """Of the network, finest first."""
    pinned_nodes: int = 64
    """Most nodes that a pod is pinned to which asks for something that placement does not model."""
    queue: QueuePolicy = QueuePolicy()
    images: ImagePolicy = ImagePolicy()
    trust: TrustPolicy = TrustPolicy()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A node that cannot take a single pod of the podset, and why."""

    node: str
    resource: str
    reason: str
    """Listed in docs/placement.md: what refused it (predicates.Refused), what it lacks, or a vocabulary.Reason."""
    detail: str
    free: int = 0
    """Units that the node itself would still admit."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a gang waits. How long it has waited is not in here: it changes by itself."""

    reason: WaitReason
    summary: str
    """`needs 24 GPUs; 16 admissible on 2 of 4 nodes: n4 OVER GpuLost strict 0, ...; position 2`"""
    position: int
    """Place in the queue, from 1."""
    needed_units: int = 0
    available_units: int = 0
    excluded: tuple[Exclusion, ...] = ()
    excluded_more: int = 0
    reasons: Mapping[str, int] = codec.mapping()
    """All refused nodes, by reason."""
    best_domain: str = ""
    """Of a required topology: the domain that came nearest."""
    reserved: tuple[str, ...] = ()
    """Nodes on which a place is kept for it."""
    changes_at: float | None = None
    """Admitter's monotonic clock: when the answer can change by itself, if that is known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A place for every member, all from one version of the view."""

    placements: tuple[Placement, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """No place for every member: the podset that found none, and the nodes that could not take one pod of it."""

    podset: str
    placed: int
    """Most pods of it that fit within one domain."""
    units_admissible: int
    """Units of its resource that the usable nodes admit, in whole pods or not."""
    nodes_usable: int
    nodes_seen: int
    """Nodes that have its resource."""
    best_domain: str = ""
    excluded: tuple[Exclusion, ...] = ()
    """The first refused nodes by name."""
    excluded_more: int = 0
    reasons: Mapping[str, int] = codec.mapping()
    """All refused nodes, by reason."""


Plan: TypeAlias = Grant | Shortfall


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One decision, for the log."""

    kind: str
    """opened, waiting, leased, adopted, revoked, started, ended, orphan-heard, orphan-released, broken-promise; of no
    gang: hold-began, hold-ended, tainted, untainted, quarantine-began, quarantine-ended,
    quarantine-withheld, overbooked"""
    gang: str
    actor: str
    """`client:NAME`, or `admitter`."""
    rule: str
    """What decided: admit, order, new-term, recover, lifecycle, client, trust."""
    detail: str = ""
    lease_id: str = ""
    node: str = ""
    """Of what is about one node."""
    reason: str = ""
    """Of a broken promise: the kubelet's."""
