"""When a pod carries muster.dev/NotStarted: only a Job's, before it is let go, until a container has started, bounded."""

import dataclasses

import pytest

from admitter.core import notstarted
from admitter.model.cluster import Condition
from muster.model import kube, labels
from tests.admitter.grouppods import a_job_pod, a_pod, rejected

MARK = Condition(type=labels.NOT_STARTED.full, status="True")
RUNNING = (kube.Container(name="main", state=kube.ContainerState.RUNNING),)


def marked(pod, **changes):
    return dataclasses.replace(pod, conditions=(MARK,), **changes)


@pytest.mark.parametrize(
    ("pod", "ignored", "limit", "wants"),
    [
        (a_job_pod(0), 0, 3, True),
        (a_job_pod(0), 2, 3, True),
        (a_job_pod(0), 3, 3, False),
        (a_job_pod(0), 0, 0, False),
        (marked(a_job_pod(0)), 0, 3, False),
        (a_pod(), 0, 3, False),
    ],
)
def test_a_jobs_pod_is_marked_until_enough_were_ignored(pod, ignored, limit, wants):
    assert notstarted.wants_mark(pod, ignored, limit) is wants


def test_a_pod_counts_from_its_mark_on_until_it_has_started():
    assert notstarted.counts(marked(rejected(a_job_pod(0), "n1")))
    assert notstarted.counts(marked(a_job_pod(0))), "it may still be refused"
    assert not notstarted.counts(rejected(a_job_pod(0), "n1"))
    ended = dataclasses.replace(MARK, status="False")
    assert not notstarted.counts(dataclasses.replace(rejected(a_job_pod(0), "n1"), conditions=(ended,)))
    assert not notstarted.counts(marked(a_job_pod(0), phase=kube.PodPhase.SUCCEEDED))


def test_it_is_over_when_a_container_has_started():
    assert not notstarted.is_over(marked(a_job_pod(0)))
    assert not notstarted.is_over(marked(rejected(a_job_pod(0), "n1")))
    assert notstarted.is_over(marked(a_job_pod(0), containers=RUNNING))
    assert not notstarted.is_over(a_job_pod(0, containers=RUNNING))
