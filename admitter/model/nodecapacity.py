"""What the admitter knows of one node, and how much of it may still be admitted.

Invariant: `admissible` never exceeds what the node's own snapshot admits, is 0 for a node that is stale or a resource
that is unknown, and subtracts a leased member until the snapshot's numbers contain its UID.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping

from admitter.model.nodefacts import NodeFacts
from muster.model import codec
from muster.model.lease import NodeLease
from muster.model.reading import Known, Unknown
from muster.model.report import NodeReport, ResourceReport, Topology
from muster.model.warmth import NodeWarmth


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One life of an agent: a new boot id ends the old one, within a boot the higher counter is live."""

    boot_id: str
    start_counter: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The newest accepted state of a node's feed."""

    node: str
    epoch: Epoch
    sequence: int
    report: NodeReport
    topology: Topology
    heard_at: float
    """Fleet time (core/fleetclock.py) when the agent was last heard."""
    plane_age_ms: Mapping[str, int] = codec.mapping()
    agent_version: str = ""
    leases: tuple[NodeLease, ...] = ()
    """What the agent said it was last told, in its newest Snapshot: a new term takes its leases over from here."""
    lease_term: int = 0
    """The term that those leases came from."""
    snapshot_term: int = 0
    """This admitter's term when that Snapshot was accepted: a new leader grants nothing on a node before its own."""
    warmth: NodeWarmth | None = None
    """None: the node has no warmer, or it has said nothing yet."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """All nodes at one moment: what one decision is taken from."""

    version: int
    """Rises with every accepted change."""
    now: float
    """Fleet time: the admitter's monotonic clock without its own stalls."""
    node_ttl_seconds: float
    nodes: Mapping[str, NodeState]
    facts: Mapping[str, NodeFacts] | None = None
    """What the API server says about the nodes; None: there is no API server. A node that it does not know gives nothing."""
    barred: Mapping[str, str] = codec.mapping()
    """Nodes on which nothing new is granted whatever they admit, and why (core/trust.py)."""

    def is_stale(self, node: str) -> bool:
        """True if the node's agent was not heard within node_ttl."""
        return self.now - self.nodes[node].heard_at > self.node_ttl_seconds


def outstanding(resource: ResourceReport, leases: Iterable[NodeLease], name: str) -> int:
    """Return the leased units of a resource that the node's numbers do not contain yet.

    A pod fills one place once, and no more of it than the node has counted for the pod: whoever claims a pod that is
    another gang's, or a small one for a large place, frees nobody's units, and takes none from who has pods of its own.
    """
    return _outstanding({pod.uid: pod.units for pod in resource.counted}, leases, name)


def unreported(report: NodeReport, facts: NodeFacts, leases: Iterable[NodeLease]) -> dict[str, int]:
    """Return the leased units that `facts.requested` does not contain yet, of every resource that no agent reports."""
    mine = [lease for lease in leases if lease.resource not in report.resources]
    return {
        name: _outstanding({uid: pod.requests.get(name, 0) for uid, pod in facts.counted.items()}, mine, name)
        for name in {lease.resource for lease in mine}
    }


def holders(view: ClusterView, node: str, name: str) -> Mapping[str, int]:
    """Return the UIDs that have anything of a resource on a node, and how much: as `units_of` says."""
    state = view.nodes.get(node)
    resource = state.report.resources.get(name) if state is not None else None
    if resource is not None:
        return {pod.uid: pod.units for pod in resource.counted}
    facts = (view.facts or {}).get(node)
    counted = facts.counted.items() if state is not None and facts is not None else ()
    return {uid: pod.requests[name] for uid, pod in counted if pod.requests.get(name, 0) > 0}


def units_of(view: ClusterView, node: str, name: str, uid: str) -> int:
    """Return what a pod has of a resource: as its node's agent counts it, or as it asked where no agent reports that."""
    state = view.nodes.get(node)
    if state is None:
        return 0
    resource = state.report.resources.get(name)
    if resource is not None:
        return sum(pod.units for pod in resource.counted if pod.uid == uid)
    facts = (view.facts or {}).get(node)
    pod = facts.counted.get(uid) if facts is not None else None
    return pod.requests.get(name, 0) if pod is not None else 0


def admissible(view: ClusterView, node: str, name: str, leases: Iterable[NodeLease]) -> int:
    """Return the units that may still be admitted strictly on one node."""
    if view.is_stale(node) or node in view.barred:
        return 0
    resource = view.nodes[node].report.resources.get(name)
    if resource is None:
        return 0
    match resource.admit_strict:
        case Known(value):
            return max(0, value - outstanding(resource, leases, name))
        case Unknown():
            return 0


def _outstanding(counted: dict[str, int], leases: Iterable[NodeLease], name: str) -> int:
    mine = [lease for lease in leases if lease.resource == name]
    claims = collections.Counter(uid for lease in mine for uid in lease.pod_uids)
    total = 0
    # A pod that several claim is counted for whom it covers most; a small place in front would waste a large pod.
    for lease in sorted(mine, key=lambda lease: -lease.units_per_pod):
        left = lease.units
        # First those that nobody else claims.
        for uid in sorted(lease.pod_uids, key=claims.__getitem__):
            if left <= 0:
                break
            left -= min(counted.pop(uid, 0), lease.units_per_pod)
        total += max(0, left)
    return total
