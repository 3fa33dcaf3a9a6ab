"""The names of a pod's gang, from its object alone: the admitter's name is always among them."""

import pytest

from admitter.core import groups
from admitter.model.cluster import Owner
from admitter.model.group import Job, Workloads
from muster.model import gangnames
from tests.admitter.grouppods import a_pod

JOB = Owner(kind="Job", name="train", uid="job-1", is_controller=True)
WORKLOADS = Workloads(jobs={"job-1": Job(uid="job-1", namespace="team-a", name="train")}, managed=frozenset({"team-a"}))

CASES = {
    "label": {"labels": {"muster.dev/gang": "g"}},
    "pod group": {"scheduling_group": "g"},
    "jobset": {"labels": {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "w"}},
    "lws": {"labels": {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "2"}},
    "job": {"owners": (JOB,)},
    "coscheduling": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "alone": {},
    "label and job": {"labels": {"muster.dev/gang": "g"}, "owners": (JOB,)},
}


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES.keys())
def test_the_admitters_name_is_among_them(fields):
    pod = a_pod("p-0", namespace="team-a", **fields)
    place = groups.place(pod, WORKLOADS)
    assert place is not None
    assert place.name in gangnames.of_pod(form(pod))


def form(pod):
    """The pod as the API server writes it."""
    return {
        "metadata": {
            "name": pod.name,
            "labels": dict(pod.labels),
            "ownerReferences": [
                {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": owner.is_controller}
                for owner in pod.owners
            ],
        },
        "spec": {"schedulingGroup": {"podGroupName": pod.scheduling_group}} if pod.scheduling_group else {},
    }
