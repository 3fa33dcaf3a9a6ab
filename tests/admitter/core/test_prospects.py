"""What can never fit is worked out once, and a namespace that asks for very much costs the others nothing."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core import admit, depth, offers, order, pack, prospects, signature
from admitter.core.prospects import Prospects
from admitter.model.decision import Grant, Policy
from admitter.model.queue import Ask, QueuePolicy
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_podset, a_view

DEPTH = 5
POLICY = Policy(queue=QueuePolicy(scan_depth=DEPTH))
LAYOUT = offers.Layout(POLICY)
VIEW = a_view(("n1", 4), ("n2", 8))


def a_kind(index, namespace="team-a"):
    """Return a gang that never fits two nodes of eight, unlike those of every other index."""
    return dataclasses.replace(a_gang(name=f"never-{index:03}", count=3 + index, gpus=8), namespace=namespace)


@pytest.fixture
def searches(monkeypatch):
    """The gangs for which anybody looks for a place, now or ever."""
    found = []

    def counting(real):
        def counted(gang, *args, **options):
            found.append(gang)
            return real(gang, *args, **options)

        return counted

    for name in ("plan", "fits"):
        monkeypatch.setattr(admit, name, counting(getattr(admit, name)))
    return found


def a_pass(gangs, memory, view=VIEW, layout=LAYOUT, policy=POLICY):
    asks = [Ask(gang=gang, arrival=arrival, asked_at=NOW) for arrival, gang in enumerate(gangs)]
    supply, ideal = layout.supply(view, {})
    outcome = order.decide(asks, order.Scene(supply=supply, ideal=ideal, now=NOW), policy, None, memory)
    memory.again_at = outcome.again_at
    return {answer.gang.full_name: answer.answer for answer in outcome.answers}


def reasons(answers):
    return [answer.reason for answer in answers.values() if not isinstance(answer, Grant)]


def test_no_place_is_looked_for_again_for_what_fits_nowhere(searches):
    memory, gangs = order.Memory(), [a_kind(index) for index in range(4)]
    first = a_pass(gangs, memory)
    assert {each.reason for each in first.values()} == {WaitReason.NEVER_FITS}
    assert searches
    searches.clear()
    assert a_pass(gangs, memory) == first
    assert searches == []


def test_a_namespace_has_so_many_new_kinds_tried_in_a_pass_and_others_are_served(searches):
    gangs = [*(a_kind(index) for index in range(40)), dataclasses.replace(a_gang(name="b", gpus=8), namespace="team-b")]
    memory = order.Memory()
    answers = a_pass(gangs, memory)
    assert isinstance(answers["team-b/b"], Grant)
    assert len({gang.full_name for gang in searches if gang.namespace == "team-a"}) == DEPTH + 1
    assert reasons(answers).count(WaitReason.BEHIND_OTHERS) == 40 - DEPTH - 1
    for _ in range(40 // DEPTH):
        answers = a_pass(gangs, memory)
    searches.clear()
    answers = a_pass(gangs, memory)
    assert {gang.namespace for gang in searches} == {"team-b"}
    assert reasons(answers).count(WaitReason.NEVER_FITS) == 40


def test_a_gang_that_fits_is_not_behind_its_namespaces_own_impossible_ones_for_long():
    gangs, memory = [*(a_kind(index) for index in range(12)), a_gang(name="small", gpus=1)], order.Memory()
    passes, again = [], []
    for _ in range(3):
        passes.append(a_pass(gangs, memory)["team-a/small"])
        again.append(memory.again_at == NOW + order.GOES_ON_SECONDS)
    assert [isinstance(answer, Grant) for answer in passes] == [False, False, True]
    assert again == [True, True, False], "the next pass comes by itself while there is something to learn"


def a_pair(index):
    """Return a gang of two podsets that fit eleven nodes of eight one by one, and not together."""
    sizes = (10 - index // 10, 11 - index % 10)
    return a_gang(
        *(a_podset(name=name, count=count, gpus=gpus) for name, count, gpus in zip("ab", sizes, (5, 4), strict=True)),
        name=f"pair-{index:02}",
    )


def test_searches_for_several_podsets_are_bounded_for_a_namespace_and_others_are_served(monkeypatch):
    steps, spend = [], pack.Budget.spend

    def counted(budget):
        steps.append(budget)
        spend(budget)

    monkeypatch.setattr(pack.Budget, "spend", counted)
    policy = dataclasses.replace(POLICY, search_steps=100, queue=QueuePolicy())
    view = a_view(*((f"n{index:02}", 8) for index in range(11)))
    gangs = [*(a_pair(index) for index in range(40)), dataclasses.replace(a_gang(name="b", gpus=8), namespace="team-b")]
    monkeypatch.setattr(admit, "_SMALL_STEPS", 0)
    answers = a_pass(gangs, order.Memory(), view, offers.Layout(policy), policy)
    assert isinstance(answers["team-b/b"], Grant)
    assert WaitReason.BEHIND_OTHERS in reasons(answers)
    assert len(steps) <= (depth.SEARCHES + 4) * policy.search_steps


def test_a_namespace_fills_its_share_of_the_memory_and_no_more(monkeypatch):
    monkeypatch.setattr(prospects, "KEPT_EACH", 3)
    known, (_, ideal) = Prospects(), LAYOUT.supply(VIEW, {})
    many, other = [a_kind(index) for index in range(6)], a_kind(50, "team-b")
    for gang in (*many, other):
        assert known.never(gang, ideal, POLICY) is not None
    assert [known.is_known(signature.of(gang)) for gang in (*many, other)] == [True] * 3 + [False] * 3 + [True]


def test_what_is_asked_for_no_more_makes_room(monkeypatch):
    monkeypatch.setattr(prospects, "KEPT_EACH", 2)
    known, (_, ideal) = Prospects(), LAYOUT.supply(VIEW, {})
    old, new = [a_kind(index) for index in range(3)], [a_kind(index) for index in range(10, 12)]
    for gangs in (old, new, new):
        known.begin(ideal)
        for gang in gangs:
            known.never(gang, ideal, POLICY)
    known.begin(ideal)
    assert [known.is_known(signature.of(gang)) for gang in (*old, *new)] == [False] * 3 + [True] * 2


def test_other_nodes_are_asked_anew():
    layout, memory, gang = offers.Layout(POLICY), order.Memory(), a_kind(0)
    assert a_pass([gang], memory, layout=layout)[gang.full_name].reason is WaitReason.NEVER_FITS
    grown = a_view(("n1", 8), ("n2", 8), ("n3", 8))
    assert isinstance(a_pass([gang], memory, grown, layout)[gang.full_name], Grant)


SHAPES = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=2), max_size=5)


@hypothesis.given(st.lists(st.integers(0, 8), min_size=1, max_size=4), SHAPES)
def test_answers_are_those_of_a_pass_that_remembers_nothing(units, shapes):
    view = a_view(*((f"n{index}", each) for index, each in enumerate(units)))
    gangs = [
        a_gang(
            *(a_podset(name=f"p{n}", count=count, gpus=gpus) for n, (count, gpus) in enumerate(podsets)), name=f"g{i}"
        )
        for i, podsets in enumerate(shapes)
    ]
    memory, layout = order.Memory(), offers.Layout(POLICY)
    first = a_pass(gangs, memory, view, layout)
    assert a_pass(gangs, memory, view, layout) == first == a_pass(gangs, order.Memory(), view, layout)
