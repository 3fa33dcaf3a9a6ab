"""What a place on a node depends on, from the API server's values."""

import dataclasses

import pytest

from admitter.core import facts
from admitter.model.cluster import KubeNode, KubePod
from admitter.model.nodefacts import TOPOLOGY_POLICIES, Claim, KubeletPolicies
from muster.model import kube


def a_pod(uid, phase=kube.PodPhase.RUNNING, **requests):
    return KubePod(
        uid=uid, namespace="team-a", name=uid, resource_version="1", node="n1", phase=phase, requests=requests
    )


def a_kube_node(**allocatable):
    described = kube.NodeObject(
        capacity={}, allocatable={}, labels={"zone": "z1"}, taints=(kube.Taint(key="gpu", effect="NoSchedule"),)
    )
    return KubeNode(name="n1", uid="u", resource_version="1", object=described, allocatable=allocatable)


def test_bound_pods_are_added_up_and_finished_ones_hold_nothing():
    node = a_kube_node(cpu=64000, pods=110)
    found = facts.of_node(
        node, [a_pod("a", cpu=500), a_pod("b", cpu=1500, memory=7), a_pod("c", kube.PodPhase.SUCCEEDED, cpu=9)]
    )
    assert dict(found.requested) == {"cpu": 2000, "memory": 7, "pods": 2}
    assert found.counted.keys() == {"a", "b"}
    assert (found.counted["b"].namespace, dict(found.counted["b"].requests)) == ("team-a", {"cpu": 1500, "memory": 7})
    assert (dict(found.labels), found.taints[0].key) == ({"zone": "z1"}, "gpu")
    assert (dict(found.allocatable), found.is_cordoned) == ({"cpu": 64000, "pods": 110}, False)


def test_a_claim_is_outstanding_until_the_node_counts_its_pod():
    found = facts.of_node(a_kube_node(), [a_pod("a"), a_pod("stranger")])
    assert Claim(pods=3, pod_uids=("a", "b")).outstanding(found) == 2
    assert Claim(pods=1, pod_uids=("a",)).outstanding(found) == 0


BY_LABEL = KubeletPolicies(label="zone", otherwise="restricted")


@pytest.mark.parametrize(
    ("policies", "zone", "expected"),
    [
        (KubeletPolicies(), "restricted", ""),
        *((BY_LABEL, policy, policy) for policy in TOPOLOGY_POLICIES),
        (BY_LABEL, "z1", ""),
        (BY_LABEL, "", ""),
        (KubeletPolicies(otherwise="restricted"), "none", "restricted"),
        (KubeletPolicies(label="pool", otherwise="restricted"), "none", "restricted"),
        (KubeletPolicies(label="pool"), "none", ""),
    ],
)
def test_a_kubelets_topology_policy_is_its_nodes_label_or_else_what_is_said_of_all(policies, zone, expected):
    node = a_kube_node()
    node = dataclasses.replace(node, object=dataclasses.replace(node.object, labels={"zone": zone}))
    assert facts.of_node(node, [], policies).topology_policy == expected
