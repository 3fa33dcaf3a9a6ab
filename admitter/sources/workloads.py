"""The objects above pods, watched: Jobs, JobSets, PodGroups of both kinds, and the namespaces that are ours.

In: an API server. Out: the newest `Workloads`, and whether everything that is served has been listed.

RuntimeClasses are watched beside: they make a place better or worse, so nothing waits for them.

Invariants: a kind that the cluster does not serve, or serves no more, is an empty kind, and is looked for again from time to
time. The native PodGroup is read in every version that is served, under one name once. A number that
an object does not say has the API's own default; an object that says nonsense is left out, so that its pods wait and say so.

Why JobSets and PodGroups without models of their own: they are other projects' kinds, of which a few fields are needed.

Not here: which pods belong to which (core/groups.py).
"""

import asyncio
import collections
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lightkube import generic_resource
from lightkube.resources import batch_v1, core_v1, node_v1

from admitter.model.cluster import Owner
from admitter.model.group import Job, JobSet, PodGroup, ReplicatedJob, Workloads
from admitter.sources import slim
from admitter.sources.apiclient import Api
from admitter.sources.watch import Watch
from muster.model import codec, labels

_JOB_SET = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
_NATIVE = "scheduling.k8s.io"
_POD_GROUP = generic_resource.create_namespaced_resource(_NATIVE, "v1beta1", "PodGroup", "podgroups")
_ALPHA_POD_GROUP = generic_resource.create_namespaced_resource(_NATIVE, "v1alpha2", "PodGroup", "podgroups")
"""Kubernetes 1.36 serves no other; what is read of it has the same fields (staging/src/k8s.io/api/scheduling/v1alpha2)."""
_COSCHEDULING = generic_resource.create_namespaced_resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
_OPTIONAL = (_JOB_SET, _POD_GROUP, _ALPHA_POD_GROUP, _COSCHEDULING)
_IN_ORDER = "InOrder"
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_OWN_CONTROLLERS = ("kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller")
"""What `spec.managedBy` says where nobody else manages it (the Job API's reference; JobSet's v1alpha2 types)."""
_KEYS = (labels.MAX_RUNTIME.full, labels.REPLAN.full)


class Namespace(NamedTuple):
    """A namespace, and whether GPU pods in it are ours without further labels."""

    namespace: str
    is_managed: bool


class Runtime(NamedTuple):
    """A RuntimeClass; it is in no namespace."""

    namespace: str
    name: str
    handler: str


