"""Pods that start together, as the cluster has them: whose they are, how many there must be, which are there.

Values only; core/groups.py finds them. A `Group` is what the API server says; the `Gang` (model/gang.py) is what is asked
of the queue for those of its members that are still held.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from admitter.model.cluster import KubePod, Owner
from muster.model import codec
from muster.model.reading import Reading


class Source(enum.StrEnum):
    """What says that pods belong together, first that applies first (design.md section 6)."""

    LABEL = "label"
    """`muster.dev/gang`"""
    POD_GROUP = "podgroup"
    """The native `spec.schedulingGroup`."""
    JOB_SET = "jobset"
    LEADER_WORKER_SET = "lws"
    JOB = "job"
    COSCHEDULING = "coscheduling"
    """The label `scheduling.x-k8s.io/pod-group`."""
    POD = "pod"
    """A pod of its own in a managed namespace."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    owners: tuple[Owner, ...] = ()
    annotations: Mapping[str, str] = codec.mapping()
    parallelism: int = 1
    completions: int | None = None
    """None: a work queue, done when one pod says so."""
    is_indexed: bool = False
    is_suspended: bool = False
    succeeded: int = 0
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    started_at: datetime.datetime | None = None
    is_finished: bool = False
    is_managed: bool = False
    """Somebody else says when it is suspended: Kueue, by its label, or whom `spec.managedBy` names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedJob:
    """A part of a JobSet."""

    name: str
    replicas: int = 1
    pods_per_job: int = 1
    """Pods of one replica that run at the same time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobSet:
    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    annotations: Mapping[str, str] = codec.mapping()
    parts: tuple[ReplicatedJob, ...] = ()
    is_in_order: bool = False
    """A part starts only when the one before is ready or done: the parts are never there together."""
    is_suspended: bool = False
    is_finished: bool = False
    is_managed: bool = False
    """As of a Job."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """The native PodGroup, or coscheduling's."""

    namespace: str
    name: str
    min_count: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The objects above pods, as far as gangs depend on them."""

    jobs: Mapping[str, Job] = codec.mapping()
    """By UID."""
    job_sets: Mapping[str, JobSet] = codec.mapping()
    """By namespace/name, like the rest."""
    pod_groups: Mapping[str, PodGroup] = codec.mapping()
    coscheduling: Mapping[str, PodGroup] = codec.mapping()
    handlers: Mapping[str, str] = codec.mapping()
    """Name of a RuntimeClass -> its handler."""
    managed: frozenset[str] = frozenset()
    """Namespaces labelled `muster.dev/managed: "true"`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A pod that is neither finished nor being deleted."""

    pod: KubePod
    podset: str
    index: int = 0
    """Place within its podset where its owner numbers its pods."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    namespace: str
    name: str
    """Of the gang: the label's value, or `SOURCE.NAME` of what the pods belong to."""
    source: Source
    wanted: Reading[int]
    """Members that must be there; those that have done their work count no more. Unknown: what says so is not there."""
    is_exact: bool = True
    """More members than wanted are one group too many; False: `wanted` is a least number."""
    members: tuple[GroupMember, ...]
    """By podset, index and name."""
    ended: tuple[KubePod, ...] = ()
    """Those of the same attempt that have finished and are still to be seen, by name."""
    problems: tuple[str, ...] = ()
    """Why this is no gang whatever happens to its pods, one line each."""

    @property
    def key(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"
