"""All live pods that one Job or JobSet makes, members of the gang or not: whoever suspends it ends every one of them.

Input: the pods of the cluster and the objects above them, at one moment. Output: the pods of an owner.

Invariant: too many rather than too few. A pod that carries a JobSet's label counts for it even where its Job is not known yet.
Pods that are being deleted by somebody's word already are left out.

Why an object for one look: the pods are gone through once for it, and only if somebody asks.
"""

from collections.abc import Callable, Iterable, Mapping

from admitter.core import groups
from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Workloads

SUSPENDABLE = frozenset({"Job", "JobSet"})


class Kin:
    """Good for one look; belongs to one event loop."""

    def __init__(self, pods: Callable[[], Iterable[KubePod]], workloads: Workloads) -> None:
        self._pods, self._workloads = pods, workloads
        self._found: Mapping[str, list[KubePod]] | None = None

    def of(self, owner: Owner, namespace: str) -> tuple[KubePod, ...]:
        """Return the live pods of a Job or JobSet; of anything else none, since nobody suspends it."""
        if owner.kind not in SUSPENDABLE:
            return ()
        if self._found is None:
            self._found = self._index()
        mine = self._found.get(owner.uid, [])
        if owner.kind == "JobSet":
            mine = [*mine, *self._found.get(f"{namespace}/{owner.name}", [])]
        return tuple({pod.uid: pod for pod in mine}.values())

    def _index(self) -> Mapping[str, list[KubePod]]:
        """Return pods by the UID of what makes them, and by namespace/name of their JobSet."""
        found: dict[str, list[KubePod]] = {}
        for pod in self._pods():
            if pod.is_finished or pod.deletion_at is not None:
                continue
            above, mine = groups.owner(pod, self._workloads), pod.controller
            keys = {each.uid for each in (above, mine) if each is not None and each.kind in SUSPENDABLE}
            if pod.labels.get(groups.JOB_SET):
                keys.add(f"{pod.namespace}/{pod.labels[groups.JOB_SET]}")
            for key in keys:
                found.setdefault(key, []).append(pod)
        return found


def version(owner: Owner, namespace: str, workloads: Workloads) -> str | None:
    """Return the resourceVersion of a Job or JobSet as it was last seen; None: it is not there, or has ended."""
    found = workloads.jobs.get(owner.uid) or workloads.job_sets.get(f"{namespace}/{owner.name}")
    return found.resource_version if found is not None and found.uid == owner.uid and not found.is_finished else None
