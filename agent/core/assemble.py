"""Put the planes of one observation together: planes -> snapshot.

Input: an Observation, and whether there is an API server. Output: a Snapshot in which ids are joined to units, holders
to pods and processes to owners, everything sorted.

Invariant: whole or not at all, and nothing decided. A side that could not be read stays Unknown in the snapshot; an
absent Node or Pods plane is Unknown too once it is required.

Why names decide last: a resource has a verdict if its ids join to a GPU, its name starts with nvidia.com/, or
configuration names it (design.md section 3); the rest of the node's resources is nobody's business here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from agent.core import cgroup, join, shape
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.model.snapshot import DeviceId, GpuProcess, ListedPod, ResourceView, Snapshot, Unit
from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown

T = TypeVar("T")

KEY_ABSENT = Unknown("KeyAbsent", "the Node has no such key, which is not 0")


def assemble(observation: planes.Observation, history: History, policy: Policy, *, api_server: bool) -> Snapshot:
    """Return the snapshot of one observation."""
    kubelet = _kubelet_of(observation)
    gpus, units = _units_of(observation.nvml)
    pods = _bound_pods(observation.pods)
    listed = _listed_pods(kubelet, observation.pods)
    plugins = _plugins_of(observation)
    lookup = join.Units(units, _passthrough(observation.pci))
    resources = _resources(observation, kubelet, listed, pods, lookup, policy)
    return Snapshot(
        node=observation.node,
        now=observation.taken_at,
        api_server=api_server or _was_there(observation, history),
        observation=observation,
        nvml=observation.nvml,
        allocatable=kubelet.allocatable,
        listed=listed,
        checkpoint=kubelet.checkpoint,
        kubelet_started_at=kubelet.started_at,
        units=units,
        gpus=gpus,
        resources=resources,
        pods=pods,
        processes=_processes(gpus, units),
        plugins=plugins,
        mig_strategy=_strategy(observation, plugins, resources),
    )


def _was_there(observation: planes.Observation, history: History) -> bool:
    return (
        history.node_object_seen
        or history.pods_seen
        or isinstance(observation.node_object, Known)
        or isinstance(observation.pods, Known)
    )


def _kubelet_of(observation: planes.Observation) -> planes.Kubelet:
    match observation.kubelet:
        case Known(kubelet):
            return kubelet
        case Unknown() as unread:
            return planes.Kubelet(started_at=unread, allocatable=unread, pods=unread, checkpoint=unread)


def _units_of(nvml: Reading[planes.Nvml]) -> tuple[tuple[planes.Gpu, ...], tuple[Unit, ...]]:
    match nvml:
        case Unknown():
            return (), ()
        case Known(value):
            # A UUID that is listed twice is one GPU; the sort makes the choice independent of the order.
            gpus = {gpu.uuid: gpu for gpu in sorted(value.devices, key=repr)}
    units: dict[str, Unit] = {}
    for gpu in gpus.values():
        if gpu.error:
            continue
        units[gpu.uuid] = Unit(uuid=gpu.uuid, parent=gpu.uuid, gpu=gpu)
        for instance in sorted(instances_of(gpu), key=repr):
            units[instance.uuid] = Unit(
                uuid=instance.uuid,
                parent=gpu.uuid,
                gi=instance.gi,
                ci=instance.ci,
                profile=shape.spelled(instance.profile),
                gpu=gpu,
            )
    return tuple(gpus[uuid] for uuid in sorted(gpus)), tuple(units[uuid] for uuid in sorted(units))


def instances_of(gpu: planes.Gpu) -> tuple[planes.MigInstance, ...]:
    """Return the GPU's MIG instances; none where the mode is off or could not be read."""
    match gpu.mig:
        case Known(mig):
            return mig.instances if mig.current else ()
        case Unknown():
            return ()


def _bound_pods(pods: Reading[tuple[kube.Pod, ...]]) -> Reading[tuple[kube.Pod, ...]]:
    match pods:
        case Known(items):
            by_uid = {pod.uid: pod for pod in sorted(items, key=repr) if not pod.is_finished}
            return Known(tuple(by_uid[uid] for uid in sorted(by_uid)))
        case Unknown() as unread:
            return unread


def _listed_pods(kubelet: planes.Kubelet, pods: Reading[tuple[kube.Pod, ...]]) -> Reading[tuple[ListedPod, ...]]:
    match kubelet.pods:
        case Unknown() as unread:
            return unread
        case Known(items):
            pass
    api: Mapping[str, list[kube.Pod]] = {}
    match pods:
        case Known(bound):
            api = _by_name(bound)
        case Unknown():
            pass
    held_by_uid = _checkpoint_ids(kubelet.checkpoint)
    result = [_listed_pod(item, api.get(item.full_name, []), held_by_uid) for item in items]
    return Known(tuple(sorted((pod for pod in result if pod is not None), key=repr)))


def _by_name(pods: Iterable[kube.Pod]) -> dict[str, list[kube.Pod]]:
    result: dict[str, list[kube.Pod]] = {}
    for pod in pods:
        result.setdefault(pod.full_name, []).append(pod)
    return result


