"""Does a pod wait for what its own rollout holds? A surge makes the new pod before it ends the old one.

Input: the pods of a group that waits, those of the same rollouts that are bound, what it lacks. Output: what to say, or
nothing.

Invariant: it is said only where the old pods hold all that is lacking: then the rollout cannot go on until somebody changes
it, whatever else becomes free later.

Why pods and not Deployments: the pod's owner and its template hash say which rollout and which side of it, and no right to read
every kind of rollout is needed.
"""

import dataclasses
from collections.abc import Callable, Iterable

from admitter.model.cluster import KubePod

TEMPLATE_HASH = "pod-template-hash"
LWS = "leaderworkerset.sigs.k8s.io/name"
LWS_REVISION = "leaderworkerset.sigs.k8s.io/template-revision-hash"
_CURES = {
    "Deployment": "spec.strategy.rollingUpdate: maxSurge 0 and maxUnavailable 1, or strategy Recreate",
    "LeaderWorkerSet": "spec.rolloutStrategy.rollingUpdateConfiguration: maxSurge 0 and maxUnavailable 1",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What makes pods of one revision after another."""

    namespace: str
    kind: str
    name: str


def rollout(pod: KubePod) -> tuple[Rollout, str] | None:
    """Return whose a pod is, and of which revision; None: of nothing that surges."""
    if pod.labels.get(LWS) and pod.labels.get(LWS_REVISION):
        return Rollout(namespace=pod.namespace, kind="LeaderWorkerSet", name=pod.labels[LWS]), pod.labels[LWS_REVISION]
    owner, revision = pod.controller, pod.labels.get(TEMPLATE_HASH, "")
    # The name that the Deployment's controller gives its ReplicaSets.
    if owner is not None and owner.kind == "ReplicaSet" and revision and owner.name.endswith(f"-{revision}"):
        return Rollout(
            namespace=pod.namespace, kind="Deployment", name=owner.name.removesuffix(f"-{revision}")
        ), revision
    return None


class Bound:
    """The pods of rollouts that are on nodes, as the cluster changes. Belongs to one event loop."""

    def __init__(self) -> None:
        self._uids: dict[Rollout, set[str]] = {}

    def note(self, before: KubePod | None, after: KubePod | None) -> None:
        """Take one change of a pod."""
        for pod, is_there in ((before, False), (after, True)):
            found = rollout(pod) if pod is not None and pod.node else None
            if found is None or pod is None:
                continue
            mine = self._uids.setdefault(found[0], set())
            if is_there:
                mine.add(pod.uid)
            else:
                mine.discard(pod.uid)
            if not mine:
                del self._uids[found[0]]

    def of(self, whose: Rollout) -> frozenset[str]:
        """Return the UIDs of a rollout's pods."""
        return frozenset(self._uids.get(whose, ()))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the other revisions of a rollout hold of a resource."""

    units: int
    names: tuple[str, ...]


class Holdings:
    """What rollouts hold, each gone through once: a rollout of thousands of pods has as many groups that wait. For one look."""

    def __init__(self, bound: Callable[[Rollout], Iterable[KubePod]]) -> None:
        """`bound` may return pods of other rollouts."""
        self._bound = bound
        self._found: dict[tuple[Rollout, str, str], Held] = {}

    def beside(self, whose: Rollout, revision: str, resource: str) -> Held:
        """Return what the pods of all revisions but this one hold."""
        key = (whose, revision, resource)
        if key not in self._found:
            units = {
                pod.name: pod.requests.get(resource, 0)
                for pod in self._bound(whose)
                if pod.node and not pod.is_finished and (found := rollout(pod)) is not None
                if found[0] == whose and found[1] != revision and pod.requests.get(resource, 0)
            }
            self._found[key] = Held(units=sum(units.values()), names=tuple(sorted(units)))
        return self._found[key]


def self_blocked(waiting: Iterable[KubePod], holdings: Holdings, resource: str, lacking: int) -> str:
    """Return why a group waits for itself, and what cures it; empty: it does not.

    `lacking` are the units of the resource that the group needs beside what is free.
    """
    mine = {found for pod in waiting if (found := rollout(pod)) is not None}
    if len(mine) != 1 or lacking <= 0:
        return ""
    ((whose, revision),) = mine
    held = holdings.beside(whose, revision, resource)
    if held.units < lacking:
        return ""
    names = held.names
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{whose.kind} {whose.name} waits for {lacking} {resource} that its own older pods hold "
        f"({', '.join(names[:3])}{more}); what lets them go first: {_CURES[whose.kind]}"
    )
