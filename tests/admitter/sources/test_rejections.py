"""What kubelets refuse is heard of once, and by the next leader too."""

import dataclasses
import datetime

import pytest

from admitter.model.cluster import Changes, PodChange
from admitter.sources.rejections import Rejections
from muster.model import labels
from tests.admitter.grouppods import a_pod, rejected

UTC = datetime.datetime(2026, 12, 2, 10, tzinfo=datetime.UTC)
MONOTONIC = 5000.0


class FixedClock:
    def monotonic(self):
        return MONOTONIC

    def utc(self):
        return UTC


class PodsAlone:
    """A cluster of pods, as its watch shows it to those that listen."""

    def __init__(self):
        self._pods, self._listener = {}, None

    def listen(self, listener):
        self._listener = listener

    def pods(self):
        return self._pods

    def put(self, pod):
        before, self._pods[pod.uid] = self._pods.get(pod.uid), pod
        self._listener(Changes(pods=(PodChange(before=before, after=pod),)))

    def remove(self, pod):
        del self._pods[pod.uid]
        self._listener(Changes(pods=(PodChange(before=pod, after=None),)))


@pytest.fixture
def cluster():
    return PodsAlone()


@pytest.fixture
def rejections(cluster):
    return Rejections(cluster, FixedClock(), 3600.0)


def refused(name="trainer-0", *, ago=0, lease="t1-abc-1"):
    pod = a_pod(name, annotations={labels.LEASE.full: lease} if lease else {})
    return dataclasses.replace(rejected(pod, "n1"), reported_at=UTC - datetime.timedelta(seconds=ago))


def test_a_refusal_is_heard_once_with_whose_it_is(cluster, rejections):
    rejections.drain(1)
    cluster.put(a_pod())
    assert rejections.drain(1) == ()
    cluster.put(refused(ago=2))
    cluster.put(dataclasses.replace(refused(ago=2), resource_version="10"))
    (found,) = rejections.drain(1)
    assert (found.node, found.lease_id, found.gang, found.at) == ("n1", "t1-abc-1", "team-a/trainer", MONOTONIC - 2)
    assert (found.pod, found.reason, found.message) == ("team-a/trainer-0", "UnexpectedAdmissionError", "no devices")
    assert rejections.drain(1) == ()


def test_a_pod_that_is_deleted_at_once_is_heard_of_all_the_same(cluster, rejections):
    rejections.drain(1)
    pod = refused()
    cluster.put(pod)
    cluster.remove(pod)
    assert len(rejections.drain(1)) == 1


def test_the_next_leader_hears_of_those_that_are_still_there_oldest_first(cluster, rejections):
    for name, ago in (("trainer-0", 10), ("trainer-1", 3000), ("trainer-2", 4000)):
        cluster.put(refused(name, ago=ago))
    rejections.drain(1)
    assert [found.uid for found in rejections.drain(2)] == ["uid-trainer-1", "uid-trainer-0"]


def test_a_pod_that_failed_while_it_ran_is_no_refusal(cluster, rejections):
    rejections.drain(1)
    cluster.put(dataclasses.replace(refused(), restarts=1))
    cluster.put(dataclasses.replace(refused("trainer-1"), reason="Error"))
    cluster.put(refused("trainer-2", lease=""))
    assert [found.lease_id for found in rejections.drain(1)] == [""], "what others let go is heard of too"
