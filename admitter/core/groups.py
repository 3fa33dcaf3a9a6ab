"""Find the group that a pod belongs to, and say how many members it must have.

Input: pods and the objects above them. Output: `Place` for a pod, `Group` for the pods of one key.

Invariant: a pod belongs to one group, by the first marker that applies in the order of `Source`; the same pod and the same
objects give the same group, whatever other pods exist. How many members there must be comes from the object that makes
them, never from how many there are; where that object is not there the number is Unknown, and nothing starts.

Why pods that have succeeded are subtracted: a gang whose first member is done is still that gang, one seat smaller. Those that
an earlier run under the same name has left (a CronJob's) are not: the run that is there now needs every one of its own.

Not here: what the members ask for (grouprequest.py), and when they may start (gates.py).
"""

import dataclasses
from collections.abc import Callable, Iterable

from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Group, GroupMember, JobSet, Source, Workloads
from muster.model import kube, labels
from muster.model.reading import Known, Reading, Unknown

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_SET_JOB = "jobset.sigs.k8s.io/job-index"
JOB_SET_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
LWS = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
COSCHEDULING = "scheduling.x-k8s.io/pod-group"
LWS_DEFAULT_SIZE = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The group that a pod belongs to, and its place in it."""

    namespace: str
    name: str
    source: Source
    podset: str = labels.DEFAULT_PODSET
    index: int = 0
    attempt: int = 0
    """Of an owner that restarts all its pods together: only those of the newest attempt are members."""

    @property
    def key(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


def place(pod: KubePod, workloads: Workloads) -> Place | None:
    """Return the group of a pod; None: it belongs to nobody's gang."""
    for finder in _FINDERS:
        found = finder(pod, workloads)
        if found is not None:
            return found
    return None


def group(of: Place, pods: Iterable[KubePod], workloads: Workloads) -> Group:
    """Return the group of a key from all pods that have that place, in any order."""
    placed = [(found, pod) for pod in pods if (found := place(pod, workloads)) is not None and found.key == of.key]
    newest = max((found.attempt for found, _ in placed), default=0)
    current = [(found, pod) for found, pod in placed if found.attempt == newest]
    if of.source in _REUSED:
        left_over = _left_over([pod for _, pod in current], workloads)
        current = [(found, pod) for found, pod in current if pod.uid not in left_over]
    members = sorted(
        (
            GroupMember(pod=pod, podset=found.podset, index=found.index)
            for found, pod in current
            if not pod.is_finished and pod.deletion_at is None
        ),
        key=lambda member: (member.podset, member.index, member.pod.name, member.pod.uid),
    )
    done = sum(pod.phase is kube.PodPhase.SUCCEEDED for _, pod in current)
    sources = sorted({found.source for found, _ in current})
    wanted = _WANTED[of.source](of, [pod for _, pod in current], workloads, done)
    problems = list(_label_problems([pod for _, pod in current])) if of.source is Source.LABEL else []
    if len(sources) > 1:
        problems.append(f"two groups have the name {of.name}: by {' and by '.join(sources)}")
    is_exact = of.source not in (Source.POD_GROUP, Source.COSCHEDULING)
    if is_exact and isinstance(wanted, Known) and len(members) > wanted.value:
        problems.append(f"{len(members)} pods, and {wanted.value} belong to it: two groups under one name?")
    return Group(
        namespace=of.namespace,
        name=of.name,
        source=of.source,
        wanted=wanted,
        is_exact=is_exact,
        members=tuple(members),
        ended=tuple(sorted((pod for _, pod in current if pod.is_finished), key=lambda pod: (pod.name, pod.uid))),
        problems=tuple(problems),
    )


def _left_over(pods: list[KubePod], workloads: Workloads) -> frozenset[str]:
    """Return the pods that an earlier run under the same name has left: succeeded, and no kin of any pod that is there now.

    Kin is who has the same maker or was let go under the same lease, and their kin. A pod that nobody makes has a lease alone,
    and who replaces one has none yet: those count as kin for as long as there is room for them in the gang's size.
    """
    live = [pod for pod in pods if not pod.is_finished and pod.deletion_at is None]
    left = {pod.uid: (pod, _marks(pod, workloads)) for pod in pods if pod.is_finished}
    if not live or not left:
        return frozenset()
    known = {mark for pod in live for mark in _marks(pod, workloads)}
    while near := [uid for uid, (_, marks) in left.items() if marks & known]:
        known.update(mark for uid in near for mark in left.pop(uid)[1])
    succeeded = [pod for pod, _ in left.values() if pod.phase is kube.PodPhase.SUCCEEDED]
    bare = {pod.uid for pod in succeeded if pod.controller is None}
    done = sum(pod.phase is kube.PodPhase.SUCCEEDED for pod in pods) - len(succeeded) + len(bare)
    sizes = [size for pod in live if isinstance(size := _size(pod), int)]
    has_room = len(live) + done <= max(sizes, default=len(live) + done)
    return frozenset(pod.uid for pod in succeeded if not (has_room and pod.uid in bare))


