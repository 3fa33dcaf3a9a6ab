"""How many pods of a podset every node can take, and why a node takes none.

Input: a podset and a supply, less what the same plan has already used. Output: Rooms, one number a row; for one row, the
Exclusion that says why it has none.

Invariant: units come from `strict`; `lenient` serves only a gang of one restartable pod. Replicas serve only the class
`shared`. A level is held only if every device that the kubelet may pick satisfies it. A node that refuses the pod, or has
no pod slot, cpu, memory or other resource left for it, has no room.

Why one function for both questions: admit.py searches with `rooms` and checks a standing lease with `rooms`, so that a
final check can never be weaker than the search (kueue#14437).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from admitter.core.supply import Supply
from admitter.core.table import Mask, Numbers, Table, Traits
from admitter.model.gang import Gang, GpuRequest, Level, MigRequest, PodClass, Podset, ResourceRequest
from admitter.model.lease import Placement
from admitter.model.nodefacts import POD_SLOTS

Limits = Mapping[tuple[str, str, str], int]
Used = Mapping[str, Numbers]
"""Resource -> units that the same plan has taken, by row."""
NOTHING_USED: Used = {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A podset in the terms that `rooms` needs."""

    podset: Podset
    resource: str
    """The resource that is asked for, in words for a person where several may serve."""
    takes_risk: bool
    level: str
    """The level that must hold; empty: none."""
    is_wishful: bool
    """Only nodes that fit all that the pod or the node would rather have."""

    @property
    def is_one_device(self) -> bool:
        """True if there is nothing to be joined to."""
        return self.podset.count * self.podset.units_per_pod == 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One resource that may serve a podset, by row."""

    resource: str
    pods: Numbers
    """Most pods on it, whatever else the pods ask for."""
    units: Numbers
    """Units it has left, in whole pods or not, on rows that may use it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What the rows have for a podset, smallest shape first."""

    options: tuple[Option, ...]
    pods: Numbers
    units: Numbers


def question(gang: Gang, podset: Podset, gpu_resource: str, level: str, *, is_wishful: bool = False) -> Question:
    """Return the question that a podset puts to every node."""
    match podset.request:
        case GpuRequest():
            resource = gpu_resource
        case ResourceRequest(name=name):
            resource = name
        case MigRequest(compute_slices=slices):
            resource = f"MIG {slices}g"
    return Question(
        podset=podset,
        resource=resource,
        takes_risk=podset.pod_class is PodClass.RESTARTABLE and gang.pods == 1,
        level=level,
        is_wishful=is_wishful,
    )


def rooms(
    asked: Question,
    supply: Supply,
    used: Used = NOTHING_USED,
    *,
    rows: Numbers | None = None,
    limits: Limits | None = None,
) -> Rooms:
    """Return what the rows (all, or only `rows`, in that order) have for the podset.

    `limits` are the most pods of (podset, node, resource), for a check of given places.
    """
    table = supply.table
    where = slice(None) if rows is None else rows
    count = len(table.names) if rows is None else len(rows)
    options = tuple(_option(asked, table, name, used, where, limits) for name in candidates(asked, table))
    nothing = np.zeros(count, dtype=np.int64)
    may = _may(asked, table, where, count)
    pods = np.where(may, sum((option.pods for option in options), nothing), 0)
    units = sum((option.units for option in options), nothing)
    for resource, need in beside(asked, table):
        # A pod may name resources without end that no node has: the first of them settles it.
        if not pods.any():
            break
        left = table.column(resource)[where] - _used(used, resource, where)
        pods = np.minimum(pods, np.maximum(left, 0) // need)
    return Rooms(options=options, pods=pods, units=np.where(may, units, 0))


def candidates(asked: Question, table: Table) -> list[str]:
    """Return the resources that may serve, smallest shape first."""
    if not isinstance(asked.podset.request, MigRequest):
        return [asked.resource] if asked.resource in table.units else []
    sizes = {
        resource: (int(traits.slices.max(initial=0)), int(traits.memory.max(initial=0)), resource)
        for resource, traits in table.traits.items()
        if traits.slices.any()
    }
    return sorted(sizes, key=sizes.__getitem__)


def beside(asked: Question, table: Table) -> Iterator[tuple[str, int]]:
    """Yield what each pod takes beside its devices, if there is an API server to say what is left of it."""
    if table.marks is None:
        return
    for resource, need in asked.podset.requests.items():
        if need > 0 and resource not in (asked.resource, POD_SLOTS):
            yield resource, need
    yield POD_SLOTS, 1


def place(asked: Question, supply: Supply, resource: str, row: int, pods: int, first: int) -> Placement:
    """Return pods of the podset on one resource of a row, of which the same plan has taken the `first` units."""
    name, each = supply.table.names[row], asked.podset.units_per_pod
    offer = supply.nodes[name].offers.get(resource)
    return Placement(
        podset=asked.podset.name,
        node=name,
        resource=resource,
        pods=pods,
        units_per_pod=each,
        forecast=offer.devices[first : first + pods * each] if offer is not None else (),
    )


def usable(asked: Question, table: Table, resource: str) -> Mask:
    """Return the rows whose offer of a resource the podset may use, whatever its size."""
    traits = table.traits.get(resource)
    if traits is None:
        # Nobody's agent knows it: the API server's arithmetic is all there is.
        return table.column(resource) > 0
    may = traits.is_reported.copy()
    match asked.podset.request:
        case GpuRequest():
            may &= traits.is_whole
        case MigRequest(compute_slices=slices, min_memory_bytes=memory):
            may &= (traits.slices >= slices) & (traits.memory >= memory) & (traits.slices > 0)
        case ResourceRequest():
            may |= ~traits.is_reported & (table.column(resource) > 0)
    if asked.podset.pod_class is not PodClass.SHARED:
        may &= ~traits.is_shared
    return may


def _option(
    asked: Question, table: Table, resource: str, used: Used, where: slice | Numbers, limits: Limits | None
) -> Option:
    each = asked.podset.units_per_pod
    may = (usable(asked, table, resource) & holds_level(asked, table, resource))[where]
    left = table.column(resource, takes_risk=asked.takes_risk)[where] - _used(used, resource, where)
    units = np.where(may, np.maximum(left, 0), 0)
    pods = units // each
    traits = table.traits.get(resource)
    if traits is not None and traits.numa_size.any():
        pods = np.minimum(pods, _aligned(traits, each, where, _used(used, resource, where)))
    if limits is not None:
        most = np.zeros(len(table.names), dtype=np.int64)
        for (podset, node, name), count in limits.items():
            if podset == asked.podset.name and name == resource and node in table.row:
                most[table.row[node]] = count
        pods = np.minimum(pods, most[where])
    return Option(resource=resource, pods=pods, units=units)


def holds_level(asked: Question, table: Table, resource: str) -> Mask:
    """Return the rows on which every device that the kubelet may pick lies in one domain of the asked level."""
    everywhere = np.ones(len(table.names), dtype=np.bool_)
    traits = table.traits.get(resource)
    if asked.level not in (Level.ISLAND, Level.CLIQUE) or asked.is_one_device:
        return everywhere
    if traits is None:
        return ~everywhere
    joined = traits.has_island
    if asked.podset.count == 1:
        # The kubelet itself keeps one pod within a NUMA node, whichever that is.
        joined = joined | (traits.has_numa_islands & (traits.numa_size >= asked.podset.units_per_pod))
    if asked.level == Level.CLIQUE:
        joined = joined | (traits.clique >= 0)
    # MIG instances have no path to each other (topology.md section 3).
    return joined & traits.is_whole


def _aligned(traits: Traits, each: int, where: slice | Numbers, used: Numbers | int) -> Numbers:
    """Return the most pods that the kubelet lets in, where its Topology Manager refuses pods over too many NUMA nodes."""
    size, numa = traits.numa_size[where], np.maximum(traits.numa[where] - np.expand_dims(used, -1), 0)
    within = (numa // each).sum(axis=1)
    # More than one NUMA node holds: it must be as few as the machine allows, and then they must be wholly free.
    spans = -(-each // np.maximum(size, 1))
    across = (numa >= size[:, None]).sum(axis=1) // np.maximum(spans, 1)
    aligned = np.where(spans <= 1, within, np.where(traits.is_single_numa[where], 0, across))
    return np.where(size > 0, aligned, np.iinfo(np.int64).max)


def _may(asked: Question, table: Table, where: slice | Numbers, count: int) -> Mask:
    if table.marks is None:
        return np.ones(count, dtype=np.bool_)
    may = table.marks.refused(asked.podset.constraints) < 0
    if asked.is_wishful:
        may = may & table.marks.wished(asked.podset.constraints)
    return may[where]


def _used(used: Used, resource: str, where: slice | Numbers) -> Numbers | int:
    return used[resource][where] if resource in used else 0


def has_wishes(asked: Sequence[Question], table: Table) -> bool:
    """Return whether there is anything that a pod or a node would rather have."""
    marks = table.marks
    return marks is not None and any(not marks.wished(question.podset.constraints).all() for question in asked)
