"""All members get a place from one supply, or none does."""

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core import admit, offers
from admitter.model import nodecapacity
from admitter.model.decision import Grant, Policy, Shortfall
from admitter.model.gang import MigRequest, ResourceRequest
from muster.model.reading import NOT_COLLECTED, Known
from muster.model.report import DeviceReport, DeviceState, Holder, MigShape, Verdict
from muster.model.vocabulary import Reason
from tests.admitter.clusters import (
    GPU,
    NOW,
    a_gang,
    a_lease,
    a_node,
    a_podset,
    a_resource,
    a_view,
    placed,
)

POLICY = Policy()


def cut(uuid, compute_slices, gib):
    """A MIG instance by the driver's numbers; None: it gives no memory."""
    memory = NOT_COLLECTED if gib is None else Known(gib * 2**30)
    return DeviceReport(
        uuid=uuid,
        state=DeviceState.HEALTHY,
        reason=Reason.OK.value,
        holder=Holder.NONE,
        shape=MigShape(profile="whatever", compute_slices=Known(compute_slices), memory_bytes=memory),
    )


def plan(gang, view, leases=None, policy=POLICY):
    return admit.plan(gang, offers.of_view(view, leases or {}, policy), policy)


#   n1 ████████  n2 ████████  n3 ████████  n4 ░ (one GPU lost: strict 0)
LOST = a_node("n4", a_resource(0, verdict=Verdict.OVER, reason="GpuLost", lenient=7, risk=0.125))

PLACED = {
    "the smallest node that is enough": (
        a_gang(count=3), a_view(("n1", 8), ("n2", 4), ("n3", 3)), {("main", "n3"): 3}),
    "the fewest nodes, the last one the tightest": (
        a_gang(count=7), a_view(("n1", 3), ("n2", 3), ("n3", 2), ("n4", 1)),
        {("main", "n1"): 3, ("main", "n2"): 3, ("main", "n4"): 1}),
    "equal nodes go by name": (a_gang(count=2, gpus=4), a_view(("b", 8), ("a", 8)), {("main", "a"): 2}),
    "whole pods, never a pod over two nodes": (
        a_gang(count=2, gpus=5), a_view(("n1", 8), ("n2", 8)), {("main", "n1"): 1, ("main", "n2"): 1}),
    "a gang around a lost GPU": (
        a_gang(count=24), a_view(("n1", 8), ("n2", 8), ("n3", 8), LOST),
        {("main", "n1"): 8, ("main", "n2"): 8, ("main", "n3"): 8}),
    "large pods first": (
        a_gang(a_podset("driver", 1, 1), a_podset("worker", 1, 8)), a_view(("n1", 8), ("n2", 2)),
        {("driver", "n2"): 1, ("worker", "n1"): 1}),
    "required node": (
        a_gang(count=4, topology="required=node"), a_view(("n1", 3), ("n2", 5)), {("main", "n2"): 4}),
    "preferred node, given up": (
        a_gang(count=4, topology="preferred=node"), a_view(("n1", 3), ("n2", 3)),
        {("main", "n1"): 3, ("main", "n2"): 1}),
    "required clique, the one with least left over": (
        a_gang(count=8, topology="required=clique"),
        a_view(a_node("n1", 8, clique="f.1"), a_node("n2", 8, clique="f.1"), a_node("n3", 8, clique="f.2")),
        {("main", "n3"): 8}),
    "a node without a fabric is a clique of its own if NVLink joins it": (
        a_gang(count=2, topology="required=clique"), a_view(("n1", 8)), {("main", "n1"): 2}),
    "required island where all free GPUs are in it": (
        a_gang(count=2, topology="required=island"),
        a_view(a_node("n1", 4, islands=["a", "a", "b", "b"]), a_node("n2", 2, islands=["a", "a", "b", "b"])),
        {("main", "n2"): 2}),
    "one GPU is an island": (
        a_gang(count=1, topology="required=island"), a_view(a_node("n1", 4, islands=["", "", "", ""])),
        {("main", "n1"): 1}),
    "a named resource": (
        a_gang(a_podset(request=ResourceRequest(name="example.com/fpga", quantity=2))),
        a_view(a_node("n1", {"example.com/fpga": a_resource(2)}), ("n2", 8)), {("main", "n1"): 1}),
    "MIG by shape: the smallest that is enough": (
        a_gang(a_podset(count=3, request=MigRequest(compute_slices=2, min_memory_bytes=15 * 10**9))),
        a_view(a_node("n1", {
            "nvidia.com/mig-1g.20gb": a_resource(4, devices=("MIG-1",)),
            "nvidia.com/mig-2g.20gb": a_resource(2, devices=("MIG-2",)),
            "nvidia.com/mig-3g.40gb": a_resource(2, devices=("MIG-3",)),
        })), {("main", "n1"): 3}),
    # faults.md C10: the name rounds up, and 20 GiB are there. C9: it rounds down, and 79 GiB are.
    "MIG of another size than its name's, by the driver's numbers": (
        a_gang(a_podset(count=1, request=MigRequest(compute_slices=1, min_memory_bytes=21 * 2**30))),
        a_view(
            a_node("n1", {"nvidia.com/mig-1g.24gb": a_resource(4, devices=("MIG-1",))}, devices=(cut("MIG-1", 1, 20),)),
            a_node("n2", {"nvidia.com/mig-1g.20gb": a_resource(4, devices=("MIG-2",))}, devices=(cut("MIG-2", 1, 22),)),
        ), {("main", "n2"): 1}),
    "MIG under the plain name, by the driver's numbers": (
        a_gang(a_podset(count=2, request=MigRequest(compute_slices=2, min_memory_bytes=2**30))),
        a_view(a_node("n1", a_resource(2, devices=("MIG-1", "MIG-2")), devices=(cut("MIG-1", 2, 20), cut("MIG-2", 3, 40)))),
        {("main", "n1"): 2}),
    "MIG of which the driver gives no memory, by its name": (
        a_gang(a_podset(count=1, request=MigRequest(compute_slices=2, min_memory_bytes=15 * 10**9))),
        a_view(a_node("n1", {"nvidia.com/mig-1g.20gb": a_resource(4, devices=("MIG-1",))}, devices=(cut("MIG-1", 2, None),))),
        {("main", "n1"): 1}),
    "replicas for who accepts them": (
        a_gang(count=3, pod_class="shared"), a_view(a_node("n1", a_resource(4, devices=("GPU-0::0", "GPU-0::1")))),
        {("main", "n1"): 3}),
    "best fit is not enough, the exact search is": (
        a_gang(a_podset("a", 2, 3), a_podset("b", 3, 2)), a_view(("n1", 6), ("n2", 6)),
        {("a", "n1"): 2, ("b", "n2"): 3}),
}  # fmt: skip


