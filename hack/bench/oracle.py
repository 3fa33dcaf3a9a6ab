"""What must never be while leaders die, told by the pods alone: the oracle of bench-failover.

In: sights of pods, in the order of a watch, and how many GPUs a node has. Out: where more was promised than there is, which
pods a kubelet refused for want of a device, and which gangs have not run whole.

Invariant: it shares nothing with the admitter. A node owes its GPUs to every unfinished pod that was let go with a pin on
it, bound or not: kube-scheduler never binds more to a node than it has, so that the second of two leases on one GPU
shows only as a pod that waits there. Fake nodes have their name for a hostname.
"""

import collections
import dataclasses

from lightkube.models import core_v1 as models
from lightkube.resources import core_v1

from muster.model import labels

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"


@dataclasses.dataclass(slots=True, kw_only=True)
class Seen:
    """One pod as it was last seen."""

    gang: str
    node: str = ""
    """Where it is bound, or the one node that it may go to; empty: neither yet."""
    gpus: int = 1
    is_let_go: bool = False
    is_over: bool = False

    @property
    def promised(self) -> str:
        """The node that owes it its GPUs; empty: none."""
        return self.node if self.is_let_go and not self.is_over else ""


class Oracle:
    """What must never be, by the pods alone."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._pods: dict[str, Seen] = {}
        self.sizes: dict[str, int] = {}
        """Every gang that was submitted."""
        self.double: list[str] = []
        """Nodes that promised more than they have, and pods that found no device."""
        self.let_go: list[float] = []
        """When pods were let go."""
        self.unpinned = 0
        """Pods that were let go to more than one node: what they are promised cannot be seen here."""
        self._finished: collections.Counter[str] = collections.Counter()

    def see(self, uid: str, seen: Seen, *, reason: str = "", now: float) -> None:
        """Take one sight of a pod."""
        before = self._pods.get(uid, Seen(gang=seen.gang))
        self._pods[uid] = seen
        if seen.is_let_go and not before.is_let_go:
            self.let_go.append(now)
            self.unpinned += not seen.node
        if reason and not before.is_over:
            self.double.append(f"{seen.gang} on {seen.node}: {reason}")
        if seen.is_over and not before.is_over and not reason:
            self._finished[seen.gang] += 1
        if seen.promised not in ("", before.promised):
            held = sum(each.gpus for each in self._pods.values() if each.promised == seen.promised)
            if held > self._gpus:
                self.double.append(f"{seen.node}: {held} of {self._gpus}, the last for {seen.gang}")

    def gone(self, uid: str) -> None:
        """A pod is no longer there."""
        self._pods.pop(uid, None)

    def is_done(self, gang: str) -> bool:
        """Return whether every pod of a gang has run to its end."""
        return self._finished[gang] >= self.sizes[gang]

    def lost(self) -> list[str]:
        """Return the gangs that have not run whole."""
        return [
            f"{gang}: {self._finished[gang]} of {size} pods ran"
            for gang, size in self.sizes.items()
            if not self.is_done(gang)
        ]


def sight(pod: core_v1.Pod) -> Seen:
    """Return what the oracle sees of a pod."""
    metadata, spec = pod.metadata, pod.spec
    assert metadata is not None
    assert spec is not None
    limits = [each.resources.limits or {} for each in spec.containers if each.resources is not None]
    return Seen(
        gang=str((metadata.labels or {}).get(labels.GANG.full)),
        node=spec.nodeName or _pin(spec),
        gpus=sum(int(each.get(GPU, "0")) for each in limits),
        is_let_go=not spec.schedulingGates,
        is_over=pod.status is not None and pod.status.phase in ("Succeeded", "Failed"),
    )


def _pin(spec: models.PodSpec) -> str:
    """Return the one node that a pod may go to, by its selector or its affinity; empty: there is none, or there are more."""
    names = {value for key, value in (spec.nodeSelector or {}).items() if key == HOSTNAME}
    affinity = spec.affinity.nodeAffinity if spec.affinity is not None else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity is not None else None
    for term in required.nodeSelectorTerms if required is not None else ():
        for each in (*(term.matchExpressions or ()), *(term.matchFields or ())):
            if each.key in (HOSTNAME, "metadata.name") and each.operator == "In":
                names.update(each.values or ())
    return names.pop() if len(names) == 1 else ""
