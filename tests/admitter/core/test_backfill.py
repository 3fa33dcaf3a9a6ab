"""The queue in time: who passes whom, and that nobody is delayed who has a reservation."""

import dataclasses
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core import offers, order
from admitter.model.decision import Grant, Policy
from admitter.model.lease import Placement
from admitter.model.queue import Ask, Holding, QueuePolicy, QueueState
from admitter.model.standing import Standing
from hack.bench import queuesim
from hack.bench.queuesim import Job
from muster.model.report import Verdict
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_node, a_resource, a_view

QUEUE = QueuePolicy(start_seconds=0, reserved_share=1.0)
POLICY = Policy(queue=QUEUE)


def with_queue(**changes):
    return dataclasses.replace(POLICY, queue=dataclasses.replace(QUEUE, **changes))


def held(node, units, *, ends_in=None, name="old", namespace="team-a", ran=100.0):
    """A gang of one pod that has run for `ran` seconds and says that it ends in some; None: it said nothing."""
    gang = dataclasses.replace(a_gang(name=name, gpus=units), namespace=namespace)
    place = Placement(podset="main", node=node, resource=GPU, pods=1, units_per_pod=units)
    seconds = None if ends_in is None else ran + ends_in
    return Holding(gang=gang, placements=(place,), since=NOW - ran, started_at=NOW - ran, runtime_seconds=seconds)


def decide(view, gangs, holdings=(), *, policy=POLICY, state=None, now=NOW, asked_at=NOW, standing=None):
    asks = [
        Ask(gang=gang, arrival=arrival, asked_at=asked_at, standing=(standing or {}).get(gang.name, Standing()))
        for arrival, gang in enumerate(gangs)
    ]
    supply, ideal = offers.Layout(policy).supply(view, {})
    scene = order.Scene(supply=supply, ideal=ideal, holdings=tuple(holdings), now=now)
    outcome = order.decide(asks, scene, policy, state)
    return {answer.gang.name: answer.answer for answer in outcome.answers}, outcome


def a_small(name="small", gpus=1, runtime=None):
    return a_gang(name=name, gpus=gpus, runtime=runtime)


#   n1  ██████░░   big wants all eight; the six end in 600 s
BIG = a_gang(name="big", gpus=8)
VIEW = a_view(("n1", 2))
SIX = held("n1", 6, ends_in=600)


def test_the_first_blocked_gang_is_told_where_and_when():
    answers, outcome = decide(VIEW, [BIG], [SIX])
    assert answers["big"].changes_at == NOW + 600
    assert answers["big"].reserved == ("n1",)
    assert answers["big"].summary.endswith("position 1; kept for it: n1")
    assert outcome.state.reservation.starts_at == NOW + 600


PASSING = {
    "ends before the reservation starts": (a_small(runtime=600), True),
    "ends after it": (a_small(runtime=601), False),
    "has not said": (a_small(), False),
}


@pytest.mark.parametrize(("small", "passes"), PASSING.values(), ids=PASSING)
def test_who_may_pass(small, passes):
    answers, _ = decide(VIEW, [BIG, small], [SIX])
    assert isinstance(answers["small"], Grant) is passes
    if not passes:
        assert answers["small"].reason is WaitReason.BEHIND_OTHERS
        assert ("says how long it runs" in answers["small"].summary) is (small.podsets[0].max_runtime_seconds is None)


def test_what_the_reservation_leaves_is_anybodys():
    """Big gets eight of n1 and n2 in 600 s; of n3 it needs nothing."""
    view = a_view(("n1", 2), ("n2", 3), ("n3", 4))
    answers, _ = decide(
        view, [a_gang(name="big", count=2, gpus=8), a_small(gpus=4)], [SIX, held("n2", 5, ends_in=300, name="b")]
    )
    assert {place.node for place in answers["small"].placements} == {"n3"}


def test_a_cold_start_counts_for_who_wants_to_pass():
    answers, _ = decide(VIEW, [BIG, a_small(runtime=400)], [SIX], policy=with_queue(start_seconds=300))
    assert answers["small"].reason is WaitReason.BEHIND_OTHERS