class WorkloadWatch:
    """Belongs to one event loop."""

    def __init__(self, api: Api, monotonic: Callable[[], float]) -> None:
        self._jobs: dict[str, Job] = {}
        self._job_sets: dict[str, JobSet] = {}
        self._pod_groups: dict[str, PodGroup] = {}
        self._alpha_pod_groups: dict[str, PodGroup] = {}
        self._coscheduling: dict[str, PodGroup] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._changed: Callable[[str], None] = lambda _: None

        def watched(
            resource: Any, make: Callable[[Any], Any], table: dict[str, Any], key: Callable[[Any], str]
        ) -> Watch[Any]:
            replaced, changed = self._replacing(table, key), self._changing(table, key)
            return Watch(
                api,
                resource,
                slim=make,
                replaced=replaced,
                changed=changed,
                monotonic=monotonic,
                is_optional=resource in _OPTIONAL,
            )

        self._beside = watched(node_v1.RuntimeClass, runtime, self._runtimes, lambda each: each.name)
        self._all: tuple[Watch[Any], ...] = tuple(
            watched(resource, make, table, key)
            for resource, make, table, key in (
                (batch_v1.Job, job, self._jobs, lambda each: each.uid),
                (_JOB_SET, job_set, self._job_sets, _full_name),
                (_POD_GROUP, native_pod_group, self._pod_groups, _full_name),
                (_ALPHA_POD_GROUP, native_pod_group, self._alpha_pod_groups, _full_name),
                (_COSCHEDULING, coscheduling_pod_group, self._coscheduling, _full_name),
                (core_v1.Namespace, namespace, self._namespaces, lambda each: each.namespace),
            )
        )

    @property
    def is_synced(self) -> bool:
        """Return whether every kind that is served has been listed in full."""
        return all(watch.is_synced or not watch.is_served for watch in self._all)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what stands between us and the API server, one line for each kind that is served."""
        return tuple(watch.problem for watch in self._all if watch.problem and watch.is_served)

    def listen(self, changed: Callable[[str], None]) -> None:
        """Have `changed` called with the namespace of whatever has changed; empty: perhaps all."""
        self._changed = changed

    def workloads(self) -> Workloads:
        """Return the newest state; views that are read at once, not kept."""
        view = types.MappingProxyType
        return Workloads(
            jobs=view(self._jobs),
            job_sets=view(self._job_sets),
            pod_groups=collections.ChainMap(self._pod_groups, self._alpha_pod_groups),
            coscheduling=view(self._coscheduling),
            handlers={each.name: each.handler for each in self._runtimes.values()},
            managed=frozenset(name for name, each in self._namespaces.items() if each.is_managed),
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self._all, self._beside):
                group.create_task(watch.run())

    def _replacing(self, table: dict[str, Any], key: Callable[[Any], str]) -> Callable[[list[Any]], None]:
        def replaced(found: list[Any]) -> None:
            table.clear()
            table.update({key(each): each for each in found})
            self._changed("")

        return replaced

    def _changing(self, table: dict[str, Any], key: Callable[[Any], str]) -> Callable[[Any, bool], None]:
        def changed(value: Any, is_gone: bool) -> None:  # noqa: FBT001 -- the watch's call
            if is_gone:
                table.pop(key(value), None)
            else:
                table[key(value)] = value
            self._changed(value.namespace)

        return changed


def _full_name(each: Any) -> str:
    return f"{each.namespace}/{each.name}"


def job(item: batch_v1.Job) -> Job | None:
    """Return a Job; None if it has no UID."""
    metadata, spec, status = item.metadata, item.spec, item.status
    if metadata is None or not metadata.uid or spec is None:
        return None
    return Job(
        uid=metadata.uid,
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        resource_version=metadata.resourceVersion or "",
        owners=tuple(
            Owner(
                kind=each.kind,
                name=each.name,
                uid=each.uid,
                api_version=each.apiVersion,
                is_controller=bool(each.controller),
            )
            for each in metadata.ownerReferences or ()
        ),
        annotations=_ours(metadata.annotations),
        parallelism=spec.parallelism if spec.parallelism is not None else 1,
        completions=spec.completions,
        is_indexed=spec.completionMode == "Indexed",
        is_suspended=bool(spec.suspend),
        succeeded=(status.succeeded if status is not None else None) or 0,
        backoff_limit=spec.backoffLimit if spec.backoffLimit is not None else 6,
        active_deadline_seconds=spec.activeDeadlineSeconds,
        started_at=slim.moment(status.startTime) if status is not None else None,
        is_finished=any(
            each.type in ("Complete", "Failed") and each.status == "True"
            for each in (status.conditions if status is not None else None) or ()
        ),
        is_managed=_is_managed(metadata.labels, spec.managedBy),
    )


def job_set(item: Any) -> JobSet | None:
    """Return a JobSet; None if it cannot be understood."""
    metadata, spec, status = item.metadata, _object(item.get("spec")), _object(item.get("status"))
    if metadata is None or not metadata.uid:
        return None
    parts = []
    for each in _list(spec.get("replicatedJobs")):
        template = _object(_object(_object(each).get("template")).get("spec"))
        parallelism = _count(template.get("parallelism"), 1)
        parts.append(
            ReplicatedJob(
                name=str(_object(each).get("name", "")),
                replicas=_count(_object(each).get("replicas"), 1),
                pods_per_job=min(parallelism, _count(template.get("completions"), parallelism)),
            )
        )
    depends = any(_object(each).get("dependsOn") for each in _list(spec.get("replicatedJobs")))
    order = _object(spec.get("startupPolicy")).get("startupPolicyOrder")
    return JobSet(
        uid=metadata.uid,
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        resource_version=metadata.resourceVersion or "",
        annotations=_ours(metadata.annotations),
        parts=tuple(parts),
        is_in_order=order == _IN_ORDER or depends,
        is_suspended=bool(spec.get("suspend")),
        is_finished=bool(status.get("terminalState")),
        is_managed=_is_managed(metadata.labels, spec.get("managedBy")),
    )


def native_pod_group(item: Any) -> PodGroup | None:
    """Return a PodGroup of `scheduling.k8s.io`; a policy of single pods wants one."""
    policy = _object(_object(item.get("spec")).get("schedulingPolicy"))
    return _pod_group(item, _count(_object(policy.get("gang")).get("minCount"), 1))


def coscheduling_pod_group(item: Any) -> PodGroup | None:
    """Return a PodGroup of the coscheduling plugin."""
    return _pod_group(item, _count(_object(item.get("spec")).get("minMember"), 1))


def namespace(item: core_v1.Namespace) -> Namespace | None:
    """Return a namespace; None if it has no name."""
    metadata = item.metadata
    if metadata is None or not metadata.name:
        return None
    return Namespace(metadata.name, (metadata.labels or {}).get(labels.MANAGED.full) == "true")


def runtime(item: node_v1.RuntimeClass) -> Runtime | None:
    """Return a RuntimeClass; None if it has no name."""
    metadata = item.metadata
    return Runtime("", metadata.name, item.handler) if metadata is not None and metadata.name else None


def _pod_group(item: Any, count: int) -> PodGroup | None:
    metadata = item.metadata
    if metadata is None or not metadata.name:
        return None
    return PodGroup(namespace=metadata.namespace or "", name=metadata.name, min_count=count)


def _ours(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    return codec.freeze({key: value for key, value in (annotations or {}).items() if key in _KEYS})


def _is_managed(labels_of: Mapping[str, str] | None, manager: object) -> bool:
    """Return whether somebody beside its own controller says when it is suspended."""
    return _KUEUE_QUEUE in (labels_of or {}) or (bool(manager) and manager not in _OWN_CONTROLLERS)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, default: int) -> int:
    """Return a count that another project's object says; its default where it says none or nonsense."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
