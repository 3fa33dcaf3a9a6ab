"""When an opinion becomes a condition on the Node."""

import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import conditions, nodestatus
from admitter.core.nodestatus import Moment
from admitter.model.nodestatus import StatusPolicy
from muster.model.nodeconditions import ConditionType, Status
from muster.model.report import DeviceState, Verdict
from tests.admitter.nodewords import UTC, a_device, a_finding, a_report, a_word, facts, in_short, stood

POLICY = StatusPolicy()
WELL = a_report()
LOST = a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[a_device(3, DeviceState.LOST, "GpuLost")])
LOST_TWO = a_report(
    a_finding(Verdict.OVER, "GpuLost", "GPU-3", "GPU-4"),
    devices=[a_device(number, DeviceState.LOST, "GpuLost") for number in (3, 4)],
)
PASSING = a_report(a_finding(Verdict.TRANSIENT, "PluginNotRegistered"))
BLIND = a_report(of_node=[a_finding(Verdict.BLIND, "PlaneUnreadable")], devices=[])
BARE = a_report(resources={}, devices=[])


class Server:
    """A Node on an API server, and the history of whoever writes it."""

    def __init__(self, conditions=None, *, policy=POLICY):
        self.policy = policy
        self.on_node = dict(conditions or {})
        self.history = nodestatus.fresh(policy, 0.0)
        self.attempts = []
        self.notes = []

    def look(self, report, at, *, silent=0.0, held=False, fails=False):
        moment = Moment(
            now=at, utc=UTC + datetime.timedelta(seconds=at), held=frozenset({"n1"}) if held else frozenset()
        )
        seen = nodestatus.look(a_word(report, silent), facts(self.on_node), self.history, self.policy, moment)
        if seen.is_at_rest:
            assert seen.write is None
            later = dataclasses.replace(moment, now=at + 100_000)
            assert (
                nodestatus.look(a_word(report, silent), facts(self.on_node), seen.history, self.policy, later).write
                is None
            )
        self.history, write = seen.history, seen.write
        if write is None:
            return None
        self.history = nodestatus.sent(self.history, write, self.policy, at)
        self.attempts.append(at)
        if not fails:
            self.on_node = dict(write.conditions)
            self.notes += write.notes
        return write

    def says(self):
        return in_short(self.on_node)


def test_the_first_word_is_written_at_once_and_is_no_event():
    server = Server()
    write = server.look(WELL, 0)
    assert (write.uid, write.is_urgent, write.notes) == ("uid-n1", False, ())
    assert server.says() == {
        "GPUCapacityTruthful": "True AsAdvertised",
        "GPUHealthy": "True AllHealthy",
        "MIGLayoutMatches": "True NotPartitioned",
    }
    assert {condition.since for condition in server.on_node.values()} == {UTC}


def test_a_steady_node_is_never_written_again():
    server = Server()
    for second in range(3600):
        server.look(dataclasses.replace(WELL, taken_at=WELL.taken_at + datetime.timedelta(seconds=second)), second)
    assert server.attempts == [0]


def test_a_new_leader_writes_nothing_that_is_there_already():
    old = Server()
    old.look(LOST, 0)
    new = Server(old.on_node)
    assert [new.look(LOST, at) for at in range(600)] == [None] * 600


def test_a_fault_is_written_at_once_with_its_events_and_its_instant():
    server = Server()
    server.look(WELL, 0)
    write = server.look(LOST, 7)
    assert write.is_urgent
    assert [(note.reason, note.action, note.text, note.is_warning) for note in write.notes] == [
        (
            "GpuLost",
            "SetGPUCapacityTruthful",
            "GPUCapacityTruthful is False: nvidia.com/gpu OVER GpuLostStillPromised GPU-3 (DrainAndResetGpu)",
            True,
        ),
        ("GpuLost", "SetGPUHealthy", "GPUHealthy is False: GPU-3 lost GpuLost", True),
    ]
    since = {name: condition.since - UTC for name, condition in server.on_node.items()}
    assert since == {
        ConditionType.CAPACITY: datetime.timedelta(seconds=7),
        ConditionType.HEALTH: datetime.timedelta(seconds=7),
        ConditionType.MIG: datetime.timedelta(0),
    }


def test_a_recovery_must_last_before_it_is_written():
    server = Server()
    server.look(LOST, 0)
    assert [server.look(WELL, at) for at in range(1, 31)] == [None] * 30
    assert server.look(WELL, 31) is not None
    assert set(server.says().values()) == {"True AsAdvertised", "True AllHealthy", "True NotPartitioned"}


def test_a_recovery_that_breaks_off_starts_anew():
    server = Server()
    server.look(LOST, 0)
    server.look(WELL, 1)
    server.look(LOST, 25)
    assert [server.look(WELL, at) for at in range(26, 56)] == [None] * 30
    assert server.look(WELL, 56) is not None


def test_more_of_the_same_fault_waits_for_the_refresh_and_keeps_the_instant():
    server = Server()
    server.look(LOST, 0)
    assert server.look(LOST_TWO, 5) is None
    assert server.look(LOST_TWO, 60).notes == ()
    assert server.on_node[ConditionType.HEALTH].message == "GPU-3 lost GpuLost; GPU-4 lost GpuLost"
    assert server.on_node[ConditionType.HEALTH].since == UTC


def test_something_passing_leaves_what_stands():
    server = Server()
    server.look(WELL, 0)
    assert [server.look(PASSING, at) for at in range(900)] == [None] * 900


def test_something_passing_on_a_new_node_is_settling():
    server = Server()
    server.look(PASSING, 0)
    assert server.says()["GPUCapacityTruthful"] == "Unknown Settling"
    assert server.says()["GPUHealthy"] == "True AllHealthy"


