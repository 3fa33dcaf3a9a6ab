"""What the API server says about one node, as far as a place on it depends on it.

Values only; core/facts.py makes them from a Node and the pods bound to it. Counts are in the units of
model/cluster.py: cpu in thousandths, the rest in whole units or bytes.

Invariant: `requested` holds every bound pod that is not finished, and `counted` names exactly those pods: a member of a
lease is subtracted from the node's room until its UID is in `counted`, and then no more.
"""

import dataclasses
from collections.abc import Mapping

from muster.model import codec, kube

POD_SLOTS = "pods"
"""The name under which a Node counts its pod slots; every pod takes one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """A pod that the Node's room is short of."""

    namespace: str = ""
    requests: Mapping[str, int] = codec.mapping()


TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
"""What the kubelet's `topologyManagerPolicy` may be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPolicies:
    """Where the Topology Manager policies of the kubelets are known from: neither Node nor agent says it by itself."""

    label: str = ""
    """Of a Node, by whoever configures its kubelet; empty: there is none."""
    otherwise: str = ""
    """Of a Node without that label; empty: not known."""

    def of(self, labels: Mapping[str, str]) -> str:
        """Return the policy of a node; empty: not known.

        >>> KubeletPolicies(label="pool/numa", otherwise="none").of({"pool/numa": "restricted"})
        'restricted'
        """
        policy = labels.get(self.label, self.otherwise) if self.label else self.otherwise
        return policy if policy in TOPOLOGY_POLICIES else ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    labels: Mapping[str, str] = codec.mapping()
    taints: tuple[kube.Taint, ...] = ()
    is_cordoned: bool = False
    allocatable: Mapping[str, int] = codec.mapping()
    """Every resource of the Node, pod slots among them. An absent key: the node has none."""
    requested: Mapping[str, int] = codec.mapping()
    """Of the bound pods together, their slots among them."""
    counted: Mapping[str, BoundPod] = codec.mapping()
    """The pods in `requested`, by UID."""
    topology_policy: str = ""
    """The kubelet's Topology Manager policy: none, best-effort, restricted, single-numa-node; empty: not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Pods of a lease on one node and what each of them will take beside its devices."""

    pods: int
    requests: Mapping[str, int] = codec.mapping()
    """A pod's, without its slot."""
    pod_uids: tuple[str, ...] = ()
    """Members that are known to be on this node."""

    def outstanding(self, facts: NodeFacts) -> int:
        """Return how many of the pods the node's facts do not contain yet."""
        return max(0, self.pods - sum(uid in facts.counted for uid in self.pod_uids))
