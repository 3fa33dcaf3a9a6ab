"""Where a gang goes when the API server's facts count too: cpu and slots, selectors, racks, NUMA, preferences, pins."""

import dataclasses

import pytest

from admitter.core import admit, offers
from admitter.model.cluster import Constraints, Expression, NodeTerm
from admitter.model.decision import Grant, NetworkLevel, Policy, Shortfall
from admitter.model.gang import MigRequest, ResourceRequest
from admitter.model.nodefacts import Claim
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import Verdict
from tests.admitter.clusters import (
    GPU,
    a_gang,
    a_lease,
    a_node,
    a_podset,
    a_resource,
    a_view,
    placed,
    some_facts,
)

POLICY = Policy(levels=(NetworkLevel(name="rack", label="rack"), NetworkLevel(name="block", label="block")))
TRAIN = Constraints(node_selector={"pool": "train"})
LIKES_TRAIN = Constraints(
    preferred=(NodeTerm(labels=(Expression(key="pool", operator="In", values=("train",)),), weight=1),)
)
SOFT = (kube.Taint(key="old", effect="PreferNoSchedule"),)


def plan(gang, view, leases=None, claims=None):
    return admit.plan(gang, offers.of_view(view, leases or {}, POLICY, claims=claims or {}), POLICY)


def fleet(*nodes, **facts):
    """Nodes with eight free GPUs, or (name, free), and their facts."""
    names = [node if isinstance(node, str) else node[0] for node in nodes]
    pairs = [(node, 8) if isinstance(node, str) else node for node in nodes]
    return a_view(*pairs, facts={name: facts.get(name, some_facts()) for name in names})


PLACED = {
    "cpu decides": (
        a_gang(count=2, requests={"cpu": 4000}), fleet("n1", "n2", n1=some_facts(cpu=7999)), {("main", "n2"): 2}),
    "what bound pods ask for is gone": (
        a_gang(count=2, requests={"cpu": 4000}),
        fleet("n1", "n2", n1=some_facts(cpu=8000, requested={"cpu": 1})), {("main", "n2"): 2}),
    "pod slots": (a_gang(count=3), fleet("n1", "n2", n1=some_facts(pods=2)), {("main", "n2"): 3}),
    "slots and GPUs are shared out together": (
        a_gang(count=10), fleet("n1", "n2", n1=some_facts(pods=2)), {("main", "n2"): 8, ("main", "n1"): 2}),
    "a selector": (
        a_gang(constraints=TRAIN), fleet(("n1", 1), "n2", n2=some_facts(pool="train")), {("main", "n2"): 1}),
    "a resource that no agent reports, by the API server's arithmetic": (
        a_gang(a_podset(count=2, request=ResourceRequest(name="example.com/fpga", quantity=1))),
        a_view(("n1", 0), ("n2", 0), facts={
            "n1": dataclasses.replace(some_facts(), allocatable={"example.com/fpga": 1, "pods": 9}),
            "n2": dataclasses.replace(some_facts(), allocatable={"example.com/fpga": 2, "pods": 9})}),
        {("main", "n2"): 2}),
    "a network card beside the GPU": (
        a_gang(requests={"example.com/nic": 1}),
        fleet("n1", "n2", n2=dataclasses.replace(some_facts(), allocatable={"example.com/nic": 1, "pods": 9})),
        {("main", "n2"): 1}),
    "a preference": (
        a_gang(constraints=LIKES_TRAIN), fleet(("n1", 1), "n2", n2=some_facts(pool="train")), {("main", "n2"): 1}),
    "a preference that cannot be had": (
        a_gang(count=9, constraints=LIKES_TRAIN), fleet("n1", "n2", n2=some_facts(pool="train")),
        {("main", "n1"): 8, ("main", "n2"): 1}),
    "a node that would rather not": (
        a_gang(), fleet(("n1", 1), "n2", n1=some_facts(taints=SOFT)), {("main", "n2"): 1}),
    "one rack": (
        a_gang(count=2, gpus=8, topology="required=rack"),
        fleet("n1", "n2", "n3", n1=some_facts(rack="r1"), n2=some_facts(rack="r2"), n3=some_facts(rack="r2")),
        {("main", "n2"): 1, ("main", "n3"): 1}),
    "racks of one name in two blocks are two": (
        a_gang(count=2, gpus=8, topology="required=rack"),
        fleet("n1", "n2", "n3",
              n1=some_facts(rack="r1", block="a"), n2=some_facts(rack="r1", block="b"), n3=some_facts(rack="r1", block="b")),
        {("main", "n2"): 1, ("main", "n3"): 1}),
    "the smallest domain without being asked": (
        a_gang(count=2, gpus=8),
        fleet("n1", "n2", "n3", n1=some_facts(rack="r1"), n2=some_facts(rack="r2"), n3=some_facts(rack="r2")),
        {("main", "n2"): 1, ("main", "n3"): 1}),
    "the rack that is left with least": (
        a_gang(count=2, gpus=8),
        fleet("n1", "n2", "n3", "n4", "n5",
              n1=some_facts(rack="r1"), n2=some_facts(rack="r1"), n3=some_facts(rack="r1"),
              n4=some_facts(rack="r2"), n5=some_facts(rack="r2")),
        {("main", "n4"): 1, ("main", "n5"): 1}),
    "a single node in the rack that is spoilt already": (
        a_gang(gpus=8),
        fleet("n1", "n2", "n3", ("n4", 4),
              n1=some_facts(rack="r1"), n2=some_facts(rack="r1"), n3=some_facts(rack="r2"), n4=some_facts(rack="r2")),
        {("main", "n3"): 1}),
    "an odd GPU before one of a pair": (a_gang(), fleet(("n1", 2), ("n2", 3)), {("main", "n2"): 1}),
    "a preferred rack, else the block": (
        a_gang(count=3, gpus=8, topology="preferred=rack"),
        fleet("n1", "n2", "n3", "n4",
              n1=some_facts(rack="r1", block="a"), n2=some_facts(rack="r2", block="b"),
              n3=some_facts(rack="r3", block="b"), n4=some_facts(rack="r4", block="b")),
        {("main", "n2"): 1, ("main", "n3"): 1, ("main", "n4"): 1}),
    "several podsets on the nodes that the gang has already": (
        a_gang(a_podset("driver", 1, 1), a_podset("worker", 1, 6)), fleet(("n1", 1), ("n2", 7)),
        {("driver", "n2"): 1, ("worker", "n2"): 1}),
}  # fmt: skip


