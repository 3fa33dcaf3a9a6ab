"""The condition `muster.dev/NotStarted`: a pod that we let go and no container of which has started yet.

In: a pod, how many of its Job have failed under the condition or still may, a bound. Out: whether the condition goes on before the pod is let go, and whether it has
to say now that a container has started.

A Job's `podFailurePolicy` can ignore a failure by it, so that a kubelet's refusal spends no retry. Invariant: of one Job at
most `limit` failures are ignored: past that its pods go without the condition, and the Job's own backoffLimit counts. The
pods themselves are the count, so that no leader forgets it; one that carries the condition counts before it fails, since
pods that are let go together can all fail together. Only a Job's pods carry it: nobody else has such a policy.
"""

from admitter.core import strikes
from admitter.model.cluster import KubePod
from muster.model import kube, labels

AWAITS = "Released"
STARTED = "ContainerStarted"


def is_marked(pod: KubePod) -> bool:
    """Return whether the condition is True."""
    return any(each.type == labels.NOT_STARTED.full and each.status == "True" for each in pod.conditions)


def job_of(pod: KubePod) -> str:
    """Return the UID of the Job that makes a pod; empty: no Job does."""
    owner = pod.controller
    return owner.uid if owner is not None and owner.kind == "Job" else ""


def counts(pod: KubePod) -> bool:
    """Return whether a pod has failed under the condition, as far as its Job can see, or still may."""
    return is_marked(pod) and pod.phase is not kube.PodPhase.SUCCEEDED


def wants_mark(pod: KubePod, others: int, limit: int) -> bool:
    """Return whether a pod gets the condition before it is let go; so many others of its Job count."""
    return bool(job_of(pod)) and not is_marked(pod) and others < limit


def is_over(pod: KubePod) -> bool:
    """Return whether the condition is True and a container has started."""
    return is_marked(pod) and strikes.has_started(pod)
