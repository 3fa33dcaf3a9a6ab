"""The cluster as the API server has it: slim, frozen values of Nodes, Pods and what DRA offers.

sources/cluster.py makes them at the door and serves them as a `Cluster`: what is not a field here is not kept. 40,000 pods
must not cost gigabytes, so equal parts (labels, requests, constraints) are shared between the pods of a gang.

    cluster.pods()[uid], cluster.pods_on(node), cluster.nodes()[name]
    cluster.listen(callback)              # called once for each batch of changes, in the event loop; must not block

Invariant: values never change; a changed object is a new value with a new `resource_version`. Pods are one by UID. What
the cluster says is complete as of some moment or not there at all: before `is_synced` nothing may be concluded from an
absent pod.

Not here: what an agent is told (core/slices.py) and gangs.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from muster.model import codec, kube


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner reference."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    is_controller: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a pod or node, whole."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    key: str = ""
    """Empty: every taint."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty: every effect."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One requirement on a node's label, or on its name where it stands among `fields`."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt, Lt"""
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerm:
    """One term of a node affinity: all of it must hold."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()
    weight: int = 0
    """Of a preferred term."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Where a pod may go, as far as Nodes decide it."""

    node_selector: Mapping[str, str] = codec.mapping()
    required: tuple[NodeTerm, ...] = ()
    """Required node affinity: one of these must hold; empty: there is none."""
    preferred: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    unmodelled: tuple[str, ...] = ()
    """Fields of the pod that bear on its place and are not in here, by name, sorted: `podAffinity`, `hostPorts`."""


ANYWHERE = Constraints()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a pod of the GPU stack was told: a device plugin, or the manager of MIG layouts."""

    settings: Mapping[str, str] = codec.mapping()
    """Variable -> value, of those that say how GPUs are shared and cut; a flag stands for its variable."""
    folders: Mapping[str, str] = codec.mapping()
    """Where a ConfigMap is mounted -> its name, in the pod's namespace."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KubePod:
    """A Pod object. Finished pods are kept while the API server keeps them."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    node: str = ""
    """Where it is bound; empty: nowhere yet."""
    phase: kube.PodPhase
    reason: str = ""
    message: str = ""
    created_at: datetime.datetime | None = None
    deletion_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    """When its kubelet took notice of it."""
    reported_at: datetime.datetime | None = None
    """When its kubelet last wrote its status, as the API server recorded it."""
    labels: Mapping[str, str] = codec.mapping()
    annotations: Mapping[str, str] = codec.mapping()
    """Without those that only kubectl reads."""
    gates: tuple[str, ...] = ()
    """Scheduling gates that are still on it, in its order."""
    owners: tuple[Owner, ...] = ()
    scheduler: str = ""
    scheduling_group: str = ""
    """Name of the native PodGroup (`spec.schedulingGroup`), in the pod's namespace."""
    priority: int = 0
    priority_class: str = ""
    requests: Mapping[str, int] = codec.mapping()
    """What the scheduler counts for the pod, every resource: cpu in thousandths, the rest in whole units or bytes."""
    constraints: Constraints = ANYWHERE
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    nominated_node: str = ""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[kube.Container, ...] = ()
    """Their `requests` hold extended resources only."""
    images: tuple[str, ...] = ()
    """Of its app containers, as the spec names them."""
    init_images: tuple[str, ...] = ()
    """Of its init containers and sidecars."""
    unpulled_images: tuple[str, ...] = ()
    """Those that every container that names them wants never pulled, sorted."""
    runtime_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    """Names of its image pull secrets, sorted."""
    restarts: int = 0
    """Of its app containers, together."""
    serves_devices: bool = False
    """It mounts the kubelet's device-plugins folder and may write there: a device plugin."""
    last_words: str = ""
    """Of a device plugin: how its container ended before the present one."""
    told: Told | None = None
    """Of device plugins and managers of MIG layouts only."""
    manages_mig: bool = False
    """It cuts GPUs as the node's label asks."""

    @property
    def full_name(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"

    @property
    def is_finished(self) -> bool:
        """A finished pod holds nothing."""
        return self.phase in (kube.PodPhase.SUCCEEDED, kube.PodPhase.FAILED)

    @property
    def controller(self) -> Owner | None:
        """Return the owner that makes and replaces it."""
        return next((owner for owner in self.owners if owner.is_controller), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """A Node object."""

    name: str
    uid: str
    resource_version: str
    object: kube.NodeObject
    """What its agent is told of it."""
    conditions: tuple[Condition, ...] = ()
    """Whole, with messages; heartbeats are left out, so that they make no new value."""
    allocatable: Mapping[str, int] = codec.mapping()
    """`status.allocatable`, every resource, in the units of KubePod.requests."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KubeSlice:
    """A ResourceSlice of one node."""

    name: str
    node: str
    content: kube.DraSlice


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """A pod before and after; None: not there."""

    before: KubePod | None
    after: KubePod | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One batch, in no order."""

    nodes: frozenset[str] = frozenset()
    """Names of Nodes that came, changed or went."""
    pods: tuple[PodChange, ...] = ()


Listener: TypeAlias = Callable[[Changes], None]


class Cluster(Protocol):
    """The newest known state of everything."""

    @property
    def is_synced(self) -> bool:
        """Return whether Nodes and Pods have been listed in full since the process began."""

    def age(self) -> float:
        """Return for how many seconds nothing has been known for sure; 0 while both watches stand."""

    def nodes(self) -> Mapping[str, KubeNode]:
        """Return all Nodes by name; a view that is read at once, not kept."""

    def pods(self) -> Mapping[str, KubePod]:
        """Return all Pods by UID; a view that is read at once, not kept."""

    def pod(self, uid: str) -> KubePod | None:
        """Return one pod."""

    def pods_on(self, node: str) -> tuple[KubePod, ...]:
        """Return the pods bound to a node, by name."""

    def listen(self, listener: Listener) -> None:
        """Have every batch of changes told, from now on."""
