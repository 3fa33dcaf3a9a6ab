"""After a broken promise nothing is leased on a node until it is known why."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import offers
from admitter.core.book import Book
from admitter.core.recover import Orphan
from admitter.core.trust import Trust
from admitter.model.decision import Policy
from admitter.model.lease import Lease, Placement
from admitter.model.promise import Rejection, TrustPolicy
from admitter.model.record import GangState, Terms
from muster.model.lease import NodeLease
from muster.model.report import Verdict
from tests.admitter.clusters import NOW, a_gang, a_node, a_resource, a_view

POLICY = TrustPolicy()


def a_rejection(node="n1", *, uid="u1", lease="t1-abc-1", at=NOW, scheduler="default-scheduler", **changes):
    facts = {"pod": f"team-a/{uid}", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
    return Rejection(uid=uid, node=node, lease_id=lease, at=at, scheduler=scheduler, **{**facts, **changes})


def a_trust(events=None, policy=POLICY, nodes=("n1",), gang="team-a/train"):
    """With one lease, t1-abc-1, on these nodes."""
    trust = Trust([] if events is None else events, policy)
    places = [Placement(podset="main", node=node, resource="gpu", pods=1, units_per_pod=8) for node in nodes]
    trust.note_lease(gang, Lease(id="t1-abc-1", term=1, snapshot_version=1, placements=tuple(places)))
    return trust


def a_sick(heard, **changes):
    sick = a_resource(0, verdict=Verdict.BLOCKED, reason="NotAdvertised")
    return a_node("n1", sick, heard=heard, **changes)


def at(moment, *nodes):
    return a_view(*nodes, now=moment)


def kinds(events):
    return [event.kind for event in events]


def test_the_first_refusal_closes_the_node_and_is_told_with_all_that_it_hangs_on():
    book = Book(Terms(term=1, prefix="t1-abc", opens_at=0.0), Policy())
    book.open(a_gang(gpus=8), "gates", NOW)
    view = a_view(("n1", 8), ("n2", 4))
    book.decide(view, NOW)
    lease = book.records["team-a/train"].lease
    book.end("team-a/train", "refused", NOW, has_run=False)
    book.open(a_gang(gpus=8, request_id="r2"), "gates", NOW)
    book.decide(view, NOW, rejections=[a_rejection(lease=lease.id)])
    told = next(event for event in book.events if event.kind == "broken-promise")
    assert (told.lease_id, told.node, told.reason) == (lease.id, "n1", "UnexpectedAdmissionError")
    assert told.gang == "team-a/train"
    assert "no healthy devices" in told.detail
    assert f"snapshot {view.version}" in told.detail
    record = book.records["team-a/train"]
    assert record.state is GangState.WAITING
    assert {each.node: each.reason for each in record.why.excluded}["n1"] == offers.BROKEN_PROMISE
    assert "no cause known yet" in record.why.summary


def test_it_opens_when_the_cause_is_known_and_two_samples_are_clean():
    events = []
    trust = a_trust(events)
    trust.hear([a_rejection()], at(NOW, a_node("n1", 8)), NOW)
    story = [(a_node("n1", 8, heard=NOW + 5), 1), (a_sick(NOW + 10), 1)]
    story += [
        (a_node("n1", 8, heard=NOW + 15), 1),
        (a_node("n1", 8, heard=NOW + 15), 1),
        (a_node("n1", 8, heard=NOW + 20), 0),
    ]
    for node, left in story:
        view = at(node.heard_at, node)
        trust.look(view)
        assert len(trust.bar(view).barred) == left, node.heard_at
    assert kinds(events) == ["broken-promise", "quarantine-began", "quarantine-ended"]
    assert "BLOCKED NotAdvertised" in events[-1].detail


def test_samples_from_before_the_refusal_say_nothing():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, a_sick(NOW)), NOW)
    old = dataclasses.replace(a_sick(NOW + 4), plane_age_ms={"nvml": 5000, "kubelet.pods": 100})
    trust.look(at(NOW + 4, old))
    assert trust.quarantined["n1"].cause == ""


def test_without_a_cause_it_is_tried_again_after_a_bound_and_only_clean():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, a_node("n1", 8)), NOW)
    for moment in (NOW + 5, NOW + 10, NOW + POLICY.quarantine_seconds):
        trust.look(at(moment, a_node("n1", 8, heard=moment)))
        assert trust.quarantined, "two clean samples without a cause are not enough"
    late = NOW + POLICY.quarantine_seconds + 1
    trust.look(at(late, a_node("n1", 8, heard=late)))
    assert not trust.quarantined


def test_a_node_that_was_rebooted_since_has_a_cause():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, a_node("n1", 8)), NOW)
    for moment in (NOW + 5, NOW + 10):
        trust.look(at(moment, a_node("n1", 8, heard=moment, boot="another")))
    assert not trust.quarantined


def test_another_refusal_begins_the_count_anew():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, a_node("n1", 8)), NOW)
    trust.look(at(NOW + 5, a_sick(NOW + 5)))
    trust.look(at(NOW + 10, a_node("n1", 8, heard=NOW + 10)))
    trust.hear([a_rejection(uid="u2", at=NOW + 12)], at(NOW + 12, a_node("n1", 8)), NOW + 12)
    trust.look(at(NOW + 15, a_node("n1", 8, heard=NOW + 15)))
    assert trust.quarantined["n1"].rejections == 2
    trust.look(at(NOW + 20, a_node("n1", 8, heard=NOW + 20)))
    assert not trust.quarantined


def test_a_storm_of_others_is_a_note_on_their_scheduler_and_closes_nothing():
    events = []
    trust = a_trust(events)
    view = at(NOW, a_node("n1", 8))
    others = [a_rejection(uid=f"s{n}", lease="", at=NOW + n, scheduler="greedy", reason="OutOfcpu") for n in range(9)]
    trust.hear(others, view, view.now)
    trust.look(view)
    assert trust.bar(view).barred == {}
    assert [(event.kind, event.node) for event in events] == [("overbooked", "n1")], "and it is said once"
    assert "greedy" in events[0].detail


@pytest.mark.parametrize("is_before", [True, False], ids=["storm first", "ours first"])
def test_a_scheduler_that_overbooks_is_a_cause_that_no_agent_can_see(is_before):
    trust = a_trust()
    view = at(NOW, a_node("n1", 8))
    others = [a_rejection(uid=f"s{n}", lease="", at=NOW, scheduler="greedy") for n in range(3)]
    ours = [a_rejection(reason="OutOfnvidia.com/gpu")]
    trust.hear(others + ours if is_before else ours + others, view, view.now)
    assert "greedy" in trust.quarantined["n1"].cause
    for moment in (NOW + 5, NOW + 10):
        trust.look(at(moment, a_node("n1", 8, heard=moment)))
    assert not trust.quarantined


def test_a_node_that_is_gone_is_forgotten():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, a_node("n1", 8)), NOW)
    trust.look(at(NOW + 5))
    assert trust.quarantined
    trust.look(at(NOW + POLICY.quarantine_seconds + 1))
    assert not trust.quarantined


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("refused"), st.booleans()),
            st.tuples(st.just("sample"), st.booleans()),
            st.tuples(st.just("silence"), st.booleans()),
        ),
        max_size=40,
    )
)
def test_a_node_is_open_only_after_two_clean_samples_since_its_last_broken_promise(steps):
    trust, moment, clean, is_broken = a_trust(), NOW, 0, False
    for number, (what, flag) in enumerate(steps):
        moment += 3
        node = a_node("n1", 8, heard=moment) if flag else a_sick(moment)
        view = at(moment, node)
        if what == "refused":
            trust.hear([a_rejection(uid=f"u{number}", lease="t1-abc-1" if flag else "", at=moment)], view, view.now)
            if flag:
                clean, is_broken = 0, True
        elif what == "sample":
            trust.look(view)
            clean = clean + 1 if flag else 0
        if is_broken and "n1" not in trust.quarantined:
            assert clean >= 2
            is_broken = False


ROOMY = dataclasses.replace(POLICY, most_share=1.0)
WORDS = st.text(alphabet="t01-abc", max_size=12)


@given(
    lies=st.lists(
        st.tuples(
            st.one_of(WORDS, st.sampled_from(["t1-abc-1", "t1-abc-2"])),
            st.sampled_from(["team-a", "team-b"]),
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from(["OutOfcpu", "SMTAlignmentError"]),
        ),
        max_size=20,
    )
)
def test_what_a_tenant_writes_on_its_pods_closes_no_node(lies):
    trust = a_trust(policy=ROOMY, gang="team-a/train")
    view = at(NOW + 9, ("n1", 8), ("n2", 8), ("n3", 8))
    trust.hear([], at(NOW, ("n1", 8)), NOW)
    refused = [
        a_rejection(node, uid=str(number), lease=lease, at=NOW + 9, pod=f"{namespace}/liar", reason=reason)
        for number, (lease, namespace, node, reason) in enumerate(lies)
    ]
    trust.hear(refused, view, view.now)
    true = {("t1-abc-1", "team-a", "n1")}
    assert set(trust.quarantined) == {"n1" for lease, namespace, node, _ in lies if (lease, namespace, node) in true}


def test_a_lease_of_another_term_counts_where_an_agent_reports_it():
    trust = Trust([], ROOMY)
    view = at(NOW + 9, ("n1", 8), ("n2", 8))
    trust.hear([], view, view.now)
    part = NodeLease(id="t0-abc-7", gang="team-a/old", resource="gpu", units=8)
    orphan = Orphan(id="t0-abc-7", gang="team-a/old", request_id="r", parts={"n1": (part,)}, heard_at=NOW)
    refused = [a_rejection(node, uid=node, lease="t0-abc-7", at=NOW + 20) for node in ("n1", "n2")]
    trust.hear(refused, view, view.now, {orphan.id: orphan})
    assert set(trust.quarantined) == {"n1"}


def test_the_two_clocks_have_nothing_in_common():
    trust = Trust([], POLICY)
    trust.hear([a_rejection(at=NOW)], at(3.0, ("n1", 8)), NOW + 1)
    assert set(trust.quarantined) == {"n1"}, "it was refused before anything was told here"


def test_at_a_change_of_leader_a_namespace_can_close_three_nodes_by_its_pods_word_and_not_for_longer():
    trust, nodes = Trust([], ROOMY), [f"n{number}" for number in range(9)]
    view = at(NOW, *((node, 8) for node in nodes))
    trust.hear(
        [a_rejection(node, uid=node, lease=f"t0-abc-{node[1:]}", at=NOW - 600) for node in nodes], view, view.now
    )
    assert len(trust.quarantined) == 3
    assert {known.since for known in trust.quarantined.values()} == {NOW - 600}
    trust.hear([a_rejection("n8", uid="late", lease="t0-abc-8", at=NOW + 1, pod="team-b/x")], view, view.now)
    assert len(trust.quarantined) == 3


@pytest.mark.parametrize(("when", "since"), [(NOW - 60, NOW - 60), (NOW + 60, NOW), (NOW - 9e6, NOW - 3600)])
def test_a_quarantine_counts_from_the_refusal_as_far_as_clocks_allow(when, since):
    trust = a_trust()
    elsewhen = 7.0
    trust.hear([a_rejection(at=when)], at(elsewhen, ("n1", 8)), NOW)
    assert trust.quarantined["n1"].since == elsewhen + since - NOW, "by the view's clock, which began elsewhere"


@pytest.mark.parametrize("is_one_gang", [True, False])
def test_a_workload_that_every_kubelet_refuses_is_blamed_by_name_and_closes_no_more(is_one_gang):
    events, nodes = [], [f"n{number}" for number in range(9)]
    trust = Trust(events, ROOMY)
    view = at(NOW, *((node, 8) for node in nodes))
    for number, node in enumerate(nodes):
        place = Placement(podset="main", node=node, resource="gpu", pods=1, units_per_pod=8)
        gang = "team-a/one" if is_one_gang else f"team-a/g{number}"
        trust.note_lease(gang, Lease(id=f"t1-abc-{number}", term=1, snapshot_version=1, placements=(place,)))
        reason = f"Reason{number}" if is_one_gang else "SMTAlignmentError"
        trust.hear([a_rejection(node, uid=node, lease=f"t1-abc-{number}", reason=reason)], view, view.now)
    assert set(trust.quarantined) == set(nodes[:3])
    (told,) = [event for event in events if event.kind == "quarantine-withheld"]
    assert ("gang team-a/one" if is_one_gang else "namespace team-a with SMTAlignmentError") in told.detail


def test_no_more_than_a_share_of_the_fleet_is_closed_and_it_is_said_once():
    events, nodes = [], [f"n{number}" for number in range(30)]
    trust = Trust(events, POLICY)
    view = at(NOW, *((node, 8) for node in nodes))
    for number, node in enumerate(nodes):
        place = Placement(podset="main", node=node, resource="gpu", pods=1, units_per_pod=8)
        lease = f"t1-abc-{number}"
        trust.note_lease(f"team-{number}/g", Lease(id=lease, term=1, snapshot_version=1, placements=(place,)))
        trust.hear([a_rejection(node, uid=node, lease=lease, pod=f"team-{number}/p")], view, view.now)
    assert len(trust.quarantined) == 3
    (told,) = [event for event in events if event.kind == "quarantine-withheld"]
    assert told.detail == "3 of 30 nodes are closed, and that is the most"


def test_the_same_pod_closes_no_node_twice():
    trust = a_trust()
    trust.hear([a_rejection()], at(NOW, ("n1", 8)), NOW)
    for moment in (NOW + 5, NOW + 10):
        trust.look(at(moment, a_node("n1", 8, heard=moment, boot="another")))
    trust.hear([a_rejection()], at(NOW + 20, ("n1", 8)), NOW + 20)
    assert not trust.quarantined, "a new term of the same book tells of it again"


def test_a_storm_on_many_nodes_is_counted_for_each_of_them():
    events = []
    trust = Trust(events, POLICY)
    storm = [a_rejection(f"n{n % 500}", uid=f"s{n}", lease="", at=NOW + n / 1000) for n in range(1500)]
    trust.hear(storm, at(NOW), NOW)
    assert len({event.node for event in events}) == len(events) == 500
