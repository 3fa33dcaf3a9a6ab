"""One decision over the queue: priority, then first come, and nobody overtakes the head on units that it could use."""

import dataclasses

import hypothesis
from hypothesis import strategies as st

from admitter.core import offers, order
from admitter.model.decision import Explanation, Grant, Policy
from admitter.model.gang import ResourceRequest
from admitter.model.lease import Placement
from admitter.model.queue import Ask, Holding
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_node, a_podset, a_resource, a_view

POLICY = Policy()


def a_holding(node, units, *, ends_at=None, name="old", namespace="team-a", resource=GPU):
    """A gang that runs on one node, until it said; None: it did not say."""
    gang = dataclasses.replace(a_gang(name=name, gpus=units), namespace=namespace)
    place = Placement(podset="main", node=node, resource=resource, pods=1, units_per_pod=units)
    seconds = None if ends_at is None else ends_at - (NOW - 100)
    return Holding(gang=gang, placements=(place,), since=NOW - 100, started_at=NOW - 100, runtime_seconds=seconds)


def decide(view, *gangs, held=()):
    asks = [Ask(gang=gang, arrival=arrival, asked_at=NOW) for arrival, gang in enumerate(gangs)]
    supply, ideal = offers.Layout(POLICY).supply(view, {})
    outcome = order.decide(asks, order.Scene(supply=supply, ideal=ideal, holdings=tuple(held), now=NOW), POLICY)
    return {answer.gang.name: answer.answer for answer in outcome.answers}


def test_higher_priority_goes_first():
    answers = decide(a_view(("n1", 8)), a_gang(name="old", gpus=8), a_gang(name="urgent", gpus=8, priority=5))
    assert isinstance(answers["urgent"], Grant)
    assert answers["old"].reason is WaitReason.NOT_ENOUGH_UNITS


def test_first_come_first_served_within_a_priority():
    answers = decide(a_view(("n1", 8)), a_gang(name="b", gpus=8), a_gang(name="a", gpus=8))
    assert isinstance(answers["b"], Grant)
    assert answers["a"].position == 1


def test_a_small_gang_does_not_overtake_the_head():
    """Two GPUs are free of eight: the head wants all eight, the next one a single one."""
    view = a_view(("n1", 2))
    answers = decide(view, a_gang(name="big", gpus=8), a_gang(name="small", gpus=1), held=[a_holding("n1", 6)])
    assert answers["big"].reason is WaitReason.NOT_ENOUGH_UNITS
    assert answers["small"].reason is WaitReason.BEHIND_OTHERS
    assert "team-a/big" in answers["small"].summary
    assert (answers["big"].position, answers["small"].position) == (1, 2)


def test_units_that_the_head_cannot_use_are_free_for_others():
    fpga = a_gang(a_podset(request=ResourceRequest(name="example.com/fpga", quantity=1)), name="fpga")
    view = a_view(a_node("n1", {GPU: a_resource(2), "example.com/fpga": a_resource(1)}))
    answers = decide(view, a_gang(name="big", gpus=8), fpga)
    assert isinstance(answers["fpga"], Grant)


def test_a_gang_beyond_the_fleet_holds_nobody_up():
    answers = decide(a_view(("n1", 8)), a_gang(name="huge", count=1000), a_gang(name="small"))
    assert answers["huge"].reason is WaitReason.NEVER_FITS
    assert isinstance(answers["small"], Grant)


def test_a_new_term_answers_everybody_alike():
    asks = [Ask(gang=a_gang(name=name), arrival=index) for index, name in enumerate("ab")]
    answers = order.closed(asks, POLICY, NOW, opens_at=1090.0, detail="a new term listens first")
    assert [answer.answer.reason for answer in answers] == [WaitReason.NEW_TERM] * 2
    assert [answer.answer.position for answer in answers] == [1, 2]
    assert answers[0].answer.changes_at == 1090.0


GANGS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6)
UNITS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8), min_size=1, max_size=4)


@hypothesis.given(UNITS, GANGS)
def test_everyone_is_answered_and_no_node_is_promised_twice(units, shapes):
    gangs = [
        a_gang(name=f"g{index}", count=count, gpus=gpus, priority=priority)
        for index, (count, gpus, priority) in enumerate(shapes)
    ]
    view = a_view(*units.items())
    answers = decide(view, *gangs)
    assert answers == decide(view, *gangs)
    assert set(answers) == {gang.name for gang in gangs}
    taken = {}
    for answer in answers.values():
        if isinstance(answer, Grant):
            for placement in answer.placements:
                taken[placement.node] = taken.get(placement.node, 0) + placement.units
        else:
            assert isinstance(answer, Explanation)
            assert len(answer.excluded) + answer.excluded_more <= len(units)
    assert all(count <= units[node] for node, count in taken.items())
    waiting = sorted(answer.position for answer in answers.values() if isinstance(answer, Explanation))
    assert waiting == list(range(1, len(waiting) + 1))


def test_a_level_that_nobody_configured_is_named():
    answers = decide(a_view(("n1", 8)), a_gang(topology="required=rak"), a_gang(name="other"))
    assert answers["train"].reason is WaitReason.NEVER_FITS
    assert "topology level rak, which is none of island, node, clique" in answers["train"].summary
    assert isinstance(answers["other"], Grant)