def _listed_pod(
    item: planes.ListedPod, candidates: list[kube.Pod], held_by_uid: Mapping[str, frozenset[str]]
) -> ListedPod | None:
    """None for a pod that has finished: it holds nothing (faults.md E1)."""
    if item.uid:
        candidates = [pod for pod in candidates if pod.uid == item.uid]
    if candidates and all(pod.is_finished for pod in candidates):
        return None
    ids: dict[str, set[str]] = {}
    for container in item.containers:
        for devices in container.devices:
            ids.setdefault(devices.resource, set()).update(devices.ids)
    uids = {pod.uid for pod in candidates if not pod.is_finished} or ({item.uid} if item.uid else set())
    if len(uids) > 1:
        everything = set().union(*ids.values()) if ids else set()
        # Two pods of one name: the checkpoint's UID decides, else both stay (design.md section 3).
        uids = {uid for uid in uids if held_by_uid.get(uid, frozenset()) & everything} or uids
    return ListedPod(
        full_name=item.full_name,
        uids=tuple(sorted(uids)),
        ids=codec.freeze({name: tuple(sorted(values)) for name, values in ids.items() if values}),
    )


def _checkpoint_ids(checkpoint: Reading[planes.Checkpoint]) -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    match checkpoint:
        case Known(value):
            for entry in value.pods:
                result[entry.uid] = result.get(entry.uid, frozenset()) | frozenset(entry.ids)
        case Unknown():
            pass
    return result


def _plugins_of(observation: planes.Observation) -> tuple[kube.Plugin, ...]:
    match observation.plugins:
        case Known(plugins):
            own = (item for item in plugins if item.resource_prefix in ("", shape.PREFIX.rstrip("/")))
            return tuple(sorted(own, key=repr))
        case Unknown():
            return ()


def _passthrough(pci: Reading[tuple[planes.PciFunction, ...]]) -> frozenset[str]:
    """Return the IOMMU groups, as a passthrough plugin spells them, that are bound to vfio (faults.md S17, F4)."""
    groups: set[str] = set()
    match pci:
        case Known(functions):
            for item in functions:
                if isinstance(item.iommu_group, Known) and (item.driver or "").startswith("vfio"):
                    groups.add(str(item.iommu_group.value))
        case Unknown():
            pass
    return frozenset(groups)


def _strategy(
    observation: planes.Observation, plugins: tuple[kube.Plugin, ...], resources: tuple[ResourceView, ...]
) -> str:
    for plugin in plugins:
        if plugin.config.get("migStrategy"):
            return plugin.config["migStrategy"]
    match observation.node_object:
        case Known(node) if node.labels.get("nvidia.com/mig.strategy"):
            return node.labels["nvidia.com/mig.strategy"]
        case _:
            pass
    if any(shape.profile_of(view.name) and view.ids() for view in resources):
        return "mixed"
    whole = [device for view in resources if shape.is_whole(view.name) for device in view.ids()]
    return "single" if any(join.looks_like_mig(device.uuid) for device in whole) else ""


def _resources(
    observation: planes.Observation,
    kubelet: planes.Kubelet,
    listed: Reading[tuple[ListedPod, ...]],
    pods: Reading[tuple[kube.Pod, ...]],
    lookup: join.Units,
    policy: Policy,
) -> tuple[ResourceView, ...]:
    node = observation.node_object
    advertised = _advertised(kubelet.allocatable, lookup)
    held = _held(listed)
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
        if _has_verdict(name, advertised.get(name, ()), held.get(name, codec.EMPTY), lookup, policy)
    )


def _has_verdict(
    name: str,
    advertised: Iterable[DeviceId],
    held: Mapping[str, tuple[str, ...]],
    lookup: join.Units,
    policy: Policy,
) -> bool:
    if name.startswith(shape.PREFIX) or name in policy.resources:
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
    match pods:
        case Known(items):
            asked = {pod.uid: requested(pod, name) for pod in items}
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


def _processes(gpus: tuple[planes.Gpu, ...], units: tuple[Unit, ...]) -> tuple[GpuProcess, ...]:
    result: list[GpuProcess] = []
    for gpu in gpus:
        match gpu.processes:
            case Known(processes):
                own = tuple(unit for unit in units if unit.parent == gpu.uuid)
                result.extend(_process(process, gpu, own) for process in processes)
            case Unknown():
                pass
    return tuple(sorted(result, key=repr))


def _process(process: planes.Process, gpu: planes.Gpu, own: tuple[Unit, ...]) -> GpuProcess:
    instances = tuple(unit for unit in own if unit.is_mig)
    if process.gi is not None:
        exact = tuple(unit for unit in instances if unit.gi == process.gi and process.ci in (None, unit.ci))
        instances = exact or instances
    touched = instances or own
    owner: Reading[str]
    match process.cgroup:
        case Known(path):
            owner = cgroup.owner_of(path)
        case Unknown() as unread:
            owner = unread
    return GpuProcess(
        pid=process.pid,
        name=process.name,
        used_bytes=process.used_bytes,
        gpu=gpu.uuid,
        units=tuple(unit.uuid for unit in touched),
        owner=owner,
    )