@pytest.mark.parametrize(("gang", "view", "expected"), PLACED.values(), ids=PLACED)
def test_placed(gang, view, expected):
    assert placed(plan(gang, view)) == expected


REFUSED = {
    "no cpu": (a_gang(requests={"cpu": 9000}), fleet("n1", n1=some_facts(cpu=8000)),
               "Insufficient", "cpu: 9000 a pod, 8000 left"),
    "no slot": (a_gang(), fleet("n1", n1=some_facts(pods=0)), "Insufficient", "pods: 1 a pod, 0 left"),
    "a resource that the node has not": (
        a_gang(requests={"example.com/nic": 1}), fleet("n1"), "Insufficient", "example.com/nic: 1 a pod, 0 left"),
    "cordoned": (a_gang(), fleet("n1", n1=some_facts(cordoned=True)), "Cordoned", "cordoned"),
    "a taint": (
        a_gang(), fleet("n1", n1=some_facts(taints=(kube.Taint(key="team", value="b", effect="NoSchedule"),))),
        "Taint", "taint team=b:NoSchedule"),
    "a selector": (a_gang(constraints=TRAIN), fleet("n1"), "NodeSelector", "selector pool=train, has none"),
    "unknown to the API server": (
        a_gang(), a_view(("n1", 8), facts={}), "NoNodeObject", "the API server does not know it"),
    "MIG of a smaller shape": (
        a_gang(a_podset(request=MigRequest(compute_slices=3, min_memory_bytes=0))),
        a_view(a_node("n1", {"nvidia.com/mig-2g.20gb": a_resource(2, devices=("MIG-1",))}), facts={"n1": some_facts()}),
        "NoSuchResource", "not on this node"),
    "MIG instances have no path to each other": (
        a_gang(a_podset(count=2, topology="required=island", request=MigRequest(compute_slices=2, min_memory_bytes=0))),
        a_view(a_node("n1", {"nvidia.com/mig-2g.20gb": a_resource(2, devices=("MIG-1",))}), facts={"n1": some_facts()}),
        "Topology", "free devices are not in one island"),
}  # fmt: skip


@pytest.mark.parametrize(("gang", "view", "reason", "detail"), REFUSED.values(), ids=REFUSED)
def test_refused_and_said_why(gang, view, reason, detail):
    short = plan(gang, view)
    assert isinstance(short, Shortfall)
    assert [(node.reason, node.detail) for node in short.excluded] == [(reason, detail)]
    assert dict(short.reasons) == {reason: 1}


def test_without_an_api_server_nothing_is_known_of_cpu_and_labels():
    asked = a_gang(requests={"cpu": 10**9}, constraints=TRAIN)
    assert isinstance(plan(asked, a_view(("n1", 8))), Grant)


