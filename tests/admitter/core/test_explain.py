"""A gang that waits can be asked why, in one line."""

import dataclasses

import pytest

from admitter.core import admit, explain, offers
from admitter.model.decision import Policy
from admitter.model.gang import ResourceRequest
from muster.model.report import Verdict
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_lease, a_node, a_podset, a_resource, a_view

POLICY = Policy()
LOST = a_node("n4", a_resource(0, verdict=Verdict.OVER, reason="GpuLost", lenient=7, risk=0.125))


def why(gang, view, leases=None, policy=POLICY):
    short = admit.plan(gang, offers.of_view(view, leases or {}, policy), policy)
    return explain.shortfall(gang, short, 2)


SAID = {
    "a lost GPU": (
        a_gang(count=32), a_view(("n1", 8), ("n2", 8), ("n3", 8), LOST), WaitReason.NOT_ENOUGH_UNITS,
        "needs 32 GPUs (32x1); 24 admissible on 3 of 4 nodes: n4 OVER GpuLost strict 0; position 2"),
    "stale": (
        a_gang(gpus=8), a_view(a_node("n1", 8, heard=NOW - 41)), WaitReason.NODES_STALE,
        "needs 8 GPUs (1x8); 0 admissible on 0 of 1 nodes: n1 not heard for over 15 s; position 2"),
    "blind": (
        a_gang(), a_view(a_node("n1", a_resource(None))), WaitReason.NODES_BLIND,
        "needs 1 GPUs (1x1); 0 admissible on 0 of 1 nodes: n1 BLIND PlaneUnreadable; position 2"),
    "no such resource": (
        a_gang(a_podset(request=ResourceRequest(name="example.com/fpga", quantity=2))), a_view(("n1", 8)),
        WaitReason.NO_SUCH_RESOURCE,
        "needs 2 example.com/fpga (1x2); 0 admissible on 0 of 0 nodes; position 2"),
    "no node is large enough": (
        a_gang(count=12, topology="required=node"), a_view(("n1", 8), ("n2", 8)), WaitReason.TOPOLOGY,
        "needs 12 GPUs (12x1, one node); best node n1 takes 8 of 12 pods; 16 admissible on 2 of 2 nodes; position 2"),
    "islands": (
        a_gang(count=2, topology="required=island"), a_view(a_node("n1", 4, islands=["a", "a", "b", "b"])),
        WaitReason.TOPOLOGY,
        ("needs 2 GPUs (2x1, one island); no island has room; 0 admissible on 0 of 1 nodes: "
        "n1 free devices are not in one island; position 2")),
    "too small": (
        a_gang(gpus=4), a_view(("n1", 3)), WaitReason.NOT_ENOUGH_UNITS,
        "needs 4 GPUs (1x4); 0 admissible on 0 of 1 nodes: n1 4 a pod, 3 admissible; position 2"),
}  # fmt: skip


@pytest.mark.parametrize(("gang", "view", "reason", "summary"), SAID.values(), ids=SAID)
def test_said(gang, view, reason, summary):
    said = why(gang, view)
    assert (said.reason, said.summary) == (reason, summary)


def test_leased_units_are_named():
    said = why(a_gang(count=8), a_view(("n1", 8)), {"n1": (a_lease(8),)})
    assert said.summary.endswith("n1 8 leased, strict 8; position 2")
    assert said.excluded[0].free == 8


def test_the_list_is_bounded_and_the_rest_is_counted():
    view = a_view(*((f"n{index:03}", 0) for index in range(100)))
    said = why(a_gang(), view, policy=dataclasses.replace(POLICY, named_nodes=10))
    assert [exclusion.node for exclusion in said.excluded] == [f"n{index:03}" for index in range(10)]
    assert said.excluded_more == 90
    assert said.summary.count("n0") == 5
    assert "95 more" in said.summary
