"""The fake kubelet: a real pod-resources server on a real unix socket, and a real checkpoint file.

In: the state file of kubeletstate.py, looked at before every answer and every `LOOK_SECONDS`. Out: what a kubelet in that
state answers to List and GetAllocatableResources, bit for bit where the forms are irregular (faults.md S6, S7, S12), and
its faults.

Invariant: a state file that cannot be read ends the server with `Malformed`; no call is answered from an older state.

In a process: `python -m hack.fakenode.kubelet --state F --socket S --checkpoint C`. In a test: `async with FakeKubelet(...)`.
Handlers return bytes, not messages, because a garbled answer cannot be said in messages.
"""

import argparse
import asyncio
import contextlib
import json
import pathlib
import signal
import socket as sockets
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Self

import grpc
import grpc.aio

from hack.fakenode import kubeletstate
from hack.fakenode.kubeletstate import CheckpointShape, Device, Fault, FaultKind, KubeletState, SocketState, Topology
from muster.model.codec import Malformed
from muster.pb.kubelet.podresources.v1 import podresources_pb2 as pb

LOOK_SECONDS = 0.05

_GARBAGE = b"\xff\xff\xff\xffthis is not a message"
_PADDING = "p" * 2000


def allocatable(state: KubeletState, call: int) -> bytes:
    """Return the answer to the n-th GetAllocatableResources."""
    devices = [
        entry
        for resource, items in state.resources.items()
        for device in items
        if device.healthy
        for entry in entries(resource, device)
    ]
    fault = state.allocatable_fault
    if _flickers(fault, call):
        devices = devices[:-1]
    if fault is not None and fault.kind is FaultKind.TOO_LARGE:
        count = fault.size // len(_PADDING) + 1
        devices += [pb.ContainerDevices(resource_name="example.com/pad", device_ids=[_PADDING]) for _ in range(count)]
    return pb.AllocatableResourcesResponse(devices=devices).SerializeToString()


def pods(state: KubeletState, call: int) -> bytes:
    """Return the answer to the n-th List."""
    known = {device.id: device for items in state.resources.values() for device in items}
    listed = [_pod(pod, known) for pod in state.pods]
    fault = state.list_fault
    if _flickers(fault, call):
        listed = listed[:-1]
    if fault is not None and fault.kind is FaultKind.TOO_LARGE:
        count = fault.size // len(_PADDING) + 1
        listed += [pb.PodResources(namespace="pad", name=f"{index}-{_PADDING}") for index in range(count)]
    return pb.ListPodResourcesResponse(pod_resources=listed).SerializeToString()


def entries(resource: str, device: Device) -> list[pb.ContainerDevices]:
    """Return one entry per NUMA node of a device, each with the single id (faults.md S6)."""
    if device.topology is Topology.NO_NODES:
        return []
    entry = pb.ContainerDevices(resource_name=resource, device_ids=[device.id])
    if device.topology is Topology.ABSENT:
        return [entry]
    result = []
    for node in device.numa_nodes or (0,):
        placed = pb.ContainerDevices()
        placed.CopyFrom(entry)
        placed.topology.nodes.add(ID=node)
        result.append(placed)
    return result


def checkpoint_text(state: KubeletState) -> str:
    """Return the device manager's checkpoint file in the state's shape (faults.md S12)."""
    known = {device.id: device for items in state.resources.values() for device in items}
    pods_in_it = [
        {
            "PodUID": pod.uid,
            "ContainerName": container.name,
            "ResourceName": resource,
            "DeviceIDs": _checkpoint_ids(state.checkpoint_shape, ids, known),
            "AllocResp": "",
        }
        for pod in state.checkpoint.pods
        for container in pod.containers
        for resource, ids in container.devices.items()
    ]
    registered = {resource: list(ids) for resource, ids in state.checkpoint.registered.items()}
    data = {"PodDeviceEntries": pods_in_it, "RegisteredDevices": registered}
    return json.dumps({"Data": data, "Checksum": 0})


def _checkpoint_ids(shape: CheckpointShape, ids: tuple[str, ...], known: dict[str, Device]) -> Any:
    if shape is CheckpointShape.FLAT:
        return list(ids)
    by_node: dict[str, list[str]] = {}
    for id_ in ids:
        device = known.get(id_, Device(id=id_))
        nodes = device.numa_nodes or ((0,) if device.topology is Topology.EMPTY_NODE else (kubeletstate.NO_NUMA,))
        for node in nodes:
            by_node.setdefault(str(node), []).append(id_)
    return by_node


def _pod(pod: kubeletstate.Pod, known: dict[str, Device]) -> pb.PodResources:
    result = pb.PodResources(namespace=pod.namespace, name=pod.name)
    for container in pod.containers:
        listed = result.containers.add(name=container.name)
        for resource, ids in container.devices.items():
            for id_ in ids:
                listed.devices.extend(entries(resource, known.get(id_, Device(id=id_))))
        for claim in container.claims:
            dynamic = listed.dynamic_resources.add(claim_name=claim.name, claim_namespace=claim.namespace)
            dynamic.claim_resources.add(driver_name=claim.driver, pool_name=claim.pool, device_name=claim.device)
    return result


