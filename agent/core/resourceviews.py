"""One view per resource name that has a verdict: what every plane says of it, ids joined to units.

Input: the planes that name resources, and the lookup of units. Output: ResourceViews, sorted by name.

Invariant: a name has a verdict if its ids join to a GPU, it starts with nvidia.com/, or configuration names it (design.md
section 3). The rest of the node's resources is nobody's business here. Names of DRA drivers: draviews.py.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from agent.core import draviews, join, shape
from agent.model import planes
from agent.model.policy import Policy
from agent.model.snapshot import DeviceId, ListedPod, ResourceView
from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown

T = TypeVar("T")

KEY_ABSENT = Unknown("KeyAbsent", "the Node has no such key, which is not 0")


def views_of(
    observation: planes.Observation,
    kubelet: planes.Kubelet,
    dra: kube.Dra,
    listed: Reading[tuple[ListedPod, ...]],
    pods: Reading[tuple[kube.Pod, ...]],
    lookup: join.Units,
    policy: Policy,
    remembered: Collection[str],
) -> tuple[ResourceView, ...]:
    """Return the views; `remembered` are names that had a verdict before, and keep it while a plane names them."""
    held = _held(listed)
    known = {*policy.resources, *remembered}
    advertised = _advertised(kubelet.allocatable, lookup)
    promised = draviews.views_of(dra, listed, held, _asked(pods, draviews.served(dra, advertised)), lookup, known)
    taken = {view.name for view in promised}
    plugin = _by_plugin(observation, kubelet, advertised, listed, pods, lookup, held, known - taken)
    return tuple(sorted([*promised, *(view for view in plugin if view.name not in taken)], key=lambda view: view.name))


def _by_plugin(
    observation: planes.Observation,
    kubelet: planes.Kubelet,
    advertised: Mapping[str, tuple[DeviceId, ...]],
    listed: Reading[tuple[ListedPod, ...]],
    pods: Reading[tuple[kube.Pod, ...]],
    lookup: join.Units,
    held: Mapping[str, Mapping[str, tuple[str, ...]]],
    known: Collection[str],
) -> tuple[ResourceView, ...]:
    node = observation.node_object
    names = set(advertised) | set(held)
    match node:
        case Known(value):
            names |= set(value.capacity) | set(value.allocatable)
        case Unknown():
            pass
    return tuple(
        ResourceView(
            name=name,
            advertised=_per_name(kubelet.allocatable, tuple(advertised.get(name, ()))),
            held=_per_name(listed, held.get(name, codec.EMPTY)),
            capacity=_count(node, name, "capacity"),
            allocatable=_count(node, name, "allocatable"),
            requests=_requests(pods, name),
        )
        for name in sorted(names)
        if _has_verdict(name, advertised.get(name, ()), held.get(name, codec.EMPTY), lookup, known)
    )


def _has_verdict(
    name: str,
    advertised: Iterable[DeviceId],
    held: Mapping[str, tuple[str, ...]],
    lookup: join.Units,
    known: Collection[str],
) -> bool:
    if name.startswith(shape.PREFIX) or name in known:
        return True
    joined = (*advertised, *(join.join(text, lookup) for text in held))
    return any(device.unit is not None for device in joined)


def _advertised(
    allocatable: Reading[tuple[planes.DeviceIds, ...]], lookup: join.Units
) -> dict[str, tuple[DeviceId, ...]]:
    texts: dict[str, set[str]] = {}
    match allocatable:
        case Known(entries):
            # One entry per device per NUMA node: distinct ids only (faults.md S6).
            for entry in entries:
                texts.setdefault(entry.resource, set()).update(entry.ids)
        case Unknown():
            pass
    return {name: tuple(join.join(text, lookup) for text in sorted(ids)) for name, ids in texts.items()}


def _held(listed: Reading[tuple[ListedPod, ...]]) -> dict[str, Mapping[str, tuple[str, ...]]]:
    holders: dict[str, dict[str, set[str]]] = {}
    match listed:
        case Known(pods):
            for pod in pods:
                for name, ids in pod.ids.items():
                    for text in ids:
                        holders.setdefault(name, {}).setdefault(text, set()).add(pod.full_name)
        case Unknown():
            pass
    return {
        name: codec.freeze({text: tuple(sorted(pods)) for text, pods in by_id.items()})
        for name, by_id in holders.items()
    }


def _per_name(plane: Reading[Any], value: T) -> Reading[T]:
    match plane:
        case Known():
            return Known(value)
        case Unknown() as unread:
            return unread


def _count(node: Reading[kube.NodeObject], name: str, field: str) -> Reading[int]:
    match node:
        case Known(value):
            counts: Mapping[str, int] = value.capacity if field == "capacity" else value.allocatable
            return Known(max(0, counts[name])) if name in counts else KEY_ABSENT
        case Unknown() as unread:
            return unread


def _requests(pods: Reading[tuple[kube.Pod, ...]], name: str) -> Reading[Mapping[str, int]]:
    return _asked(pods, (name,))


def _asked(pods: Reading[tuple[kube.Pod, ...]], names: Collection[str]) -> Reading[Mapping[str, int]]:
    """Return pod UID -> units asked for under any of the names."""
    match pods:
        case Known(items):
            asked = {pod.uid: sum(requested(pod, name) for name in names) for pod in items}
            return Known(codec.freeze({uid: units for uid, units in asked.items() if units > 0}))
        case Unknown() as unread:
            return unread


def requested(pod: kube.Pod, name: str) -> int:
    """Return the pod's effective request: its own figure, or the larger of app and init containers."""
    if name in pod.requests:
        return max(0, pod.requests[name])
    per_kind: dict[kube.ContainerKind, list[int]] = {kind: [0] for kind in kube.ContainerKind}
    for container in pod.containers:
        per_kind[container.kind or kube.ContainerKind.APP].append(max(0, container.requests.get(name, 0)))
    sidecars = sum(per_kind[kube.ContainerKind.SIDECAR])
    return sidecars + max(sum(per_kind[kube.ContainerKind.APP]), *per_kind[kube.ContainerKind.INIT])
