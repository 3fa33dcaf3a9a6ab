"""The names of the gang that a pod may belong to, from the pod's own object alone.

In: a Pod as the API server writes it. Out: every name that a gang of it can have (docs/gates.md, "What is held").

Invariant: the name that the admitter gives the pod's gang (admitter/core/groups.py, a test compares them) is among these.
There may be more: which marker counts depends on objects above the pod, and whoever asks here may not be able to read them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from muster.model import labels

_JOB_SET = "jobset.sigs.k8s.io/jobset-name"
_JOB_SET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
_LWS = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_COSCHEDULING = "scheduling.x-k8s.io/pod-group"


def of_pod(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the names.

    >>> sorted(of_pod({"metadata": {"name": "a", "labels": {"muster.dev/gang": "train"}}}))
    ['pod.a', 'train']
    """
    return frozenset(_names(pod))


def _names(pod: Mapping[str, Any]) -> Iterator[str]:
    metadata = pod.get("metadata", {})
    marks: Mapping[str, str] = metadata.get("labels") or {}
    if name := marks.get(labels.GANG.full):
        yield name
    if group := (pod.get("spec", {}).get("schedulingGroup") or {}).get("podGroupName"):
        yield f"podgroup.{group}"
    if name := marks.get(_JOB_SET):
        yield f"jobset.{name}"
        yield f"jobset.{name}.{marks.get(_JOB_SET_PART) or labels.DEFAULT_PODSET}"
    if name := marks.get(_LWS):
        yield f"lws.{name}.{marks.get(_LWS_GROUP, '0')}"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "Job":
            yield f"job.{owner.get('name')}"
    if name := marks.get(_COSCHEDULING):
        yield f"coscheduling.{name}"
    yield f"pod.{metadata.get('name', '')}"
