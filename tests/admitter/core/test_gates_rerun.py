"""The same gang once more, while the pods of its first run are kept: a CronJob's, or train-1 and train-2 under one label."""

import dataclasses

import pytest

from admitter.core import gates
from admitter.model.cluster import Owner
from admitter.model.hold import Hold, Open, Withdraw
from muster.model import kube
from tests.admitter.gatescenes import POLICY, a_scene, kinds, released, running
from tests.admitter.grouppods import a_pod


def a_run(job):
    owner = Owner(kind="Job", name=job, uid=f"uid-{job}", is_controller=True)
    return [a_pod(f"{job}-{index}", owners=(owner,)) for index in range(2)]


@pytest.mark.parametrize("kept", [2, 1], ids=["all its pods are kept", "one was removed"])
def test_the_second_run_asks_for_all_of_its_pods_when_the_first_one_is_done(kept):
    pods, where, hold, record = released(a_run("train-1"), ("n1", "n2"))
    pods = [running(pod, where[pod.uid]) for pod in pods]
    hold, _ = gates.step(a_scene(pods, record), hold, POLICY)
    done = [dataclasses.replace(pod, phase=kube.PodPhase.SUCCEEDED) for pod in pods][:kept]
    second = a_run("train-2")
    hold, intents = gates.step(a_scene([*done, *second], record), hold, POLICY)
    assert kinds(intents) == [Withdraw]
    assert intents[0].has_run
    _, intents = gates.step(a_scene([*done, *second]), hold, POLICY)
    assert [intent.gang.pods for intent in intents if isinstance(intent, Open)] == [2]
    _, intents = gates.step(a_scene([*done, second[0]]), Hold(), POLICY)
    assert not [intent for intent in intents if isinstance(intent, Open)], "half of the second run is no gang"
