"""A fall shows at once, a rise after the second clean sample (faults.md P4)."""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import jsonform
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE

HEALTHY = builders.a_node()
LOST = builders.with_gpus(HEALTHY, builders.a_lost_gpu(3))
UNREAD = dataclasses.replace(HEALTHY, kubelet=Unknown("Unimplemented"))
FEWER = builders.a_node(
    kubelet=builders.a_kubelet({WHOLE: tuple(f"GPU-{n}" for n in range(8))}, (builders.a_listed_pod("a", "GPU-0"),))
)


def run(*states, restart_at=None):
    """Return (strict, lenient, verdict) after each of these states, five seconds apart."""
    history, answers = History(), []
    for index, state in enumerate(states):
        if index == restart_at:
            history = jsonform.from_json(History, jsonform.to_json(history))
        observation = dataclasses.replace(state, taken_at=builders.after(5 * index))
        history, report = judge(history, observation, Policy(), api_server=True)
        resource = report.resources[WHOLE]
        answers.append((number(resource.admit_strict), number(resource.admit_lenient), resource.verdict.value))
    return answers


def number(reading):
    return reading.value if isinstance(reading, Known) else None


def test_the_first_sample_is_the_baseline():
    assert run(HEALTHY) == [(8, 8, "OK")]
    assert run(LOST) == [(0, 7, "TRANSIENT")]


def test_a_fall_shows_at_the_first_sample():
    assert run(HEALTHY, LOST)[1] == (0, 7, "TRANSIENT")


def test_a_rise_after_a_fault_waits_for_a_second_clean_sample():
    assert run(LOST, HEALTHY, HEALTHY) == [(0, 7, "TRANSIENT"), (0, 7, "TRANSIENT"), (8, 8, "OK")]


def test_a_rise_because_a_pod_ended_waits_too_and_is_no_fault():
    assert run(FEWER, HEALTHY, HEALTHY) == [(7, 7, "OK"), (7, 7, "OK"), (8, 8, "OK")]


def test_a_failed_read_in_between_confirms_nothing():
    assert run(LOST, HEALTHY, UNREAD, HEALTHY, HEALTHY) == [
        (0, 7, "TRANSIENT"),
        (0, 7, "TRANSIENT"),
        (None, None, "BLIND"),
        (0, 0, "TRANSIENT"),
        (8, 8, "OK"),
    ]


def test_a_rise_goes_no_higher_than_what_both_samples_showed():
    assert [strict for strict, _, _ in run(LOST, FEWER, HEALTHY, HEALTHY)] == [0, 0, 7, 8]


@pytest.mark.parametrize("restart_at", range(1, 5))
def test_a_restart_at_any_point_changes_nothing(restart_at):
    states = (HEALTHY, LOST, UNREAD, HEALTHY, HEALTHY)
    assert run(*states, restart_at=restart_at) == run(*states)


def test_a_resource_that_appears_later_rises_from_nothing():
    bare = builders.a_node(0, node_object=builders.a_node_object({}), plugins=Known(()))
    history, _ = judge(History(), bare, Policy(), api_server=True)
    answers = []
    for seconds in (5, 10):
        observation = dataclasses.replace(HEALTHY, taken_at=builders.after(seconds))
        history, report = judge(history, observation, Policy(), api_server=True)
        answers.append(report.resources[WHOLE].admit_strict)
    assert answers == [Known(0), Known(8)]
