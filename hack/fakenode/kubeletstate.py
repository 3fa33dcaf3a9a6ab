"""What the fake kubelet knows: its state file, and the events of a kubelet's life as edits of it.

In: a JSON file, replaced as a whole. Out: `KubeletState`, and functions that turn one state into the next the way a
real kubelet would (allocate, free, a plugin that goes or comes, a restart).

Invariant: a file that does not fit raises `Malformed` with the path of the field. A fake that answers something
harmless when it is misread makes tests pass that should not.

The checkpoint is part of the state because a real one is written on three occasions only (faults.md S11): the edits
for those occasions refresh it, the others leave it stale on purpose.

Not here: sockets and gRPC (kubelet.py).
"""

import dataclasses
import enum
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping

from muster.model import codec, jsonform
from muster.model.codec import Malformed

NO_NUMA = -1
"""The checkpoint's key for a device without topology (faults.md S12)."""


class Topology(enum.StrEnum):
    """How a device's place is told; three of the four look empty (faults.md S7)."""

    ABSENT = "absent"
    EMPTY_NODE = "empty_node"
    """One node object without an id: NUMA node 0."""
    NODES = "nodes"
    NO_NODES = "no_nodes"
    """A topology without nodes: the kubelet leaves the device out altogether."""


class FaultKind(enum.StrEnum):
    TOO_LARGE = "too_large"
    UNIMPLEMENTED = "unimplemented"
    SLOW = "slow"
    HANG = "hang"
    GARBAGE = "garbage"
    FLICKER = "flicker"
    """Every second answer lacks its last entry."""
    ERROR = "error"
    """Status UNKNOWN, as when the kubelet's handler returns an error."""


class CheckpointShape(enum.StrEnum):
    FLAT = "flat"
    """Up to 1.19."""
    NUMA = "numa"
    """From 1.20: NUMA node -> ids."""


