"""Read what the kubelet advertises and what it has handed out, over the pod-resources socket.

In: the socket's path. Out: `Known` tuples of planes.DeviceIds and planes.ListedPod, or `Unknown` with a reason of its own
for every way of failing (faults.md H2, H4), so that a socket that was never mounted is told from a kubelet that restarts.

Invariant: an answer is whole or Unknown. In particular ResourceExhausted is never "no pods" (H2), and an answer that does
not parse is `Garbage`, whatever could be salvaged from it.

Entries come sorted: the kubelet walks maps, and two answers that say the same must be equal (sample.py compares them).
A channel that has failed is dropped, so that gRPC's back-off never delays the first look at a restarted kubelet. Each
method has a channel of its own: closing one cancels whatever else is under way on it.

Not here: joining ids to GPUs (core), and whether two answers agree (sample.py).
"""

import asyncio
import pathlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from agent.model import planes
from agent.model.planes import IdTopology
from muster.model.reading import Known, Reading, Unknown
from muster.pb.kubelet.podresources.v1 import podresources_pb2 as pb

T = TypeVar("T")

MAX_RECEIVE_BYTES = 16 * 1024 * 1024
"""faults.md H2: gRPC's own limit of 4 MiB is too small for a node with very many pods."""

DEADLINE_SECONDS = 2.0

_SERVICE = "/v1.PodResourcesLister"

_REASONS: Mapping[grpc.StatusCode, str] = {
    grpc.StatusCode.OK: "Unreachable",
    grpc.StatusCode.CANCELLED: "Cancelled",
    grpc.StatusCode.UNKNOWN: "KubeletError",
    grpc.StatusCode.INVALID_ARGUMENT: "KubeletError",
    grpc.StatusCode.DEADLINE_EXCEEDED: "Deadline",
    grpc.StatusCode.NOT_FOUND: "KubeletError",
    grpc.StatusCode.ALREADY_EXISTS: "KubeletError",
    grpc.StatusCode.PERMISSION_DENIED: "NoPermission",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    grpc.StatusCode.FAILED_PRECONDITION: "KubeletError",
    grpc.StatusCode.ABORTED: "KubeletError",
    grpc.StatusCode.OUT_OF_RANGE: "KubeletError",
    grpc.StatusCode.UNIMPLEMENTED: "Unimplemented",
    grpc.StatusCode.INTERNAL: "KubeletError",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
    grpc.StatusCode.DATA_LOSS: "KubeletError",
    grpc.StatusCode.UNAUTHENTICATED: "NoPermission",
}
"""Every status code; UNAVAILABLE is looked into further, since it hides four different things."""


class PodResources:
    """Client of one kubelet. Never raises for what the other side does."""

    def __init__(self, socket_path: pathlib.Path, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._path = socket_path
        self._deadline = deadline_seconds
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def read_allocatable(self) -> Reading[tuple[planes.DeviceIds, ...]]:
        """Ask for what is advertised, per device and NUMA node."""
        return await self._call("GetAllocatableResources", pb.AllocatableResourcesResponse, devices_from_pb)

    async def read_pods(self) -> Reading[tuple[planes.ListedPod, ...]]:
        """Ask for what is handed out, per pod."""
        return await self._call("List", pb.ListPodResourcesResponse, pods_from_pb)

    async def close(self) -> None:
        """Drop all connections; a later read opens others."""
        for method in tuple(self._channels):
            await self._drop(method)

    async def _drop(self, method: str) -> None:
        channel = self._channels.pop(method, None)
        if channel is not None:
            await channel.close(grace=None)

    async def _call(self, method: str, answer: Callable[[], Any], convert: Callable[[Any], T]) -> Reading[T]:
        missing = _missing(self._path)
        if missing is not None:
            await self._drop(method)
            return missing
        call = self._connected(method).unary_unary(
            f"{_SERVICE}/{method}", request_serializer=None, response_deserializer=None
        )
        try:
            data: bytes = await call(b"", timeout=self._deadline)
        except grpc.aio.AioRpcError as error:
            return await self._failed(method, error)
        except asyncio.CancelledError:
            # Ours to pass on only if we are cancelled; a second call on a channel that the first one dropped gets it too.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Unknown("Cancelled", f"{method}: the connection was dropped")
        message = answer()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            return Unknown("Garbage", f"{method}: {error}")
        return Known(convert(message))

    async def _failed(self, method: str, error: grpc.aio.AioRpcError) -> Unknown:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            await self._drop(method)
            refusal = await asyncio.to_thread(_refusal, self._path)
            if refusal is not None:
                return refusal
        return Unknown(_REASONS[error.code()], f"{method}: {_one_line(error.details())}")

    def _connected(self, method: str) -> grpc.aio.Channel:
        if method not in self._channels:
            options = [
                ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
                ("grpc.enable_http_proxy", 0),
                # The kubelet's Go server checks the :authority header; a path with % signs in it is refused.
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),
            ]
            self._channels[method] = grpc.aio.insecure_channel(f"unix:{self._path}", options=options)
        return self._channels[method]


