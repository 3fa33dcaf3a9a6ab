"""The condition `muster.dev/NotStarted`: a pod that we let go and no container of which has started yet.

In: a pod, the pods of the same Job, a bound. Out: whether the condition goes on before the pod is let go, and whether it has
to say now that a container has started.

A Job's `podFailurePolicy` can ignore a failure by it, so that a kubelet's refusal spends no retry. Invariant: of one Job at
most `limit` failures are ignored: past that its pods go without the condition, and the Job's own backoffLimit counts. The
failed pods themselves are the count, so that no leader forgets it. Only a Job's pods carry it: nobody else has such a policy.
"""

from collections.abc import Iterable

from admitter.core import strikes
from admitter.model.cluster import KubePod
from muster.model import kube, labels

AWAITS = "Released"
STARTED = "ContainerStarted"


def is_marked(pod: KubePod) -> bool:
    """Return whether the condition is True."""
    return any(each.type == labels.NOT_STARTED.full and each.status == "True" for each in pod.conditions)


def wants_mark(pod: KubePod, pods: Iterable[KubePod], limit: int) -> bool:
    """Return whether a pod gets the condition before it is let go; `pods` are all that there are."""
    job = pod.controller
    if not limit or job is None or job.kind != "Job" or is_marked(pod):
        return False
    ignored = 0
    for each in pods:
        if each.phase is kube.PodPhase.FAILED and each.controller is not None and each.controller.uid == job.uid:
            ignored += is_marked(each)
    return ignored < limit


def is_over(pod: KubePod) -> bool:
    """Return whether the condition is True and a container has started."""
    return is_marked(pod) and strikes.has_started(pod)