def test_a_domain_counts_only_if_it_holds_the_gang():
    """Enough GPUs are free in 100 s, but not on one node before 600 s."""
    view = a_view(("n1", 2), ("n2", 3))
    big = a_gang(name="big", count=8, topology="required=node")
    answers, _ = decide(view, [big], [held("n2", 3, ends_in=100, name="b"), SIX])
    assert answers["big"].changes_at == NOW + 600


def test_no_start_rests_on_who_has_not_said_when_it_ends():
    answers, outcome = decide(VIEW, [BIG, a_small(runtime=1)], [held("n1", 6)])
    assert answers["big"].changes_at is None
    assert "not every gang there says when it ends" in answers["big"].summary
    assert answers["small"].reason is WaitReason.BEHIND_OTHERS
    assert outcome.state.reservation.expires_at == NOW + 3600


def test_nothing_is_kept_where_pods_of_nobodys_gang_are_in_the_way():
    answers, outcome = decide(VIEW, [BIG, a_small()])
    assert isinstance(answers["small"], Grant)
    assert outcome.state.reservation is None
    assert answers["big"].reason is WaitReason.NOT_ENOUGH_UNITS


def test_a_node_with_a_fault_gives_nothing_back():
    lost = a_node("n1", a_resource(0, verdict=Verdict.OVER, reason="GpuLost", lenient=1))
    _, outcome = decide(a_view(lost), [a_gang(name="big", gpus=6)], [SIX])
    assert outcome.state.reservation is None


def test_a_place_without_a_start_is_kept_for_a_while_and_then_for_the_next():
    holdings = [held("n1", 6)]
    other = a_gang(name="other", gpus=4)
    _, first = decide(VIEW, [BIG, other], holdings)
    assert first.state.reservation.gang == "team-a/big"
    assert first.again_at == NOW + 3600
    answers, second = decide(VIEW, [BIG, other], holdings, state=first.state, now=NOW + 3600)
    assert dict(second.state.resting) == {"team-a/big": NOW + 7200}
    assert second.state.reservation.gang == "team-a/other"
    assert answers["big"].reserved == ()
    _, third = decide(VIEW, [BIG, other], holdings, state=second.state, now=NOW + 7200)
    assert third.state.reservation.gang == "team-a/big"


def test_who_has_waited_for_long_keeps_its_place_for_as_long():
    _, outcome = decide(VIEW, [BIG], [held("n1", 6)], asked_at=NOW - 10_000)
    assert outcome.state.reservation.expires_at == NOW + 10_000


def test_the_place_is_kept_from_pass_to_pass():
    """Of two like nodes n1 is chosen; that n2 would now be free a little earlier does not move it."""
    view = a_view(("n1", 2), ("n2", 2))
    _, first = decide(view, [BIG], [SIX, held("n2", 6, ends_in=900, name="b")])
    assert {place.node for place in first.state.reservation.placements} == {"n1"}
    _, second = decide(view, [BIG], [SIX, held("n2", 6, ends_in=550, name="b")], state=first.state)
    assert second.state.reservation == first.state.reservation
    _, third = decide(view, [BIG], [SIX, held("n2", 6, ends_in=300, name="b")], state=first.state)
    assert {place.node for place in third.state.reservation.placements} == {"n2"}


def test_a_holder_that_ends_early_brings_the_start_nearer():
    """n1 is held by two; the longer one is gone before its time."""
    view = a_view(("n1", 0))
    short, long = held("n1", 4, ends_in=300, name="short"), held("n1", 4, ends_in=9000, name="long")
    _, first = decide(view, [BIG], [short, long])
    answers, second = decide(a_view(("n1", 4)), [BIG, a_small(runtime=400)], [short], state=first.state)
    assert (first.state.reservation.starts_at, second.state.reservation.starts_at) == (NOW + 9000, NOW + 300)
    assert answers["small"].reason is WaitReason.BEHIND_OTHERS