def _marks(pod: KubePod, workloads: Workloads) -> set[str]:
    makers = {maker.uid for maker in (pod.controller, owner(pod, workloads)) if maker is not None}
    return makers | ({lease} if (lease := pod.annotations.get(labels.LEASE.full)) else set())


def empty(key: str) -> Group:
    """Return the group of a gang of which no pod is left."""
    namespace, _, name = key.partition("/")
    return Group(namespace=namespace, name=name, source=Source.LABEL, wanted=Known(0), members=())


def owner(pod: KubePod, workloads: Workloads) -> Owner | None:
    """Return the topmost object that makes the pod, as far as it is known; None: a bare pod."""
    mine = pod.controller
    if mine is None or mine.kind != "Job" or mine.uid not in workloads.jobs:
        return mine
    above = next((each for each in workloads.jobs[mine.uid].owners if each.is_controller), None)
    return above if above is not None and above.kind == "JobSet" else mine


# -- whose a pod is, in the order of Source


def _by_label(pod: KubePod, _workloads: Workloads) -> Place | None:
    name = pod.labels.get(labels.GANG.full)
    if not name:
        return None
    return Place(
        namespace=pod.namespace,
        name=name,
        source=Source.LABEL,
        podset=pod.labels.get(labels.PODSET.full) or labels.DEFAULT_PODSET,
        index=_number(pod.labels.get(JOB_INDEX) or pod.annotations.get(JOB_INDEX)),
        attempt=_number(pod.labels.get(JOB_SET_ATTEMPT)),
    )


def _by_pod_group(pod: KubePod, _workloads: Workloads) -> Place | None:
    if not pod.scheduling_group:
        return None
    return _part(pod, Source.POD_GROUP, pod.scheduling_group, index=_number(pod.labels.get(JOB_INDEX)))


def _by_job_set(pod: KubePod, workloads: Workloads) -> Place | None:
    name = pod.labels.get(JOB_SET)
    if not name:
        return None
    part = pod.labels.get(JOB_SET_PART) or labels.DEFAULT_PODSET
    owner = workloads.job_sets.get(f"{pod.namespace}/{name}")
    index = _number(pod.labels.get(JOB_SET_JOB)) * 1_000_000 + _number(pod.labels.get(JOB_INDEX))
    return dataclasses.replace(
        _part(pod, Source.JOB_SET, f"{name}.{part}" if owner is not None and owner.is_in_order else name, index=index),
        podset=part,
        attempt=_number(pod.labels.get(JOB_SET_ATTEMPT)),
    )


def _by_leader_worker_set(pod: KubePod, _workloads: Workloads) -> Place | None:
    name = pod.labels.get(LWS)
    if not name:
        return None
    worker = _number(pod.labels.get(LWS_WORKER))
    found = _part(pod, Source.LEADER_WORKER_SET, f"{name}.{pod.labels.get(LWS_GROUP, '0')}", index=worker)
    return dataclasses.replace(found, podset="worker" if worker else "leader")


def _by_job(pod: KubePod, workloads: Workloads) -> Place | None:
    owner = pod.controller
    job = workloads.jobs.get(owner.uid) if owner is not None and owner.kind == "Job" else None
    if job is None:
        return None
    is_gang = job.is_indexed and job.completions == job.parallelism and job.parallelism > 1
    if not is_gang and pod.namespace not in workloads.managed:
        return None
    return _part(pod, Source.JOB, job.name, index=_number(pod.labels.get(JOB_INDEX)))


def _by_coscheduling(pod: KubePod, _workloads: Workloads) -> Place | None:
    name = pod.labels.get(COSCHEDULING)
    return _part(pod, Source.COSCHEDULING, name) if name else None


def _alone(pod: KubePod, workloads: Workloads) -> Place | None:
    return _part(pod, Source.POD, pod.name) if pod.namespace in workloads.managed else None


_FINDERS: tuple[Callable[[KubePod, Workloads], Place | None], ...] = (
    _by_label,
    _by_pod_group,
    _by_job_set,
    _by_leader_worker_set,
    _by_job,
    _by_coscheduling,
    _alone,
)


