"""Put the planes of one observation together: planes -> snapshot.

Input: an Observation, and whether there is an API server. Output: a Snapshot in which ids are joined to units, holders
to pods and processes to owners, everything sorted.

Invariant: whole or not at all, and nothing decided. A side that could not be read stays Unknown in the snapshot; an
absent Node or Pods plane is Unknown too once it is required.

Not here: which pods hold what (podlist.py), and which resource names have a verdict (resourceviews.py).
"""

from agent.core import cgroup, draviews, join, kernel_log, podlist, resourceviews, shape, xidmemory
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.model.snapshot import GpuProcess, ResourceView, Snapshot, Unit
from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown


def assemble(observation: planes.Observation, history: History, policy: Policy, *, api_server: bool) -> Snapshot:
    """Return the snapshot of one observation."""
    kubelet = _kubelet_of(observation)
    gpus, units = _units_of(observation.nvml)
    pods = podlist.bound_pods(observation.pods)
    dra = draviews.standing(observation.dra, history.dra)
    listed = podlist.listed_pods(kubelet, observation.pods, podlist.dra_ids(dra))
    plugins = _plugins_of(observation)
    lookup = join.Units(units, _passthrough(observation.pci))
    resources = resourceviews.views_of(observation, kubelet, dra, listed, pods, lookup, policy, history.resources)
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
        dra=dra,
        pods=pods,
        processes=_processes(gpus, units),
        xids=codec.freeze(
            dict(xidmemory.standing(kernel_log.xids_of(gpus, observation.kernel_log), observation, history))
        ),
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
                instance=instance,
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
