"""A queue lets go without a lease only if it is set to, only after the fleet was long out of sight, and at its pace."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core.outage import Outage, OutagePolicy, Sight, sight
from admitter.model.decision import Explanation
from admitter.model.record import GangState
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_node, a_resource, a_view, some_facts
from tests.admitter.gatescenes import a_record

POLICY = OutagePolicy(queues=frozenset({"team-a"}), after_seconds=300, pods_per_minute=60)
SILENT = a_view(a_node("n1", heard=0.0))
SEEN = a_view(a_node("n1"))


def a_wait(name="train", *, namespace="team-a", reason=WaitReason.NODES_STALE, priority=0, asked=NOW, arrival=1):
    gang = dataclasses.replace(a_gang(name=name, priority=priority), namespace=namespace)
    record = a_record(gang, why=Explanation(reason=reason, summary="nobody is heard", position=1))
    timeline = dataclasses.replace(record.timeline, asked=dataclasses.replace(record.timeline.asked, at=asked))
    return dataclasses.replace(record, timeline=timeline, arrival=arrival)


def a_record_of(record, **changes):
    return dataclasses.replace(record, **changes)


class Fleet:
    """An outage, and the view that it looks at."""

    def __init__(self, policy=POLICY, view=SILENT):
        self.view = view
        self.outage = Outage(policy, lambda: self.view)

    def looks(self, at, *records):
        events = self.outage.look(at, records)
        return [record.key for record in records if self.outage.permit(record.key).is_turn], [e.kind for e in events]


def facts(**gpus):
    return {
        name: dataclasses.replace(some_facts(), allocatable={"cpu": 1, GPU: number} if number else {"cpu": 1})
        for name, number in gpus.items()
    }


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (a_view(), Sight(seen=0, known=0)),
        (a_view(facts=facts(n1=8, n2=8, cpus=0)), Sight(seen=0, known=2)),
        (a_view(a_node("n1"), a_node("n2", heard=0.0), facts=facts(n1=8, n2=8)), Sight(seen=1, known=2)),
        (a_view(a_node("n1"), a_node("n2", a_resource(None))), Sight(seen=1, known=2)),
        (a_view(a_node("n1", a_resource(0)), facts=facts()), Sight(seen=1, known=1)),
        (a_view(a_node("n1", {"example.com/npu": a_resource(1)})), Sight(seen=0, known=0)),
    ],
    ids=["none", "never-heard", "silent", "blind", "full-is-seen", "not-a-device"],
)
def test_a_node_is_seen_while_its_agent_can_say_what_it_admits(view, expected):
    assert sight(view) == expected


@pytest.mark.parametrize(("seen", "known", "lost"), [(0, 0, False), (0, 3, True), (1, 9, False), (1, 10, True)])
def test_the_fleet_is_out_of_sight_while_at_most_a_tenth_of_it_is_seen(seen, known, lost):
    assert Sight(seen=seen, known=known).is_lost(POLICY) is lost


def test_nothing_goes_before_the_fleet_was_long_enough_out_of_sight_without_a_break():
    fleet, record = Fleet(), a_wait()
    assert fleet.looks(NOW, record) == ([], [])
    assert fleet.looks(NOW + 290, record) == ([], [])
    fleet.view = SEEN
    assert fleet.looks(NOW + 295, record) == ([], [])
    fleet.view = SILENT
    assert fleet.looks(NOW + 300, record) == ([], [])
    assert fleet.looks(NOW + 600, record) == ([record.key], ["outage-began"])
    assert fleet.outage.permit(record.key).words == "0 of 1 nodes with devices can be seen, and queue team-a fails open"
    fleet.view = SEEN
    assert fleet.looks(NOW + 605, record) == ([], ["outage-ended"])
    assert fleet.outage.permit(record.key).words == ""


def test_a_new_term_has_seen_nothing_yet_and_waits_as_long():
    fleet, record = Fleet(), a_wait()
    fleet.looks(NOW, record)
    assert fleet.looks(NOW + 300, record)[0]
    fleet.outage.restart()
    assert not fleet.looks(NOW + 301, record)[0]
    assert fleet.looks(NOW + 601, record)[0]


@pytest.mark.parametrize(
    "record",
    [
        a_wait(namespace="team-b"),
        a_wait(reason=WaitReason.NAMESPACE_LIMIT),
        a_wait(reason=WaitReason.IMAGE_UNAVAILABLE),
        a_wait(reason=WaitReason.BREAKER_HOLDING),
        a_wait(reason=WaitReason.NEW_TERM),
        a_record_of(a_wait(), why=None),
        a_record_of(a_wait(), state=GangState.ENDED),
    ],
    ids=["queue-fails-closed", "limit", "image", "breaker-pauses", "term-listens", "not-answered-yet", "ended"],
)
def test_what_sight_would_not_cure_stays(record):
    fleet = Fleet()
    fleet.looks(NOW, record)
    assert fleet.looks(NOW + 1000, record)[0] == []
    assert not fleet.outage.permit(record.key).is_turn


def test_without_the_setting_nothing_is_looked_at():
    fleet, record = Fleet(OutagePolicy()), a_wait()
    fleet.looks(NOW, record)
    assert fleet.looks(NOW + 1000, record) == ([], [])
    assert fleet.outage.sight == Sight()


def test_a_star_is_every_queue_and_each_has_its_own_pace():
    fleet = Fleet(dataclasses.replace(POLICY, queues=frozenset({"*"})))
    one, other = a_wait(), a_wait(namespace="team-b")
    fleet.looks(NOW, one, other)
    assert fleet.looks(NOW + 300, one, other)[0] == [one.key, other.key]
    fleet.outage.spend(one.key, 600, NOW + 300)
    assert fleet.looks(NOW + 301, one, other)[0] == [other.key]


def test_the_first_in_the_queue_goes_first_and_whole_and_nobody_before_it_is_paid_off():
    late, urgent, early = a_wait("a", asked=NOW + 9), a_wait("b", asked=NOW + 8, priority=5), a_wait("c", asked=NOW)
    fleet = Fleet()
    fleet.looks(NOW, late, urgent, early)
    assert fleet.looks(NOW + 300, late, urgent, early)[0] == [urgent.key]
    fleet.outage.spend(urgent.key, 120, NOW + 300)
    assert fleet.looks(NOW + 301, late, early)[0] == []
    assert fleet.looks(NOW + 419, late, early)[0] == []
    assert fleet.looks(NOW + 421, late, early)[0] == [early.key]
    assert fleet.outage.released == 120


def test_who_does_not_go_when_it_is_its_turn_holds_nobody_up():
    stuck, other = a_wait("a"), a_wait("b", asked=NOW + 5)
    fleet = Fleet()
    fleet.looks(NOW, stuck, other)
    assert fleet.looks(NOW + 300, stuck, other)[0] == [stuck.key]
    assert fleet.looks(NOW + 301, stuck, other)[0] == [other.key]
    assert len(fleet.looks(NOW + 302, stuck, other)[0]) == 1


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.floats(0, 90), st.integers(0, 3), st.booleans()), min_size=1, max_size=40
    ),
    st.integers(1, 600),
)
def test_no_queue_goes_faster_than_its_pace_and_none_that_is_closed_goes_at_all(gangs, pace):
    queues = ("team-a", "team-b", "team-c", "team-d")
    fleet = Fleet(OutagePolicy(queues=frozenset(queues[:3]), after_seconds=60, pods_per_minute=pace))
    waiting = {
        f"{queues[queue]}/g{number}": (a_wait(f"g{number}", namespace=queues[queue], arrival=number), pods, goes)
        for number, (pods, _, queue, goes) in enumerate(gangs)
    }
    gone: dict[str, list[tuple[float, int]]] = {}
    at = NOW
    for _, pause, _, _ in gangs:
        at += pause
        turns, _ = fleet.looks(at, *(record for record, _, _ in waiting.values()))
        assert len({key.split("/")[0] for key in turns}) == len(turns)
        for key in turns:
            _, pods, goes = waiting[key]
            if goes:
                fleet.outage.spend(key, pods, at)
                gone.setdefault(key.split("/")[0], []).append((at, pods))
                del waiting[key]
    assert "team-d" not in gone
    for history in gone.values():
        first = history[0][0]
        assert first >= NOW + gangs[0][1] + 60 or len(gangs) == 1
        # All but the last are paid off by the time that the last one goes.
        assert sum(pods for _, pods in history[:-1]) <= (history[-1][0] - first) * pace / 60 + 1e-6