@pytest.mark.parametrize(("gang", "view", "expected"), PLACED.values(), ids=PLACED)
def test_placed(gang, view, expected):
    assert placed(plan(gang, view)) == expected


REFUSED = {
    "one short": (a_gang(count=24), a_view(("n1", 8), ("n2", 8), ("n3", 7), LOST)),
    "enough units, not in whole pods": (a_gang(count=2, gpus=5), a_view(("n1", 8), ("n2", 2))),
    "stale": (a_gang(), a_view(a_node("n1", 8, heard=NOW - 16))),
    "blind": (a_gang(), a_view(a_node("n1", a_resource(None)))),
    "strict 0 under a bad GPU": (a_gang(), a_view(LOST)),
    "a gang takes no pick risk": (a_gang(count=2, pod_class="restartable"), a_view(LOST)),
    "the least of the instances, since the kubelet picks": (
        a_gang(a_podset(request=MigRequest(compute_slices=3, min_memory_bytes=0))),
        a_view(a_node("n1", a_resource(2, devices=("MIG-1", "MIG-2")), devices=(cut("MIG-1", 2, 20), cut("MIG-2", 3, 40))))),
    "replicas outside gangs": (a_gang(), a_view(a_node("n1", a_resource(4, devices=("GPU-0::0",))))),
    "MIG is not a whole GPU": (a_gang(), a_view(a_node("n1", a_resource(4, devices=("MIG-1",))))),
    "the kubelet could pick across islands": (
        a_gang(count=2, topology="required=island"), a_view(a_node("n1", 4, islands=["a", "a", "b", "b"]))),
    "no fabric, and NVLink joins only some of the node": (
        a_gang(count=2, topology="required=clique"), a_view(a_node("n1", 4, islands=["a", "a", "b", "b"]))),
    "nodes without a fabric are not one clique": (a_gang(count=9, topology="required=clique"), a_view(("n1", 8), ("n2", 8))),
    "second podset has no place": (a_gang(a_podset("a", 1, 8), a_podset("b", 1, 1)), a_view(("n1", 8))),
    "no such node": (a_gang(), a_view()),
}  # fmt: skip


