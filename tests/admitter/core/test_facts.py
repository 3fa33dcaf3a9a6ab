"""What a place on a node depends on, from the API server's values."""

from admitter.core import facts
from admitter.model.cluster import KubeNode, KubePod
from admitter.model.nodefacts import Claim
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
