"""Which nodes carry our taint."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import taints
from admitter.core.taints import Case, TaintHistory, Withheld
from admitter.model.nodestatus import TaintPolicy
from muster.model.report import Verdict
from tests.admitter.nodewords import a_report, a_word, facts

POLICY = TaintPolicy(enabled=True, cap_nodes=2)
NOW = 1000.0


def a_case(node="n1", verdict=Verdict.OVER, *, bad=None, well=None, taint="", silent=0.0, **fields):
    return Case(
        facts=facts(node=node, taint=taint),
        verdict=verdict,
        silent_seconds=silent,
        history=TaintHistory(
            bad_since=None if bad is None else NOW - bad, well_since=None if well is None else NOW - well
        ),
        **fields,
    )


def plan(*cases, fleet=100, barred=None, policy=POLICY):
    made = taints.plan(cases, fleet=fleet, barred=barred, policy=policy, now=NOW)
    return {change.node: change.value for change in made.changes}, dict(made.withheld)


CASES = {
    "a verdict that has stood": ([a_case(bad=60)], {"n1": "OVER"}, {}),
    "a verdict that is young": ([a_case(bad=59)], {}, {}),
    "a cure that it would keep out": (
        [a_case(bad=60, keeps_out=("gpu-operator/plugin",))],
        {},
        {"n1": Withheld.CURE},
    ),
    "a taint that keeps a cure out is lifted at once": (
        [a_case(bad=60, taint="OVER", keeps_out=("gpu-operator/plugin",))],
        {"n1": ""},
        {},
    ),
    "a pod that is Pending because of the taint": (
        [a_case(bad=60, taint="OVER", pending=("gpu-operator/plugin-x",))],
        {"n1": ""},
        {},
    ),
    "a node that is well": ([a_case(verdict=Verdict.OK, well=120, taint="OVER")], {"n1": ""}, {}),
    "a node that has just become well": ([a_case(verdict=Verdict.OK, well=119, taint="OVER")], {}, {}),
    "another verdict than the one that is on it": (
        [a_case(verdict=Verdict.BLOCKED, bad=60, taint="OVER")],
        {"n1": "BLOCKED"},
        {},
    ),
    "a silent node keeps its taint": ([a_case(verdict=None, silent=3600, taint="OVER")], {}, {}),
    "a taint whose evidence nobody has renewed": ([a_case(verdict=None, silent=3601, taint="OVER")], {"n1": ""}, {}),
    "three bad nodes and room for two: the worst, then the oldest": (
        [a_case("a", bad=60), a_case("b", Verdict.BLOCKED, bad=60), a_case("c", bad=90)],
        {"b": "BLOCKED", "c": "OVER"},
        {"a": Withheld.CAP},
    ),
    "who has the taint is not displaced by a worse node": (
        [
            a_case("a", bad=90, taint="OVER"),
            a_case("b", bad=90, taint="OVER"),
            a_case("c", Verdict.BLOCKED, bad=600),
        ],
        {},
        {"c": Withheld.CAP},
    ),
    "more taints than the cap allows: the least bad goes": (
        [
            a_case("a", bad=90, taint="OVER"),
            a_case("b", bad=80, taint="OVER"),
            a_case("c", Verdict.BLOCKED, bad=70, taint="BLOCKED"),
        ],
        {"b": ""},
        {},
    ),
    "a place that is freed is not given away in the same moment": (
        [
            a_case("a", Verdict.OK, well=120, taint="OVER"),
            a_case("b", bad=90, taint="OVER"),
            a_case("c", bad=90),
        ],
        {"a": ""},
        {"c": Withheld.CAP},
    ),
}


@pytest.mark.parametrize(("cases", "changes", "withheld"), CASES.values(), ids=CASES)
def test_each_case(cases, changes, withheld):
    assert plan(*cases) == (changes, withheld)


def test_while_the_breaker_holds_nobody_is_tainted():
    assert plan(a_case(bad=600), barred=Withheld.BREAKER) == ({}, {"n1": Withheld.BREAKER})


def test_switched_off_every_taint_of_ours_goes():
    off = dataclasses.replace(POLICY, enabled=False)
    assert plan(a_case(bad=600), a_case("b", bad=600, taint="OVER"), policy=off) == ({"b": ""}, {})


@pytest.mark.parametrize(("fleet", "cap"), [(0, 0), (9, 0), (10, 1), (99, 9)])
def test_a_share_is_rounded_down(fleet, cap):
    assert TaintPolicy(cap_share=0.1).cap(fleet) == cap


def test_a_spell_that_breaks_off_starts_anew():
    history = TaintHistory()
    for at, verdict in ((0.0, Verdict.OVER), (50.0, Verdict.OVER), (55.0, Verdict.TRANSIENT), (56.0, Verdict.OVER)):
        history = taints.age(history, verdict, POLICY, at)
    assert history == TaintHistory(bad_since=56.0)


@pytest.mark.parametrize("verdict", [Verdict.BLIND, Verdict.TRANSIENT, Verdict.UNDER, Verdict.CONTENDED, None])
def test_what_taints_nobody_by_default(verdict):
    history = taints.age(taints.age(TaintHistory(), verdict, POLICY, 0.0), verdict, POLICY, 9999.0)
    assert history.bad_since is None


def test_a_stale_word_is_no_verdict():
    assert taints.verdict_of(a_word(a_report(), silent=15.0), 15.0) is Verdict.OK
    assert taints.verdict_of(a_word(a_report(), silent=15.1), 15.0) is None
    assert taints.verdict_of(a_word(None), 15.0) is None


ONE_CASE = st.builds(
    lambda node, verdict, spell, taint, silent, cure: a_case(
        f"n{node}",
        verdict,
        bad=spell if verdict in POLICY.verdicts else None,
        well=spell if verdict is Verdict.OK else None,
        taint=taint,
        silent=silent,
        keeps_out=("ns/ds",) if cure else (),
    ),
    st.integers(0, 50),
    st.sampled_from([*Verdict, None]),
    st.floats(0, 500),
    st.sampled_from(["", "", "OVER", "BLOCKED", "somebody-elses-word"]),
    st.sampled_from([0.0, 100.0, 4000.0]),
    st.booleans(),
)


@given(st.lists(ONE_CASE, max_size=30, unique_by=lambda case: case.facts.node), st.integers(0, 6), st.booleans())
def test_any_fleet_stays_within_the_cap_and_keeps_no_cure_out(cases, cap, barred):
    policy = dataclasses.replace(POLICY, cap_nodes=cap)
    changes, withheld = plan(*cases, barred=barred, policy=policy)
    after = {case.facts.node: changes.get(case.facts.node, case.facts.taint) for case in cases}
    before = sum(bool(case.facts.taint) for case in cases)
    assert sum(bool(value) for value in after.values()) <= cap
    # Requests may fail or come late: what is put on, on top of all that was there, fits as well.
    added = sum(1 for case in cases if changes.get(case.facts.node) and not case.facts.taint)
    assert added == 0 or before + added <= cap
    for case in cases:
        was, now = case.facts.taint, after[case.facts.node]
        if now:
            assert not case.keeps_out
        if now and not was:
            assert case.verdict in policy.verdicts
            assert barred is None
        assert not (now and case.facts.node in withheld)
    assert plan(*reversed(cases), barred=barred, policy=policy) == (changes, withheld)


@given(st.lists(st.tuples(st.sampled_from([*Verdict, None]), st.floats(1, 40)), max_size=100))
def test_any_timeline_changes_the_taint_slowly_and_never_for_staleness(words):
    now, taint, changed = 0.0, "", []
    history = TaintHistory()
    for verdict, seconds in words:
        now += seconds
        history = taints.age(history, verdict, POLICY, now)
        case = Case(facts=facts(taint=taint), verdict=verdict, silent_seconds=0.0, history=history)
        made = taints.plan([case], fleet=100, policy=POLICY, now=now)
        for change in made.changes:
            assert verdict is not None
            if bool(taint) != bool(change.value):
                changed.append(now)
            taint = change.value
    gaps = [later - earlier for earlier, later in itertools.pairwise(changed)]
    assert all(gap >= POLICY.after_seconds for gap in gaps)