@pytest.mark.parametrize(("gang", "view"), REFUSED.values(), ids=REFUSED)
def test_refused(gang, view):
    assert isinstance(plan(gang, view), Shortfall)


def test_a_restartable_single_takes_a_risk_up_to_policy():
    single = a_gang(pod_class="restartable")
    assert isinstance(plan(single, a_view(LOST), policy=Policy(lenient_pick_risk=0.1)), Shortfall)
    assert placed(plan(single, a_view(LOST), policy=Policy(lenient_pick_risk=0.2))) == {("main", "n4"): 1}


def test_a_member_is_subtracted_until_its_uid_is_counted():
    """Twice 4 of 8 units: leased, then counted by the node itself."""
    leased = {"n1": (a_lease(4, uids=["u1"], units_per_pod=4),)}
    before, after = a_node("n1", 8), a_node("n1", a_resource(4, counted=[("u1", 4)]))
    for node in (before, after):
        assert isinstance(plan(a_gang(count=4), a_view(node), leased), Grant)
        assert isinstance(plan(a_gang(count=5), a_view(node), leased), Shortfall)


def test_places_are_checked_by_the_function_that_found_them():
    gang, view = a_gang(count=12), a_view(("n1", 8), ("n2", 8))
    grant = plan(gang, view)
    assert admit.holds(gang, grant.placements, offers.of_view(view, {}, POLICY), POLICY)
    worse = a_view(("n1", 8), ("n2", 3), ("n3", 8))
    assert isinstance(plan(gang, worse), Grant)
    assert not admit.holds(gang, grant.placements, offers.of_view(worse, {}, POLICY), POLICY)


UNITS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=5)
PODSETS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from(["", "required=node", "preferred=node"])),
    min_size=1, max_size=3,
)  # fmt: skip
LEASES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 6), max_size=4)


def gang_of(podsets):
    return a_gang(*(a_podset(f"p{i}", count, gpus, topology=wish) for i, (count, gpus, wish) in enumerate(podsets)))


@hypothesis.given(UNITS, PODSETS, LEASES)
def test_all_or_none_and_never_more_than_the_node_admits(units, podsets, held):
    gang = gang_of(podsets)
    leases = {node: (a_lease(count),) for node, count in held.items()}
    view = a_view(*units.items())
    answer = plan(gang, view, leases)
    if isinstance(answer, Grant):
        pods, taken = {}, {}
        for placement in answer.placements:
            pods[placement.podset] = pods.get(placement.podset, 0) + placement.pods
            taken[placement.node] = taken.get(placement.node, 0) + placement.units
        assert pods == {podset.name: podset.count for podset in gang.podsets}
        for node, count in taken.items():
            assert count <= nodecapacity.admissible(view, node, GPU, leases.get(node, ()))
        assert admit.holds(gang, answer.placements, offers.of_view(view, leases, POLICY), POLICY)


@hypothesis.given(UNITS, PODSETS, st.randoms(use_true_random=False))
def test_the_same_snapshot_gives_the_same_answer(units, podsets, random):
    shuffled = list(units.items())
    random.shuffle(shuffled)
    assert plan(gang_of(podsets), a_view(*units.items())) == plan(gang_of(podsets), a_view(*shuffled))


@hypothesis.given(UNITS, PODSETS, UNITS)
def test_more_capacity_never_turns_yes_into_no(units, podsets, more):
    richer = {node: units.get(node, 0) + more.get(node, 0) for node in {*units, *more}}
    if isinstance(plan(gang_of(podsets), a_view(*units.items())), Grant):
        assert isinstance(plan(gang_of(podsets), a_view(*richer.items())), Grant)


@hypothesis.given(UNITS, st.integers(1, 5), st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")))
def test_nothing_on_a_stale_or_blind_node(units, count, stale, blind):
    nodes = [
        a_node(name, a_resource(None if name in blind else free), heard=NOW - 60 if name in stale else NOW)
        for name, free in units.items()
    ]
    answer = plan(a_gang(count=count), a_view(*nodes))
    if isinstance(answer, Grant):
        assert not {placement.node for placement in answer.placements} & (stale | blind)


@hypothesis.given(UNITS, st.integers(1, 60))
def test_a_shortfall_names_every_refused_node(units, count):
    answer = plan(a_gang(count=count), a_view(*units.items()))
    if isinstance(answer, Shortfall):
        assert [exclusion.node for exclusion in answer.excluded] == sorted(n for n, free in units.items() if not free)
        assert all(exclusion.reason and exclusion.detail for exclusion in answer.excluded)