def test_leased_pods_take_cpu_until_they_are_bound():
    """Two of eight GPUs are leased by a pod of 60 of 64 cpus; then it is bound, and the Node's own numbers hold it."""
    asked = a_gang(requests={"cpu": 8000})
    leases = {"n1": (a_lease(2, uids=["u1"], units_per_pod=2),)}
    claims = {"n1": (Claim(pods=1, requests={"cpu": 60_000}, pod_uids=("u1",)),)}
    assert isinstance(plan(asked, fleet("n1"), leases, claims), Shortfall)
    bound = fleet("n1", n1=some_facts(requested={"cpu": 50_000, "pods": 1}, counted=["u1"]))
    assert isinstance(plan(asked, bound, leases, claims), Grant)


def test_pods_with_unmodelled_wishes_are_pinned_to_a_set_of_nodes():
    """The lease stands on one node, the pods may go to any that has room for one of them in the same rack."""
    odd = Constraints(unmodelled=("podAffinity",))
    racks = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r1"}
    view = a_view(
        ("n1", 8), ("n2", 4), ("n3", 8), ("n4", 0), facts={name: some_facts(rack=rack) for name, rack in racks.items()}
    )
    grant = plan(a_gang(count=4, topology="required=rack", constraints=odd), view)
    assert [(place.node, place.pin) for place in grant.placements] == [("n2", ("n2", "n1"))]
    assert plan(a_gang(count=4), view).placements[0].pin == ()


def numa_node(name, numa, *, free=8, islands=None):
    node = a_node(name, free, islands=islands)
    gpus = tuple(
        dataclasses.replace(gpu, numa_node=Known(where)) for gpu, where in zip(node.topology.gpus, numa, strict=True)
    )
    return dataclasses.replace(node, topology=dataclasses.replace(node.topology, gpus=gpus))


#   numa   0 0 0 0  1 1 1 1
#   free   * * * *  * *
HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
ALIGNED = {
    "six over two NUMA nodes, which single-numa-node refuses": ("single-numa-node", 6, 1, False),
    "six over two, which restricted takes only if both are free": ("restricted", 6, 1, False),
    "six over two, which best-effort takes": ("best-effort", 6, 1, True),
    "nothing known of the kubelet": ("", 6, 1, True),
    "four in one": ("single-numa-node", 4, 1, True),
    "three pods of two": ("single-numa-node", 2, 3, True),
    "two pods of three: the second would lie over both": ("restricted", 3, 2, False),
}


@pytest.mark.parametrize(("policy", "gpus", "count", "expected"), ALIGNED.values(), ids=ALIGNED)
def test_the_kubelets_topology_policy(policy, gpus, count, expected):
    view = a_view(numa_node("n1", HALVES, free=6), facts={"n1": some_facts(policy=policy)})
    answer = plan(a_gang(count=count, gpus=gpus), view)
    assert isinstance(answer, Grant) is expected
    if not expected:
        assert answer.excluded == () or answer.excluded[0].reason == "NumaAlignment"


def test_a_pod_that_the_kubelet_keeps_within_a_numa_node_is_in_its_island():
    islands = ["a"] * 4 + ["b"] * 4
    pod, pods = a_gang(gpus=4, topology="required=island"), a_gang(count=2, gpus=2, topology="required=island")
    for policy, expected in (("single-numa-node", True), ("none", False)):
        view = a_view(numa_node("n1", HALVES, islands=islands), facts={"n1": some_facts(policy=policy)})
        assert isinstance(plan(pod, view), Grant) is expected
        # Each within an island, but nobody says within the same.
        assert isinstance(plan(pods, view), Shortfall)


def test_single_strategy_instances_are_told_by_the_product_label():
    asked = a_gang(a_podset(request=MigRequest(compute_slices=1, min_memory_bytes=8 * 10**9)))
    node = a_node("n1", {GPU: a_resource(7, devices=("MIG-1",))})
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}
    assert isinstance(plan(asked, a_view(node, facts={"n1": some_facts()})), Shortfall)
    assert isinstance(plan(asked, a_view(node, facts={"n1": some_facts(**product)})), Grant)


def test_many_refused_nodes_are_counted_by_reason():
    lost = a_node("n000", a_resource(0, verdict=Verdict.OVER, reason="GpuLost"))
    nodes = [lost, *((f"n{index:03}", 0) for index in range(1, 100))]
    facts = {f"n{index:03}": some_facts(cordoned=index >= 60) for index in range(100)}
    short = plan(a_gang(), a_view(*nodes, facts=facts))
    assert dict(short.reasons) == {"GpuLost": 1, "Full": 59, "Cordoned": 40}
    assert (len(short.excluded), short.excluded_more) == (32, 68)
