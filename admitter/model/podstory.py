"""Why a pod does not run, and all that the answer is made from.

Values only; core/podwhy.py and core/podplaces.py decide. The reasons are closed and stand in docs/why.md (a test compares).
"""

import dataclasses
import enum
from collections.abc import Mapping

from admitter.model.cluster import KubeNode, KubePod
from admitter.model.hold import Told
from admitter.model.nodefacts import NodeFacts
from muster.model import codec
from muster.model.report import NodeReport


class PodReason(enum.StrEnum):
    """What keeps a pod from running."""

    # Before the scheduler looks
    HELD = "HeldByMuster"
    GATE_NOBODY_LIFTS = "GateNobodyLifts"
    FOREIGN_GATE = "ForeignGate"
    # No node takes it
    SELECTOR = "SelectorTooNarrow"
    TAINT = "TaintNotTolerated"
    CORDONED = "Cordoned"
    NOT_READVERTISED = "NotReadvertised"
    NODE_WITHOUT_GPUS = "NodeReadyWithoutGpus"
    NOT_USABLE = "AdvertisedNotUsable"
    MIG_PROFILE = "MigProfileMismatch"
    NO_SUCH_RESOURCE = "NoSuchResource"
    IN_USE = "AllInUse"
    PINNED = "PinnedNotBound"
    UNVERIFIED = "ReleasedUnverified"
    SCHEDULER = "NotScheduled"
    NO_AUTOSCALER = "NoAutoscalerActs"
    # A node has it
    REJECTED = "RejectedByKubelet"
    NOT_STARTED = "BoundNotStarted"
    WITHOUT_DEVICE = "RunsWithoutDevice"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodCause:
    reason: PodReason
    summary: str
    """One sentence."""
    remedy: str
    """What a person does about it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodScene:
    """The pod and everything around it, at one moment."""

    pod: KubePod
    nodes: Mapping[str, KubeNode] = codec.mapping()
    facts: Mapping[str, NodeFacts] = codec.mapping()
    reports: Mapping[str, NodeReport] = codec.mapping()
    """Of nodes whose agent is fresh."""
    lifts_gates: bool = False
    """This admitter lifts its gate (--gates)."""
    gang: str = ""
    """Name of the gang that the pod was found to belong to."""
    told: Told | None = None
    """What the gate adapter says of that gang."""