def test_a_silent_agent_is_unknown_and_does_not_settle_as_silent():
    server = Server()
    server.look(WELL, 0)
    assert server.look(WELL, 60, silent=60) is None
    server.look(WELL, 61, silent=61)
    assert server.look(WELL, 91, silent=91) is not None
    assert set(server.says().values()) == {"Unknown AgentSilent"}
    server.look(PASSING, 100)
    server.look(PASSING, 160)
    assert server.says()["GPUCapacityTruthful"] == "Unknown Settling"


def test_a_node_that_never_spoke_is_left_alone_unless_it_carries_our_conditions():
    assert Server().look(None, 1000, silent=1000) is None
    server = Server(stood())
    assert server.look(None, 10, silent=10) is None
    server.look(None, 61, silent=61)
    server.look(None, 91, silent=91)
    assert set(server.says().values()) == {"Unknown AgentSilent"}


def test_a_blind_moment_is_not_written_and_a_blind_node_is():
    server = Server()
    server.look(WELL, 0)
    assert server.look(BLIND, 10) is None
    assert server.look(WELL, 20) is None
    assert server.look(BLIND, 30) is None
    assert server.look(BLIND, 60) is not None
    assert set(server.says().values()) == {"Unknown PlaneUnreadable"}


def test_a_node_that_has_no_gpu_any_more_loses_its_conditions():
    server = Server()
    server.look(WELL, 0)
    assert server.look(BARE, 10) is None
    assert server.look(BARE, 60).conditions == {}
    assert server.look(BARE, 600) is None


@pytest.mark.parametrize("report", [LOST, BLIND])
def test_while_the_breaker_holds_the_last_good_word_stands(report):
    server = Server()
    server.look(WELL, 0)
    assert [server.look(report, at, held=True) for at in range(1, 300)] == [None] * 299
    # Afterwards what the agent says counts as ever: a fault at once, blindness when it lasts.
    assert (server.look(report, 400) is None) == (report is BLIND)


def test_while_the_breaker_holds_silence_is_not_written_either():
    server = Server(stood())
    assert [server.look(None, at, silent=at, held=True) for at in range(300)] == [None] * 300


def test_while_the_breaker_holds_a_node_without_a_word_is_unknown():
    server = Server()
    server.look(LOST, 0, held=True)
    assert server.says() == {
        "GPUCapacityTruthful": "Unknown BreakerHolding",
        "GPUHealthy": "Unknown BreakerHolding",
        "MIGLayoutMatches": "True NotPartitioned",
    }


def test_while_the_breaker_holds_good_news_is_written():
    server = Server()
    server.look(LOST, 0)
    server.look(WELL, 1, held=True)
    assert server.look(WELL, 31, held=True) is not None
    assert server.says()["GPUHealthy"] == "True AllHealthy"


def test_somebody_who_takes_our_conditions_away_cannot_make_us_spin():
    server = Server()
    for second in range(600):
        server.on_node = {}
        server.look(WELL, second)
    assert len(server.attempts) == POLICY.burst + 9


def test_the_same_event_is_not_told_twice_within_its_gap():
    server = Server()
    server.look(WELL, 0)
    server.look(LOST, 10)
    server.look(WELL, 11)
    server.look(WELL, 50)
    server.look(LOST, 60)
    told = [(note.action, note.reason) for note in server.notes]
    assert told.count(("SetGPUHealthy", "GpuLost")) == 1
    server.look(WELL, 500)
    server.look(WELL, 540)
    server.look(LOST, 700)
    told = [(note.action, note.reason) for note in server.notes]
    assert told.count(("SetGPUHealthy", "GpuLost")) == 2


REPORTS = [WELL, LOST, LOST_TWO, PASSING, BLIND, BARE, None]
STEP = st.tuples(
    st.sampled_from(REPORTS),
    st.floats(0.1, 100),
    st.sampled_from([0.0, 20.0, 61.0, 4000.0]),
    st.booleans(),  # the breaker
    st.sampled_from([False, False, True]),  # the request fails
    st.sampled_from(["", "", "", "wiped", "turned"]),  # another writer
)


@given(st.lists(STEP, max_size=80))
def test_whatever_happens_a_node_gets_few_writes_and_ends_up_right(steps):
    server, now = Server(), 0.0
    for report, seconds, silent, held, fails, other in steps:
        now += seconds
        server.look(report, now, silent=silent, held=held, fails=fails)
        if other == "wiped":
            server.on_node = {}
        elif other == "turned" and server.on_node:
            name = ConditionType.HEALTH
            server.on_node[name] = dataclasses.replace(server.on_node[name], status=Status.FALSE, reason="Xid")
    for place, begin in enumerate(server.attempts):
        within = [at for at in server.attempts[place:] if at - begin <= 300]
        assert len(within) <= POLICY.burst + 300 / POLICY.seconds_per_write
    for _ in range(200):
        now += 1
        server.look(LOST, now)
    assert server.says() == in_short(conditions.opinions(LOST))
    quiet = len(server.attempts)
    for _ in range(200):
        now += 1
        server.look(LOST, now)
    assert len(server.attempts) == quiet


@given(st.lists(st.tuples(st.sampled_from([WELL, LOST]), st.floats(0.1, 20)), min_size=1, max_size=80))
def test_a_condition_turns_good_only_after_a_whole_spell_of_good_words(words):
    server, now, good_since = Server(), 0.0, None
    for report, seconds in words:
        now += seconds
        good_since = (now if good_since is None else good_since) if report is WELL else None
        before = server.on_node.get(ConditionType.HEALTH)
        server.look(report, now)
        after = server.on_node[ConditionType.HEALTH]
        if before is not None and before.status is Status.FALSE and after.status is Status.TRUE:
            assert now - good_since >= POLICY.settle_seconds
