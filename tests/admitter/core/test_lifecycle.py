"""A lease is given up by the gang's end, or while nothing of the gang exists."""

import dataclasses

from admitter.core import admit, lifecycle, offers
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.lease import Lease, Placement
from admitter.model.record import GangState, node_leases
from admitter.model.timeline import spans
from muster.model.report import Verdict
from muster.model.vocabulary import EndReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_node, a_resource, a_view

POLICY = Policy()


def a_leased(view, **gang):
    record = lifecycle.opened(a_gang(**gang), "client", 1, NOW)
    grant = admit.plan(record.gang, offers.of_view(view, {}, POLICY), POLICY)
    lease = Lease(id="t1-x-1", term=1, snapshot_version=view.version, placements=grant.placements)
    return lifecycle.leased(record, grant, lease, view, NOW + 10)


def test_started_when_the_agents_have_counted_every_member():
    record = a_leased(a_view(("n1", 2), ("n2", 2)), count=2, gpus=2)
    assert {node: leases[0].units for node, leases in node_leases(record).items()} == {"n1": 2, "n2": 2}
    record = lifecycle.joined(record, Member(podset="main", uid="u1", node="n1"), NOW + 11)
    record = lifecycle.joined(record, Member(podset="main", uid="u2", node="n2"), NOW + 13)
    half = a_view(a_node("n1", a_resource(0, counted=[("u1", 2)])), ("n2", 2))
    record = lifecycle.observed(record, half, NOW + 14)
    assert (record.state, record.seen) == (GangState.LEASED, {"u1"})
    full = a_view(("n1", 2), a_node("n2", a_resource(0, counted=[("u2", 2)])))
    record = lifecycle.observed(record, full, NOW + 17)
    assert record.state is GangState.STARTED
    assert node_leases(record)["n1"][0].pod_uids == ("u1",)
    assert [(span.delays, span.seconds) for span in spans(record.timeline, NOW + 20)] == [
        (("admission",), 10.0),
        (("scheduling", "binding"), 3.0),
        (("device",), 4.0),
        (("content",), 3.0),
    ]


def test_a_lease_on_a_resource_that_no_agent_reports_knows_no_strangers():
    record = lifecycle.opened(a_gang(), "client", 1, NOW)
    place = Placement(podset="main", node="n1", resource="example.com/nic", pods=1, units_per_pod=1)
    lease = Lease(id="t1-x-1", term=1, snapshot_version=1, placements=(place,))
    grant = dataclasses.replace(
        admit.plan(record.gang, offers.of_view(a_view(("n1", 8)), {}, POLICY), POLICY), placements=(place,)
    )
    record = lifecycle.leased(record, grant, lease, a_view(("n1", 8)), NOW)
    assert (record.state, record.strangers) == (GangState.LEASED, frozenset())


def test_a_lease_falls_with_its_node_while_nothing_exists():
    record = a_leased(a_view(("n1", 8)), gpus=8)
    assert lifecycle.still_stands(record, a_view(("n1", 8)), {}, POLICY)
    for node in (a_node("n1", 8, heard=NOW - 16), a_node("n1", a_resource(0, verdict=Verdict.OVER, reason="GpuLost"))):
        assert not lifecycle.still_stands(record, a_view(node), {}, POLICY)
    again = lifecycle.revoked(record)
    assert (again.state, again.lease, again.arrival) == (GangState.WAITING, None, record.arrival)


def test_a_pod_that_is_not_reported_yet_may_be_ours():
    """The node counts 8 units of a UID that it had not counted when the lease was made."""
    record = a_leased(a_view(("n1", 8)), gpus=8)
    assert lifecycle.still_stands(record, a_view(a_node("n1", a_resource(0, counted=[("u1", 8)]))), {}, POLICY)


def test_a_pod_that_was_there_before_is_not_ours():
    record = a_leased(a_view(a_node("n1", a_resource(4, counted=[("old", 4)]))), gpus=4)
    assert not lifecycle.still_stands(record, a_view(a_node("n1", a_resource(0, counted=[("old", 4)]))), {}, POLICY)


def test_a_pod_of_another_gang_is_not_ours():
    record = a_leased(a_view(("n1", 8)), gpus=4)
    view = a_view(a_node("n1", a_resource(0, counted=[("theirs", 4)])))
    assert lifecycle.still_stands(record, view, {}, POLICY)
    assert not lifecycle.still_stands(record, view, {}, POLICY, frozenset({"theirs"}))


def test_members_are_bounded():
    record = a_leased(a_view(("n1", 8)), count=2)
    for index in range(100):
        record = lifecycle.joined(record, Member(podset="main", uid=f"u{index}", node="n1"), NOW)
    assert [member.uid for member in record.members] == [f"u{index}" for index in range(91, 100)]


def test_the_last_word_on_a_member_counts():
    record = a_leased(a_view(("n1", 8)), count=2)
    for node in ("n1", "n9", "n1"):
        record = lifecycle.joined(record, Member(podset="main", uid="u1", node=node), NOW)
    assert record.members == (Member(podset="main", uid="u1", node="n1"),)
    assert node_leases(record)["n1"][0].resource == GPU


def test_a_lease_outlives_its_client_by_the_grace():
    view = a_view(("n1", 8))
    record = lifecycle.detached(a_leased(view), NOW)
    assert not lifecycle.is_abandoned(record, view, NOW + 60, 60)
    assert lifecycle.is_abandoned(record, view, NOW + 61, 60)
    assert not lifecycle.is_abandoned(lifecycle.attached(record), view, NOW + 61, 60)


def test_a_lease_outlives_its_client_while_its_pods_have_devices():
    record = lifecycle.detached(a_leased(a_view(("n1", 8))), NOW)
    record = lifecycle.joined(record, Member(podset="main", uid="u1", node="n1"), NOW)
    running, gone = a_view(a_node("n1", a_resource(7, counted=[("u1", 1)]))), a_view(("n1", 8))
    assert not lifecycle.is_abandoned(record, running, NOW + 3600, 60)
    assert lifecycle.is_abandoned(record, gone, NOW + 3600, 60)


def test_places_that_the_pods_did_not_take_are_released_at_the_start():
    """Two places on n1; one pod went to n2 instead."""
    record = a_leased(a_view(("n1", 2), ("n2", 8)), count=2)
    for uid, node in (("u1", "n1"), ("u2", "n2")):
        record = lifecycle.joined(record, Member(podset="main", uid=uid, node=node), NOW)
    view = a_view(a_node("n1", a_resource(1, counted=[("u1", 1)])), a_node("n2", a_resource(7, counted=[("u2", 1)])))
    record = lifecycle.observed(record, view, NOW)
    assert record.state is GangState.STARTED
    assert {node: leases[0].units for node, leases in node_leases(record).items()} == {"n1": 1}


def test_the_end_holds_nothing():
    record = lifecycle.ended(a_leased(a_view(("n1", 8))), EndReason.FINISHED, "", NOW)
    assert node_leases(record) == {}
    assert record.ending.reason is EndReason.FINISHED
