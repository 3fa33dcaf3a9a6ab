"""Broken promises: a pod that was let go to a node, and that the node's kubelet refused.

Values only; core/trust.py decides what follows.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A kubelet's refusal of a pod, as the API server has it."""

    uid: str
    pod: str
    """namespace/name"""
    node: str
    reason: str
    """`status.reason`: UnexpectedAdmissionError, OutOfcpu, ..."""
    message: str
    scheduler: str
    lease_id: str = ""
    """Under which it was let go, as the pod says; empty: it says nothing."""
    gang: str = ""
    """namespace/name, where the pod says so."""
    at: float
    """Admitter's monotonic clock."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A node that nothing new is leased on."""

    first: Rejection
    workloads: tuple[str, ...] = ()
    """Names of what closed it."""
    rejections: int = 1
    since: float
    """Fleet time."""
    boot_id: str
    """Of the node when it refused; empty: not heard."""
    cause: str = ""
    """What is known of why; empty: nothing yet."""
    clean: int = 0
    """Samples without a fault, one after the other, since the cause is known."""
    sampled_at: float
    """Fleet time of the newest sample that was looked at."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    clean_samples: int = 2
    """A rise needs two (design.md section 4)."""
    quarantine_seconds: float = 3600.0
    """A node whose agent finds no cause is tried again after so long, if its samples are clean."""
    storm: int = 3
    """Rejections of pods that we did not let go, of one scheduler on one node, that are a note on the scheduler."""
    storm_seconds: float = 60.0
    most_nodes: int = 3
    """Closed at once for one gang, or for one namespace with one reason: what every kubelet refuses is no node's fault."""
    most_share: float = 0.1
    """Of the fleet closed at once, and one node at least."""