def _flickers(fault: Fault | None, call: int) -> bool:
    return fault is not None and fault.kind is FaultKind.FLICKER and call % 2 == 1


class FakeKubelet:
    """Serves one state file until closed; `wait` raises what is wrong with the file."""

    def __init__(self, *, state: pathlib.Path, socket: pathlib.Path, checkpoint: pathlib.Path | None = None) -> None:
        self._state_path = state
        self._socket_path = socket
        self._checkpoint_path = checkpoint
        self._server: grpc.aio.Server | None = None
        self._served: tuple[SocketState, int] | None = None
        self._calls = {"List": 0, "GetAllocatableResources": 0}
        self._watcher: asyncio.Task[None] | None = None
        self._following = asyncio.Lock()
        self._servers = 0
        self._seen: bytes | None = None

    async def __aenter__(self) -> Self:
        await self.settled()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watcher is not None
        self._watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError, Malformed, OSError):
            await self._watcher
        await self._close()

    @property
    def calls(self) -> dict[str, int]:
        """Calls answered so far, by method."""
        return dict(self._calls)

    async def wait(self) -> None:
        """Wait until the state file is wrong, and raise that."""
        assert self._watcher is not None
        await self._watcher

    async def settled(self) -> None:
        """Make the socket and the checkpoint what the file asks for."""
        async with self._following:
            # By content: two writes within one tick of the file system's clock have the same time stamp.
            content = self._state_path.read_bytes()
            if content != self._seen:
                await self._follow(kubeletstate.read_state(self._state_path))
                self._seen = content

    async def _watch(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self.settled()
        except (Malformed, OSError):
            await self._close()
            raise

    async def _follow(self, state: KubeletState) -> None:
        self._write_checkpoint(state)
        wanted = (state.socket, state.starts)
        if wanted == self._served:
            return
        self._served = wanted
        await self._close()
        if state.socket is SocketState.REFUSING:
            with sockets.socket(sockets.AF_UNIX) as nobody:
                nobody.bind(str(self._socket_path))
        if state.socket is SocketState.SERVING:
            await self._serve()

    async def _serve(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        methods = {
            "List": grpc.unary_unary_rpc_method_handler(self._handler("List", pods, "list_fault")),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                self._handler("GetAllocatableResources", allocatable, "allocatable_fault")
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),))
        # gRPC unlinks the path it was given some time after a server has stopped, and would take its successor's socket
        # away. It gets a path of its own, and the file is moved to where the kubelet's socket is.
        self._servers += 1
        own = self._socket_path.with_name(f"{self._socket_path.name}.{self._servers}")
        own.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{own}")
        await server.start()
        own.replace(self._socket_path)
        self._server = server

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None
        self._socket_path.unlink(missing_ok=True)

    def _handler(
        self, method: str, answer: Callable[[KubeletState, int], bytes], fault_field: str
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(_: bytes, context: Any) -> bytes:
            try:
                state = kubeletstate.read_state(self._state_path)
            except (Malformed, OSError) as error:
                await context.abort(grpc.StatusCode.INTERNAL, f"fake kubelet: {error}")
            call = self._calls[method]
            self._calls[method] += 1
            fault: Fault | None = getattr(state, fault_field)
            if fault is not None and fault.kind is FaultKind.GARBAGE:
                return _GARBAGE
            await _suffer(fault, context)
            return answer(state, call)

        return handle

    def _write_checkpoint(self, state: KubeletState) -> None:
        if self._checkpoint_path is None:
            return
        content = checkpoint_text(state).encode()
        # Bytes: what a test has put there need not be text.
        if not self._checkpoint_path.exists() or self._checkpoint_path.read_bytes() != content:
            fresh = self._checkpoint_path.with_name(self._checkpoint_path.name + ".new")
            fresh.write_bytes(content)
            fresh.replace(self._checkpoint_path)


async def _suffer(fault: Fault | None, context: Any) -> None:
    if fault is None:
        return
    if fault.kind is FaultKind.UNIMPLEMENTED:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
    if fault.kind is FaultKind.ERROR:
        await context.abort(grpc.StatusCode.UNKNOWN, "pod resources: internal trouble")
    if fault.kind is FaultKind.SLOW:
        await asyncio.sleep(fault.seconds)
    if fault.kind is FaultKind.HANG:
        await asyncio.Event().wait()


async def _run(arguments: argparse.Namespace) -> int:
    kubelet = FakeKubelet(state=arguments.state, socket=arguments.socket, checkpoint=arguments.checkpoint)
    try:
        async with kubelet:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            failed, stopped = asyncio.ensure_future(kubelet.wait()), asyncio.ensure_future(stop.wait())
            await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if failed.done():
                failed.result()
            failed.cancel()
    except (Malformed, OSError) as error:
        print(f"fake kubelet: {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve pod-resources and a checkpoint from a state file.")
    parser.add_argument("--state", type=pathlib.Path, required=True)
    parser.add_argument("--socket", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, default=None)
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