def _part(pod: KubePod, source: Source, name: str, index: int = 0) -> Place:
    return Place(namespace=pod.namespace, name=f"{source}.{name}", source=source, index=index)


def _number(text: str | None) -> int:
    """Return a count that others wrote; 0 for anything else, as for a pod that was not numbered.

    >>> _number("3"), _number(None), _number("-1"), _number("x")
    (3, 0, 0, 0)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0


# -- how many there must be


def _wanted_by_label(_of: Place, pods: list[KubePod], _workloads: Workloads, done: int) -> Reading[int]:
    sizes = {size for pod in pods if isinstance(size := _size(pod), int)}
    if len(sizes) != 1:
        return Unknown(f"no pod says one {labels.GANG_SIZE.full} for all")
    return Known(max(0, sizes.pop() - done))


def _wanted_by_pod_group(of: Place, _pods: list[KubePod], workloads: Workloads, done: int) -> Reading[int]:
    found = workloads.pod_groups.get(_object(of))
    return Known(max(0, found.min_count - done)) if found is not None else Unknown("its PodGroup is not there")


def _wanted_by_job_set(of: Place, pods: list[KubePod], workloads: Workloads, done: int) -> Reading[int]:
    name = next((pod.labels[JOB_SET] for pod in pods), "")
    owner = workloads.job_sets.get(f"{of.namespace}/{name}")
    if owner is None:
        return Unknown("its JobSet is not there")
    return Known(max(0, _seats(owner, of.podset if owner.is_in_order else "") - done))


def _wanted_by_leader_worker_set(_of: Place, pods: list[KubePod], _workloads: Workloads, _done: int) -> Reading[int]:
    sizes = {_number(pod.annotations.get(LWS_SIZE)) or LWS_DEFAULT_SIZE for pod in pods}
    return Known(sizes.pop()) if len(sizes) == 1 else Unknown(f"its pods differ in {LWS_SIZE}")


def _wanted_by_job(_of: Place, pods: list[KubePod], workloads: Workloads, _done: int) -> Reading[int]:
    owners = {owner.uid for pod in pods if (owner := pod.controller) is not None}
    job = workloads.jobs.get(next(iter(owners))) if len(owners) == 1 else None
    if job is None:
        return Unknown("its Job is not there")
    left = job.parallelism if job.completions is None else min(job.parallelism, job.completions - job.succeeded)
    return Known(max(0, left))


def _wanted_by_coscheduling(of: Place, _pods: list[KubePod], workloads: Workloads, done: int) -> Reading[int]:
    found = workloads.coscheduling.get(_object(of))
    return Known(max(0, found.min_count - done)) if found is not None else Unknown("its PodGroup is not there")


def _wanted_alone(_of: Place, _pods: list[KubePod], _workloads: Workloads, done: int) -> Reading[int]:
    return Known(1 - min(1, done))


_REUSED = frozenset({Source.LABEL, Source.POD_GROUP, Source.COSCHEDULING})
"""What names a group by a word alone, which the next run may have as well."""
_WANTED: dict[Source, Callable[[Place, list[KubePod], Workloads, int], Reading[int]]] = {
    Source.LABEL: _wanted_by_label,
    Source.POD_GROUP: _wanted_by_pod_group,
    Source.JOB_SET: _wanted_by_job_set,
    Source.LEADER_WORKER_SET: _wanted_by_leader_worker_set,
    Source.JOB: _wanted_by_job,
    Source.COSCHEDULING: _wanted_by_coscheduling,
    Source.POD: _wanted_alone,
}


def _object(of: Place) -> str:
    return f"{of.namespace}/{of.name.removeprefix(f'{of.source}.')}"


def _seats(owner: JobSet, part: str) -> int:
    return sum(each.replicas * each.pods_per_job for each in owner.parts if part in ("", each.name))


def _size(pod: KubePod) -> int | str:
    """Return the size that a pod says its gang has, or what is wrong with it."""
    text = pod.annotations.get(labels.GANG_SIZE.full)
    low, high = labels.GANG_SIZE_RANGE
    if text is None:
        return f"{labels.GANG_SIZE.full}: is required"
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if number is None or not low <= number <= high:
        return f"{labels.GANG_SIZE.full}: {text[:32]!r} is not a number in {low}..{high}"
    return number


def _label_problems(pods: list[KubePod]) -> Iterable[str]:
    sizes = {_size(pod) for pod in pods}
    yield from sorted(size for size in sizes if isinstance(size, str))
    numbers = sorted(size for size in sizes if isinstance(size, int))
    if len(numbers) > 1:
        yield f"{labels.GANG_SIZE.full}: its pods say {' and '.join(map(str, numbers[:4]))}"
