"""What keeps a pod from being pinned to a node as it is now."""

import dataclasses

import pytest

from admitter.core import gatescene
from admitter.model.cluster import ANYWHERE, Toleration
from admitter.model.group import Workloads
from admitter.model.hold import Hold
from muster.model import kube, labels
from muster.model.reading import Known, Unknown
from tests.admitter.clusters import TAKEN
from tests.admitter.gatescenes import POLICY, a_look, ready
from tests.admitter.grouppods import a_job, a_job_pod, a_pod

TAINT = kube.Taint(key="maintenance", effect="NoSchedule")


def barrier(nodes, pod=None, *, grants=True):
    pod = pod or a_pod()
    look = dataclasses.replace(a_look([pod], Workloads(), TAKEN), nodes=nodes, grants_on=lambda _: grants)
    return gatescene.barrier(pod, "n1", look)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({}, "is not there"),
        (ready("n1", ready=Known(False)), "is not Ready"),
        (ready("n1", ready=Unknown("Silent")), "is not Ready"),
        (ready("n1", unschedulable=True), "refuses it: cordoned"),
        (ready("n1", taints=(TAINT,)), "refuses it: taint maintenance:NoSchedule"),
        (ready("n1"), ""),
    ],
)
def test_a_node_that_a_scheduler_would_not_take_is_nobodys_place(nodes, words):
    assert barrier(nodes) == words


def test_nor_is_one_that_the_queue_would_not_lease():
    assert "silent, or is closed" in barrier(ready("n1"), grants=False)


def test_what_the_pod_tolerates_and_asks_for_counts():
    may = dataclasses.replace(ANYWHERE, tolerations=(Toleration(key="maintenance", operator="Exists"),))
    assert barrier(ready("n1", taints=(TAINT,)), a_pod(constraints=may)) == ""
    zone = dataclasses.replace(ANYWHERE, node_selector={"zone": "a"})
    assert "selector zone=a" in barrier(ready("n1", labels={"zone": "b"}), a_pod(constraints=zone))


def test_a_jobs_runtime_counts_although_an_earlier_runs_pods_are_kept():
    runs = [a_job(name, annotations={labels.MAX_RUNTIME.full: text}) for name, text in (("r1", "1h"), ("r2", "2h"))]
    marks = {"labels": {labels.GANG.full: "nightly"}, "annotations": {labels.GANG_SIZE.full: "1"}}
    pods = [a_job_pod(0, "r1", phase=kube.PodPhase.SUCCEEDED, **marks), a_job_pod(0, "r2", **marks)]
    look = a_look(pods, Workloads(jobs={job.uid: job for job in runs}), TAKEN)
    scene = gatescene.assemble("team-a/nightly", pods, look, record=None, hold=Hold(), policy=POLICY)
    assert scene.owner_runtime == "2h"
