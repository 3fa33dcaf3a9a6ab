"""Boil a Node and the pods bound to it down to what a place on it depends on.

Input: the slim values of model/cluster.py. Output: NodeFacts.

Invariant: a finished pod holds nothing (faults.md E1); a terminating one still holds what it asked for, until it is gone.

Not here: what a node's devices can serve, which only its agent knows.
"""

from collections.abc import Iterable

from admitter.model.cluster import KubeNode, KubePod
from admitter.model.nodefacts import POD_SLOTS, BoundPod, KubeletPolicies, NodeFacts
from muster.model import codec

NO_POLICIES = KubeletPolicies()


def of_node(node: KubeNode, pods: Iterable[KubePod], policies: KubeletPolicies = NO_POLICIES) -> NodeFacts:
    """Return the facts of one node; `pods` are those bound to it."""
    holding = [pod for pod in pods if not pod.is_finished]
    requested = {POD_SLOTS: len(holding)}
    for pod in holding:
        for resource, units in pod.requests.items():
            if resource != POD_SLOTS:
                requested[resource] = requested.get(resource, 0) + units
    return NodeFacts(
        labels=node.object.labels,
        taints=node.object.taints,
        is_cordoned=node.object.unschedulable,
        allocatable=node.allocatable,
        requested=codec.freeze(requested),
        counted=codec.freeze({pod.uid: BoundPod(namespace=pod.namespace, requests=pod.requests) for pod in holding}),
        topology_policy=policies.of(node.object.labels),
    )