def devices_from_pb(message: pb.AllocatableResourcesResponse) -> tuple[planes.DeviceIds, ...]:
    """Return the answer's entries, sorted."""
    return _sorted_devices(message.devices)


def pods_from_pb(message: pb.ListPodResourcesResponse) -> tuple[planes.ListedPod, ...]:
    """Return the answer's pods, sorted."""
    pods = (
        planes.ListedPod(
            namespace=pod.namespace,
            name=pod.name,
            containers=tuple(_container(container) for container in sorted(pod.containers, key=lambda item: item.name)),
        )
        for pod in message.pod_resources
    )
    return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))


def _container(message: pb.ContainerResources) -> planes.ListedContainer:
    claims = (_claim(dynamic) for dynamic in message.dynamic_resources)
    return planes.ListedContainer(
        name=message.name,
        devices=_sorted_devices(message.devices),
        claims=tuple(sorted(claims, key=lambda claim: (claim.namespace, claim.name))),
    )


def _claim(message: pb.DynamicResource) -> planes.Claim:
    devices = tuple(
        planes.ClaimDevice(driver=item.driver_name, pool=item.pool_name, device=item.device_name)
        for item in message.claim_resources
    )
    return planes.Claim(namespace=message.claim_namespace, name=message.claim_name, devices=devices)


def _sorted_devices(messages: Any) -> tuple[planes.DeviceIds, ...]:
    return tuple(
        sorted(
            (_device_ids(message) for message in messages),
            key=lambda entry: (entry.resource, entry.ids, entry.numa_nodes),
        )
    )


def _device_ids(message: pb.ContainerDevices) -> planes.DeviceIds:
    """Keep the forms of S7 apart: no topology, node objects without an id (NUMA node 0), ids that say so."""
    resource, ids = message.resource_name, tuple(message.device_ids)
    if not message.HasField("topology"):
        return planes.DeviceIds(resource=resource, ids=ids, topology=IdTopology.ABSENT)
    nodes = tuple(node.ID for node in message.topology.nodes)
    if nodes and not any(nodes):
        return planes.DeviceIds(resource=resource, ids=ids, topology=IdTopology.EMPTY_NODE)
    return planes.DeviceIds(resource=resource, ids=ids, topology=IdTopology.NODES, numa_nodes=nodes)


def _missing(path: pathlib.Path) -> Unknown | None:
    """Tell the ways in which there is nothing to dial (H4)."""
    try:
        if path.exists():
            return None
        if not path.parent.is_dir():
            return Unknown("DirectoryMissing", f"{path.parent} is not there: is it mounted?")
        if not any(path.parent.iterdir()):
            return Unknown("DirectoryEmpty", f"{path.parent} is empty: is the kubelet's directory mounted?")
    except OSError as error:
        return Unknown("NoPermission", f"{path}: {error.strerror}")
    return Unknown("SocketMissing", f"{path} is not there")


def _refusal(path: pathlib.Path) -> Unknown | None:
    """Dial once without gRPC, whose UNAVAILABLE does not say what the kernel answered."""
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(0.5)
        try:
            plain.connect(str(path))
        except ConnectionRefusedError:
            return Unknown("ConnectionRefused", f"{path}: nobody listens")
        except FileNotFoundError:
            return Unknown("SocketMissing", f"{path} is not there")
        except PermissionError:
            return Unknown("NoPermission", f"{path}: not allowed to connect")
        except OSError as error:
            return Unknown("Unavailable", f"{path}: {error.strerror or error}")
    return None


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:200]
