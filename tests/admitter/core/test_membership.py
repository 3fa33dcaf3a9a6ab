"""Which pods are looked at anew when something above them changes."""

import pytest

from admitter.core.membership import Membership
from admitter.model.group import Workloads
from tests.admitter.grouppods import a_job, a_job_pod, a_pod

JOB = a_job()
PLACED, LOOSE, OTHER = a_pod("placed"), a_job_pod(0), a_pod("other", namespace="team-b")
PODS = {pod.uid: pod for pod in (PLACED, LOOSE, OTHER)}


@pytest.fixture
def membership():
    membership = Membership()
    for pod in PODS.values():
        membership.note(pod, is_gone=False)
    membership.settle(PODS.get, Workloads())
    assert membership.is_settled
    return membership


def stirred(membership, namespace, *, is_time, workloads=None):
    """Return the gangs that are looked at anew once something has changed above the pods of a namespace."""
    if namespace is not None:
        membership.stir(namespace)
    membership.touch_stirred(PODS, lambda _: True, is_time=is_time)
    return membership.settle(PODS.get, workloads or Workloads(jobs={JOB.uid: JOB}))


def test_a_pod_that_waits_for_its_job_to_be_known_does_not_wait_for_the_clock(membership):
    assert stirred(membership, "team-a", is_time=False) == {"team-a/job.train"}


def test_the_others_are_looked_at_once_when_it_is_time(membership):
    stirred(membership, "team-a", is_time=False)
    assert stirred(membership, "team-a", is_time=False) == set()
    assert stirred(membership, None, is_time=True) == {"team-a/trainer", "team-a/job.train"}
    assert stirred(membership, None, is_time=True) == set()


def test_what_may_have_changed_everywhere_is_looked_at_everywhere(membership):
    assert stirred(membership, "", is_time=True) == {"team-a/trainer", "team-a/job.train", "team-b/trainer"}


def test_nobody_else_is_gone_through(membership):
    looked = []

    def concerns(pod):
        looked.append(pod.name)
        return True

    membership.stir("team-b")
    membership.touch_stirred(PODS, concerns, is_time=True)
    assert looked == ["other"]
    membership.note(OTHER, is_gone=True)
    membership.settle({}.get, Workloads())
    membership.stir("team-b")
    membership.touch_stirred({}, concerns, is_time=True)
    assert looked == ["other"]
