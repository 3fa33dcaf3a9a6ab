"""When Muster itself looks wrong."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import breaker
from admitter.core.breaker import Breaker
from admitter.model.ruling import HoldPolicy
from muster.model.report import Verdict
from tests.admitter.clusters import a_node, a_view
from tests.admitter.nodewords import a_finding, a_report

POLICY = HoldPolicy()
FLEET = 40


def bad(rule="lost/3", verdict=Verdict.OVER):
    return a_report(a_finding(verdict, rule=rule))


WELL = a_report()


class Fleet:
    """Forty nodes and who watches them."""

    def __init__(self, size=FLEET, policy=POLICY):
        self.breaker = Breaker(policy)
        self.reports = dict.fromkeys((f"n{number:02}" for number in range(size)), WELL)
        self.versions = dict.fromkeys(self.reports, "1.0")
        self.silent = set()
        self.ruling = None
        self.now = 0.0
        self.look(0)

    def look(self, at):
        self.now = at
        nodes = [
            dataclasses.replace(
                a_node(name, heard=at - 100 if name in self.silent else at),
                report=report,
                agent_version=self.versions[name],
            )
            for name, report in self.reports.items()
        ]
        self.ruling = self.breaker.look(a_view(*nodes, now=at))
        return [(hold.ground.value, hold.culprit, len(hold.nodes)) for hold in self.ruling.holds]

    def turn(self, first, last, report):
        for number in range(first, last):
            self.reports[f"n{number:02}"] = report


def test_a_few_bad_nodes_are_bad_nodes():
    fleet = Fleet()
    fleet.turn(0, 6, bad())
    assert fleet.look(10) == []


def test_one_rule_that_turns_more_than_its_share_is_held_with_its_name():
    fleet = Fleet()
    fleet.turn(0, 7, bad())
    assert fleet.look(10) == [("rule", "lost/3", 7)]
    assert set(fleet.ruling.last_good) == {f"n0{number}" for number in range(7)}


def test_turns_that_are_spread_over_the_window_count_together():
    fleet = Fleet()
    for number in range(7):
        fleet.turn(number, number + 1, bad())
        held = fleet.look(10 + 40 * number)
    assert held == [("rule", "lost/3", 7)]


def test_turns_that_are_further_apart_do_not():
    fleet = Fleet()
    for number in range(7):
        fleet.turn(number, number + 1, bad())
        assert fleet.look(10 + 60 * number) == []


def test_many_nodes_with_many_causes_are_held_by_their_share():
    fleet = Fleet()
    for number in range(11):
        fleet.turn(number, number + 1, bad(rule=f"rule-{number}/1"))
    assert fleet.look(10) == [("share", "several", 11)]


def test_a_new_agent_version_that_goes_bad_is_held_although_it_is_rare():
    fleet = Fleet()
    for number in range(5):
        fleet.versions[f"n{number:02}"] = "1.1"
        fleet.turn(number, number + 1, bad(rule=f"rule-{number}/1"))
    assert fleet.look(10) == [("version", "1.1", 5)]


def test_a_version_is_not_to_blame_where_the_others_fare_no_better():
    fleet = Fleet(size=10)
    for number in range(10):
        fleet.versions[f"n{number:02}"] = "1.1" if number < 6 else "1.0"
        fleet.turn(number, number + 1, bad(rule=f"rule-{number}/1"))
    assert fleet.look(10) == [("share", "several", 10)]


def test_agents_that_fall_silent_together_are_held_as_that():
    fleet = Fleet()
    fleet.silent = {f"n{number:02}" for number in range(20)}
    assert fleet.look(10) == [("rule", "AgentSilent", 20)]


def test_whoever_the_rule_turns_later_joins_and_whoever_recovers_leaves():
    fleet = Fleet()
    fleet.turn(0, 8, bad())
    fleet.look(10)
    fleet.turn(8, 10, bad())
    fleet.turn(0, 1, WELL)
    assert fleet.look(1000) == [("rule", "lost/3", 9)]
    assert "n00" not in fleet.ruling.nodes


def test_a_node_that_was_bad_before_is_not_held_for_it():
    fleet = Fleet()
    fleet.turn(0, 2, bad())
    fleet.look(10)
    fleet.look(1000)
    fleet.turn(2, 10, bad())
    assert fleet.look(1010) == [("rule", "lost/3", 8)]
    assert not {"n00", "n01"} & fleet.ruling.nodes


def test_a_node_that_was_bad_for_another_reason_is_held_for_the_new_one():
    fleet = Fleet()
    fleet.turn(0, 2, bad(rule="xid/1"))
    fleet.look(10)
    fleet.look(1000)
    fleet.turn(0, 8, a_report(a_finding(rule="xid/1"), a_finding(rule="lost/3", cause="Other")))
    assert ("rule", "lost/3", 8) in fleet.look(1010)


def test_a_hold_ends_when_half_its_threshold_is_left():
    fleet = Fleet()
    fleet.turn(0, 8, bad())
    fleet.look(10)
    fleet.turn(0, 4, WELL)
    assert fleet.look(20) == [("rule", "lost/3", 4)]
    fleet.turn(4, 5, WELL)
    assert fleet.look(30) == []


def test_a_hold_does_not_last_for_ever_and_does_not_come_back_by_itself():
    fleet = Fleet()
    fleet.turn(0, 8, bad())
    fleet.look(10)
    assert fleet.look(3609) != []
    assert fleet.look(3611) == []
    assert fleet.look(3612) == []
    assert fleet.look(9999) == []


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_small_fleet_is_never_held(size):
    fleet = Fleet(size=size)
    fleet.turn(0, size, bad())
    assert fleet.look(10) == []


def test_a_new_leader_that_finds_the_fleet_bad_holds_and_knows_no_good_decision():
    fleet = Fleet(size=0)
    fleet.reports = {f"n{number:02}": bad() if number < 8 else WELL for number in range(FLEET)}
    fleet.versions = dict.fromkeys(fleet.reports, "1.0")
    assert fleet.look(10) == [("rule", "lost/3", 8)]
    assert fleet.ruling.last_good == {}


def test_an_agent_that_starts_anew_keeps_its_last_good_word():
    """While an agent starts anew its node is not in the view."""
    fleet = Fleet()
    whole = dict(fleet.reports)
    fleet.reports = {name: report for name, report in whole.items() if name > "n07"}
    fleet.look(10)
    fleet.reports = whole
    fleet.turn(0, 8, bad())
    assert fleet.look(20) == [("rule", "lost/3", 8)]
    assert len(fleet.ruling.last_good) == 8


def test_a_transient_is_no_turn_and_no_good_decision():
    fleet = Fleet()
    passing = a_report(a_finding(Verdict.TRANSIENT, rule="lost/3"))
    fleet.turn(0, 20, passing)
    assert fleet.look(10) == []
    fleet.turn(0, 20, bad())
    fleet.look(40)
    assert {id(report) for report in fleet.ruling.last_good.values()} == {id(WELL)}


def test_an_observing_rule_is_to_blame_for_nothing():
    report = a_report(a_finding(rule="new/1", observed=True), a_finding(rule="lost/3", cause="Other"))
    assert breaker.rules_of(report) == {"lost/3"}
    assert breaker.rules_of(a_report(a_finding(rule="new/1", observed=True))) == frozenset()


STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 400),
        st.lists(
            st.tuples(st.integers(0, 11), st.sampled_from(["well", "lost/3", "xid/1", "passing", "silent", "heard"])),
            max_size=12,
        ),
    ),
    max_size=25,
)
SMALL = HoldPolicy(least_nodes=3)


@given(STEPS)
def test_any_history_holds_only_bad_nodes_and_lets_go(steps):
    fleet, now = Fleet(size=12, policy=SMALL), 0.0
    for seconds, turns in steps:
        now += seconds
        for number, what in turns:
            name = f"n{number:02}"
            if what == "silent":
                fleet.silent.add(name)
            elif what == "heard":
                fleet.silent.discard(name)
            else:
                fleet.reports[name] = {
                    "well": WELL,
                    "passing": a_report(a_finding(Verdict.TRANSIENT)),
                }.get(what) or bad(rule=what)
        fleet.look(now)
        for hold in fleet.ruling.holds:
            assert len(hold.nodes) > SMALL.least_nodes / 2
            for name in hold.nodes:
                assert name in fleet.silent or fleet.reports[name].verdict is Verdict.OVER
        assert all(report.verdict is Verdict.OK for report in fleet.ruling.last_good.values())
        assert fleet.ruling.last_good.keys() <= fleet.ruling.nodes
    assert fleet.look(now + SMALL.longest_seconds + 1) == []


@given(STEPS)
def test_the_same_history_gives_the_same_ruling_whatever_the_order_of_the_nodes(steps):
    one, other, now = Fleet(size=12, policy=SMALL), Fleet(size=12, policy=SMALL), 0.0
    other.reports = dict(reversed(other.reports.items()))
    for seconds, turns in steps:
        now += seconds
        for number, what in turns:
            report = bad(rule=what) if "/" in what else WELL
            one.reports[f"n{number:02}"] = other.reports[f"n{number:02}"] = report
        assert one.look(now) == other.look(now)
        assert one.ruling.nodes == other.ruling.nodes