def test_a_place_whose_holder_is_late_is_left_for_an_earlier_one():
    view = a_view(("n1", 2), ("n2", 2))
    _, first = decide(view, [BIG], [SIX, held("n2", 6, ends_in=900, name="b")])
    late = [held("n1", 6, ends_in=5000), held("n2", 6, ends_in=900, name="b")]
    _, second = decide(view, [BIG], late, state=first.state)
    assert {place.node for place in second.state.reservation.placements} == {"n2"}


def test_only_a_share_of_the_fleet_is_kept_idle_until_the_gang_has_aged():
    view = a_view(("n1", 8), ("n2", 2))
    big = a_gang(name="big", count=2, gpus=8)
    policy = with_queue(reserved_share=0.25, ageing_seconds=1000)
    answers, _ = decide(view, [big, a_small(gpus=8)], [held("n2", 6, ends_in=600)], policy=policy)
    assert isinstance(answers["small"], Grant)
    answers, _ = decide(view, [big, a_small(gpus=8)], [held("n2", 6, ends_in=600)], policy=policy, asked_at=NOW - 1000)
    assert answers["small"].reason is WaitReason.BEHIND_OTHERS


def test_an_overrun_costs_its_namespace_the_right_to_pass():
    overrun = held("n2", 8, ends_in=-100, namespace="team-b", name="late", ran=500)
    view = a_view(("n1", 2), ("n2", 0))
    mine = a_small(runtime=60)
    theirs = dataclasses.replace(a_small(name="theirs", runtime=60), namespace="team-b")
    answers, outcome = decide(view, [BIG, theirs, mine], [SIX, overrun])
    assert answers["theirs"].reason is WaitReason.BEHIND_OTHERS
    assert isinstance(answers["small"], Grant)
    assert dict(outcome.state.banned) == {"team-b": NOW + 86_400}
    answers, _ = decide(view, [BIG, theirs], [SIX], state=outcome.state, now=NOW + 1)
    assert answers["theirs"].reason is WaitReason.BEHIND_OTHERS


def test_an_overrun_has_no_end_that_anybody_counts_on():
    answers, _ = decide(VIEW, [BIG], [held("n1", 6, ends_in=-61, ran=500)])
    assert answers["big"].changes_at is None


def test_a_gang_on_strike_waits_for_its_time_and_keeps_nothing():
    strike = Standing(strikes=2, refused_by="node n1: OutOfcpu", not_before=NOW + 30)
    answers, outcome = decide(a_view(("n1", 8)), [a_small()], standing={"small": strike})
    assert (answers["small"].reason, answers["small"].changes_at) == (WaitReason.ON_STRIKE, NOW + 30)
    assert "refused 2 times, last by node n1: OutOfcpu" in answers["small"].summary
    assert outcome.again_at == NOW + 30
    late = dataclasses.replace(strike, not_before=NOW)
    answers, outcome = decide(VIEW, [BIG, a_small()], [SIX], standing={"big": late})
    assert outcome.state.reservation is None
    assert isinstance(answers["small"], Grant)


def test_a_namespace_holds_no_more_than_its_limit_and_stops_nobody_else():
    policy = with_queue(namespace_limits={"team-a": 7, "*": 1})
    other = dataclasses.replace(a_small(name="other"), namespace="team-b")
    answers, _ = decide(a_view(("n1", 8)), [a_small(gpus=2), other], [held("n2", 6)], policy=policy)
    assert answers["small"].reason is WaitReason.NAMESPACE_LIMIT
    assert "holds 6 of 7 GPUs" in answers["small"].summary
    assert isinstance(answers["other"], Grant)


def test_grants_of_the_same_pass_count_towards_the_limit():
    policy = with_queue(namespace_limits={"*": 3})
    answers, _ = decide(a_view(("n1", 8)), [a_small("a", 2), a_small("b", 2), a_small("c", 1)], policy=policy)
    assert [isinstance(answers[name], Grant) for name in "abc"] == [True, False, True]


