"""The principles that the catalogue calls P1-P6, each by its id, in mixtures that no entry shows (tests/beside.py)."""

import dataclasses
import re
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known, Unknown
from tests import builders
from tests.beside import (
    A_ON_0,
    EIGHT,
    MIG,
    SETTLED,
    Beside,
    a_cut_node,
    causes,
    each_beside,
    expected,
    node,
    numbers,
)
from tests.builders import WHOLE, a_listed_pod, a_pod


def test_p1_equal_counts_hide_a_swap_and_sets_do_not():
    swapped = a_cut_node("MIG-9-0", "MIG-9-1", "MIG-9-2")
    assert numbers(swapped, name=MIG) == (0, 0, 1.0)


def test_p2_a_fault_is_a_disagreement_between_two_planes_and_says_which():
    report = builders.reports_of(node(Beside(lost=frozenset({6}))), SETTLED)[-1]
    (finding,) = report.resources[WHOLE].findings
    assert (finding.devices, finding.units, finding.rule) == (("GPU-6",), 1, "B2/1")


SETS = st.sets(st.sampled_from(EIGHT), max_size=3)


@hypothesis.given(SETS, SETS, SETS, SETS, st.integers(0, 3), st.integers(0, 8))
def test_p3_the_formula_holds_for_any_sets(lost, used, out, held, waiting, left):
    """P3 and P3a with nothing else wrong: bad, contended, counted out, held and waited for, in any mixture."""
    these = Beside(lost=frozenset(lost), used=frozenset(used - lost), out=frozenset(out))
    held -= out
    listed = tuple(a_listed_pod(f"p{number}", f"GPU-{number}") for number in sorted(held))
    pods = (*(a_pod(f"p{number}") for number in sorted(held)), *((a_pod("w", units=waiting),) if waiting else ()))
    these = dataclasses.replace(these, used=these.used - held)
    observation = node(these, *pods, listed=listed, says=(8, left))
    assert numbers(observation, (0,)) == expected(these, held=held, waiting=waiting, left=left)


def test_p3a_one_bad_id_among_the_free_ones_leaves_nothing_strictly():
    assert numbers(node(Beside(lost=frozenset({6})))) == (0, 7, 1 / 8)
    assert numbers(node(Beside(lost=frozenset({0})), a_pod("a"), listed=A_ON_0)) == (7, 7, 0.0)


@each_beside
def test_p4_a_rise_waits_for_its_second_clean_sample(beside):
    full, freed = node(beside, a_pod("a"), listed=A_ON_0), node(beside)
    history, seen = History(), []
    for at, observation in zip((0, 10, 20, 30), (full, full, freed, freed), strict=True):
        sample = dataclasses.replace(observation, taken_at=builders.after(at))
        history, report = judge.judge(history, sample, Policy(), api_server=True)
        seen.append(builders.numbers_of(report)[WHOLE][2])
    held, free = expected(beside, held=(0,))[1], expected(beside)[1]
    assert seen == [held, held, held, free]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"kubelet": {"started_at": Known(builders.after(-30))}}, "KubeletRestartZeroWindow"),
        ({"boot": Known(planes.Boot(id="b", at=builders.after(-120)))}, "NodeReadyBeforeGpu"),
        ({"plugins": Known(())}, "PluginRepelledByTaint"),
        ({}, "PluginDownAfterGrace"),
    ],
)
def test_p5_the_same_zero_has_the_cause_that_the_clocks_tell(changes, cause):
    zero = node(Beside(out=frozenset(EIGHT)), says=(0, 0), **changes)
    assert causes(builders.reports_of(zero, (0,))[-1]) == {cause}


@each_beside
@pytest.mark.parametrize("plane", ["nvml", "node_object", "pods", "allocatable", "listed"])
def test_p6_a_lost_view_is_blind_and_never_zero(beside, plane):
    unread = Unknown("Garbage")
    observation = node(beside)
    if plane in ("allocatable", "listed"):
        field = {"allocatable": "allocatable", "listed": "pods"}[plane]
        kubelet = Known(dataclasses.replace(observation.kubelet.value, **{field: unread}))
        observation = dataclasses.replace(observation, kubelet=kubelet)
    else:
        observation = dataclasses.replace(observation, **{plane: unread})
    report = builders.reports_of(observation, SETTLED)[-1]
    assert builders.numbers_of(report) == {WHOLE: ("BLIND", None, None, None)}


def test_every_principle_has_a_test_here():
    named = {match[1] for name in dir(sys.modules[__name__]) if (match := re.match(r"test_(p\d+a?)_", name))}
    assert named == {*(f"p{number}" for number in range(1, 7)), "p3a"}
