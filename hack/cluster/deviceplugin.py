"""`python -m hack.cluster.deviceplugin --folder FOLDER --devices 8`: a device plugin without devices.

In: the kubelet's device-plugin folder, and a file that says which devices are unhealthy. Out: `nvidia.com/gpu` in
node.status, and pods whose environment names what they were given.

Invariant: what the kubelet is told is what the file says; every change is sent as a whole list. When the kubelet's
socket is made anew (it restarted) the plugin registers again, as NVIDIA's does (faults.md S15).

Why a file: tests change health without a second channel, and kill the process to make the plugin die.

Not here: NUMA nodes, sharing, preferred allocation.
"""

import argparse
import asyncio
import logging
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from hack.cluster import fakekubelet
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as rpc

RESOURCE = "nvidia.com/gpu"
ENDPOINT = "muster-test.sock"
KUBELET = "kubelet.sock"
LOOK_SECONDS = 0.2

log = logging.getLogger("deviceplugin")
Context = grpc.aio.ServicerContext[Any, Any]


class Plugin(rpc.DevicePluginServicer):
    """The service that the kubelet calls; the method names are the contract's."""

    def __init__(self, devices: tuple[str, ...], unhealthy: pathlib.Path) -> None:
        self._devices = devices
        self._unhealthy = unhealthy

    def _listed(self) -> pb.ListAndWatchResponse:
        bad = set(self._unhealthy.read_text().split()) if self._unhealthy.exists() else set()
        health = {device: "Unhealthy" if device in bad else "Healthy" for device in self._devices}
        return pb.ListAndWatchResponse(devices=[pb.Device(id=key, health=value) for key, value in health.items()])

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:  # noqa: ARG002, N802
        return pb.DevicePluginOptions()

    async def ListAndWatch(self, request: pb.Empty, context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:  # noqa: ARG002, N802
        sent: pb.ListAndWatchResponse | None = None
        while True:
            listed = self._listed()
            if listed != sent:
                sent = listed
                log.info("telling the kubelet of %d devices", len(listed.devices))
                yield listed
            await asyncio.sleep(LOOK_SECONDS)

    async def Allocate(self, request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:  # noqa: ARG002, N802
        given = [",".join(container.devices_ids) for container in request.container_requests]
        log.info("allocating %s", "; ".join(given))
        responses = [pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ids}) for ids in given]
        return pb.AllocateResponse(container_responses=responses)


async def run(folder: pathlib.Path, plugin: Plugin) -> None:
    """Serve, and register with every kubelet that opens its socket."""
    registered: tuple[int, int] | None = None
    server: grpc.aio.Server | None = None
    while True:
        seen = _identity(folder / KUBELET)
        if seen is not None and seen != registered:
            # A kubelet that starts empties the folder, our socket included.
            if server is not None:
                await server.stop(grace=None)
            server = await _serve(folder, plugin)
            if await _register(folder):
                registered = seen
        await asyncio.sleep(LOOK_SECONDS)


async def _serve(folder: pathlib.Path, plugin: Plugin) -> grpc.aio.Server:
    (folder / ENDPOINT).unlink(missing_ok=True)
    server = grpc.aio.server()
    rpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{folder / ENDPOINT}")
    await server.start()
    return server


async def _register(folder: pathlib.Path) -> bool:
    request = pb.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE)
    async with grpc.aio.insecure_channel(f"unix:{folder / KUBELET}") as channel:
        try:
            await rpc.RegistrationStub(channel).Register(request, timeout=5)
        except grpc.aio.AioRpcError as error:
            log.warning("not registered: %s", error.details())
            return False
    log.info("registered")
    return True


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    """Tell one socket from the next of the same name; inode numbers are given out again at once."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.deviceplugin", description="A plugin of fake GPUs.")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="where the kubelet's socket is")
    parser.add_argument("--node", default="real", help="device ids depend on it")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--unhealthy", type=pathlib.Path, required=True, help="a file with the ids of bad devices")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    arguments = parser.parse_args()
    devices = fakekubelet.a_machine(arguments.node, arguments.devices).devices
    asyncio.run(run(arguments.folder, Plugin(devices, arguments.unhealthy)))


if __name__ == "__main__":
    main()
