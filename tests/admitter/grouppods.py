"""Pods, Jobs and groups as the API server would have them, changed in one place at a time."""

import dataclasses

from admitter.core import groups
from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Job, Workloads
from muster.model import kube, labels

GATE = labels.GANG.full
GPU = "nvidia.com/gpu"


def a_pod(name="trainer-0", **changes):
    """Return a held pod of the gang `trainer` of two, on eight GPUs."""
    facts = {
        "uid": f"uid-{name}",
        "namespace": "team-a",
        "name": name,
        "resource_version": "1",
        "phase": kube.PodPhase.PENDING,
        "labels": {labels.GANG.full: "trainer"},
        "annotations": {labels.GANG_SIZE.full: "2"},
        "gates": (GATE,),
        "requests": {GPU: 8, "cpu": 4000},
    }
    return KubePod(**{**facts, **changes})


def a_job(name="train", **changes):
    """Return an Indexed Job of four pods."""
    facts = {"uid": f"uid-{name}", "namespace": "team-a", "name": name, "parallelism": 4, "completions": 4}
    return Job(**{**facts, "is_indexed": True, **changes})


def a_job_pod(index, job="train", **changes):
    """Return a pod of a Job, with no label of ours."""
    owner = Owner(kind="Job", name=job, uid=f"uid-{job}", api_version="batch/v1", is_controller=True)
    facts = {
        "labels": {groups.JOB_INDEX: str(index)},
        "annotations": {},
        "owners": (owner,),
        "uid": f"uid-{job}-{index}",
    }
    return a_pod(f"{job}-{index}", **{**facts, **changes})


def a_group(pods, workloads=None):
    """Return the group that the first of the pods belongs to."""
    workloads = workloads or Workloads()
    return groups.group(groups.place(pods[0], workloads), pods, workloads)


def rejected(pod, node, reason="UnexpectedAdmissionError"):
    """Return a released pod that the kubelet of a node refused."""
    return dataclasses.replace(
        pod, node=node, gates=(), phase=kube.PodPhase.FAILED, reason=reason, message="no devices", resource_version="9"
    )