class SocketState(enum.StrEnum):
    SERVING = "serving"
    REFUSING = "refusing"
    """The file is there and nobody listens, as between two kubelets."""
    ABSENT = "absent"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    id: str
    topology: Topology = Topology.ABSENT
    numa_nodes: tuple[int, ...] = ()
    healthy: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    namespace: str
    name: str
    driver: str
    pool: str
    device: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    devices: Mapping[str, tuple[str, ...]] = codec.mapping()
    """Resource -> ids."""
    claims: tuple[Claim, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    namespace: str
    name: str
    uid: str
    containers: tuple[Container, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: FaultKind
    seconds: float = 0.0
    """Of SLOW."""
    size: int = 0
    """Of TOO_LARGE: the answer is at least that many bytes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    registered: Mapping[str, tuple[str, ...]] = codec.mapping()
    pods: tuple[Pod, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KubeletState:
    """Everything that the fake kubelet answers from."""

    resources: Mapping[str, tuple[Device, ...]] = codec.mapping()
    pods: tuple[Pod, ...] = ()
    list_fault: Fault | None = None
    allocatable_fault: Fault | None = None
    socket: SocketState = SocketState.SERVING
    starts: int = 1
    """Rises with every restart: the socket is made anew."""
    checkpoint: Checkpoint = Checkpoint()
    checkpoint_shape: CheckpointShape = CheckpointShape.NUMA


Edit = Callable[[KubeletState], KubeletState]


def read_state(path: pathlib.Path) -> KubeletState:
    """Return the state; Malformed if the file is not one, OSError if there is none."""
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise Malformed(str(path), str(error)) from error
    state = jsonform.from_json(KubeletState, data)
    _check(state)
    return state


def write_state(path: pathlib.Path, state: KubeletState) -> None:
    """Replace the file as a whole."""
    _check(state)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(jsonform.to_json(state), indent=1))
    fresh.replace(path)


def edit(path: pathlib.Path, *edits: Edit) -> KubeletState:
    """Apply edits to the file in order, as one replacement. One writer at a time."""
    state = read_state(path)
    for change in edits:
        state = change(state)
    write_state(path, state)
    return state


def gpus(
    ids: Iterable[str], *, resource: str = "nvidia.com/gpu", numa_nodes: Mapping[str, int] | None = None
) -> KubeletState:
    """Return a kubelet with one registered resource and no pods; NUMA node 0 takes its empty form."""
    places = numa_nodes or {}
    devices = tuple(_device(id_, places.get(id_)) for id_ in ids)
    return register(resource, devices)(KubeletState())


def register(resource: str, devices: tuple[Device, ...]) -> Edit:
    """The plugin sends its list; the checkpoint is written."""

    def change(state: KubeletState) -> KubeletState:
        resources = codec.freeze({**state.resources, resource: devices})
        return _checkpointed(dataclasses.replace(state, resources=resources))

    return change


def plugin_down(resource: str) -> Edit:
    """The plugin's stream ends: every device is unhealthy at once, the checkpoint keeps its word (A1)."""
    return _with_health(resource, healthy=False, only=None)


def plugin_up(resource: str) -> Edit:
    """The plugin is back and declares everything healthy, without any test (S16)."""
    up = _with_health(resource, healthy=True, only=None)
    return lambda state: _checkpointed(up(state))


def device_unhealthy(resource: str, id_: str) -> Edit:
    """The plugin's list update takes one device out."""
    down = _with_health(resource, healthy=False, only=id_)
    return lambda state: _checkpointed(down(state))


def forget(resource: str) -> Edit:
    """The grace of 5 minutes is over: the resource is dropped (A2)."""

    def change(state: KubeletState) -> KubeletState:
        resources = codec.freeze({name: items for name, items in state.resources.items() if name != resource})
        return _checkpointed(dataclasses.replace(state, resources=resources))

    return change


def allocate(
    namespace: str, name: str, resource: str, ids: Iterable[str], *, uid: str = "", container: str = "main"
) -> Edit:
    """A pod gets devices; the checkpoint is written."""
    held = Container(name=container, devices=codec.freeze({resource: tuple(ids)}))
    pod = Pod(namespace=namespace, name=name, uid=uid or f"uid-{namespace}-{name}", containers=(held,))
    return lambda state: _checkpointed(dataclasses.replace(state, pods=(*state.pods, pod)))


def free(namespace: str, name: str) -> Edit:
    """A pod is gone from List; the checkpoint still names it (S11)."""

    def change(state: KubeletState) -> KubeletState:
        kept = tuple(pod for pod in state.pods if (pod.namespace, pod.name) != (namespace, name))
        return dataclasses.replace(state, pods=kept)

    return change


def restart(state: KubeletState) -> KubeletState:
    """The kubelet starts anew: no device is known until its plugin registers again (S3), pods keep theirs."""
    for resource in state.resources:
        state = plugin_down(resource)(state)
    return dataclasses.replace(state, starts=state.starts + 1)


def with_socket(socket: SocketState) -> Edit:
    """Serve, refuse or be away."""
    return lambda state: dataclasses.replace(state, socket=socket)


def with_faults(*, list_fault: Fault | None = None, allocatable_fault: Fault | None = None) -> Edit:
    """Set both methods' faults; None heals."""
    return lambda state: dataclasses.replace(state, list_fault=list_fault, allocatable_fault=allocatable_fault)


def _device(id_: str, numa_node: int | None) -> Device:
    if numa_node is None:
        return Device(id=id_)
    if numa_node == 0:
        return Device(id=id_, topology=Topology.EMPTY_NODE)
    return Device(id=id_, topology=Topology.NODES, numa_nodes=(numa_node,))


def _with_health(resource: str, *, healthy: bool, only: str | None) -> Edit:
    def change(state: KubeletState) -> KubeletState:
        devices = tuple(
            dataclasses.replace(device, healthy=healthy) if only in (None, device.id) else device
            for device in state.resources[resource]
        )
        return dataclasses.replace(state, resources=codec.freeze({**state.resources, resource: devices}))

    return change


def _checkpointed(state: KubeletState) -> KubeletState:
    registered = {
        resource: tuple(device.id for device in devices if device.healthy)
        for resource, devices in state.resources.items()
    }
    written = Checkpoint(registered=codec.freeze(registered), pods=state.pods)
    return dataclasses.replace(state, checkpoint=written)


def _check(state: KubeletState) -> None:
    for resource, devices in state.resources.items():
        for index, device in enumerate(devices):
            if (device.topology is Topology.NODES) != bool(device.numa_nodes):
                raise Malformed(
                    f"$.resources.{resource}[{index}].numa_nodes", "belongs to topology `nodes`, and only there"
                )
    for name, fault in (("list_fault", state.list_fault), ("allocatable_fault", state.allocatable_fault)):
        if fault is not None and (fault.kind is FaultKind.SLOW) != (fault.seconds > 0):
            raise Malformed(f"$.{name}.seconds", "is above 0 for `slow`, and only there")
        if fault is not None and (fault.kind is FaultKind.TOO_LARGE) != (fault.size > 0):
            raise Malformed(f"$.{name}.size", "is above 0 for `too_large`, and only there")