def test_who_has_aged_goes_before_a_higher_priority():
    old, urgent = a_gang(name="old", gpus=8), a_gang(name="urgent", gpus=8, priority=100)
    asks = [
        Ask(gang=old, arrival=0, asked_at=NOW - 90_000),
        Ask(gang=urgent, arrival=1, asked_at=NOW - 10),
    ]
    assert [ask.gang.name for ask in order.queue(asks, POLICY, NOW)] == ["old", "urgent"]
    assert [ask.gang.name for ask in order.queue(asks, with_queue(ageing_seconds=0), NOW)] == ["urgent", "old"]


def test_never_is_told_from_not_now():
    answers, _ = decide(a_view(("n1", 0)), [a_gang(name="later", gpus=8), a_gang(name="never", gpus=9)])
    assert answers["later"].reason is WaitReason.NOT_ENOUGH_UNITS
    assert answers["never"].reason is WaitReason.NEVER_FITS
    assert "can never fit on the nodes that are known, free or not" in answers["never"].summary


def test_a_pass_does_not_try_a_long_queue_to_its_end():
    gangs = [BIG, *(a_gang(name=f"g{size}", count=size, gpus=1, runtime=10_000) for size in range(1, 6))]
    answers, _ = decide(VIEW, gangs, [SIX], policy=with_queue(scan_depth=2))
    assert "not tried yet" in answers["g5"].summary
    assert "kept for" in answers["g1"].summary


JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 3), st.integers(1, 4), st.integers(1, 40)), min_size=1, max_size=12
)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def jobs_of(shapes, declared=lambda seconds: seconds):
    return [
        Job(
            name=f"j{index:02d}", arrival=float(arrival), pods=count, gpus=gpus, seconds=float(seconds),
            declared=declared(float(seconds)),
        )
        for index, (arrival, count, gpus, seconds) in enumerate(shapes)
    ]  # fmt: skip


def fits(job, sizes):
    return sum(size // job.gpus for size in sizes) >= job.pods


@hypothesis.given(JOBS, SIZES)
@hypothesis.settings(max_examples=25)
def test_a_reservation_is_kept_if_everybody_ends_when_they_said(shapes, sizes):
    """EASY: no gang starts later than it was first promised, whoever passed it."""
    jobs = jobs_of(shapes)
    course = queuesim.gangs(jobs, sizes, POLICY)
    for name, promised in course.promised.items():
        assert course.started[name] <= promised


@hypothesis.given(JOBS, SIZES, st.sampled_from([None, 0.3, 3.0]))
@hypothesis.settings(max_examples=25)
def test_every_gang_that_fits_the_fleet_starts_in_the_end(shapes, sizes, factor):
    """Nobody starves, whether runtimes are right, not declared, or far too short or long."""
    jobs = jobs_of(shapes, lambda seconds: None if factor is None else seconds * factor)
    course = queuesim.gangs(jobs, sizes, POLICY)
    assert set(course.started) == {job.name for job in jobs if fits(job, sizes)}
    assert course.most_used <= sum(sizes)


@hypothesis.given(st.integers(1, 3), st.integers(2, 4), st.booleans())
@hypothesis.settings(max_examples=5)
def test_a_stream_of_small_gangs_does_not_starve_a_large_one(nodes, stream, declares):
    """Singles fill every gap: without a reservation the large gang would wait for the end of the stream."""
    small = [
        Job(
            name=f"s{index:04d}", arrival=float(index), pods=1, gpus=1, seconds=8.0 * nodes,
            declared=8.0 * nodes if declares else None,
        )
        for index in range(stream * 8 * nodes)
    ]  # fmt: skip
    large = Job(name="large", arrival=8.0 * nodes + 0.5, pods=nodes, gpus=8, seconds=10.0, declared=10.0)
    course = queuesim.gangs([*small, large], [8] * nodes, POLICY)
    assert course.started["large"] - large.arrival <= 8.0 * nodes + 8.0


def test_the_same_question_gets_the_same_answer():
    gangs = [BIG, a_small("a", runtime=500), a_small("b"), a_gang(name="c", count=2, priority=1)]
    first, one = decide(VIEW, gangs, [SIX])
    again, other = decide(VIEW, gangs, [SIX])
    assert (first, one.state, one.again_at) == (again, other.state, other.again_at)
    assert one.again_at < math.inf
    assert QueueState().reservation is None
