"""Real sockets of a fake node: a device plugin, a DRA driver's registration, and the kubelet's stream to a plugin.

    python -m hack.fakenode.sockets plugin SOCKET            serves DevicePlugin, every device unhealthy
    python -m hack.fakenode.sockets driver SOCKET NAME       serves Registration as a DRA driver of that name
    python -m hack.fakenode.sockets stream SOCKET            keeps ListAndWatch open, as the kubelet does

In: where. Out: `ready` on standard output once it serves or the first list has come; then it runs until killed, as the real ones
do. Programs of their own, so that a test can kill or stop them.

Why the plugin calls its devices unhealthy: what it tells on the stream is the fake kubelet's state anyway; the one fault in which
a stream matters is that of a plugin that lost its view (faults.md D3).
"""

import argparse
import asyncio
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2 as plugin_pb2
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as plugin_rpc
from muster.pb.kubelet.pluginregistration.v1 import pluginregistration_pb2 as driver_pb2
from muster.pb.kubelet.pluginregistration.v1 import pluginregistration_pb2_grpc as driver_rpc

KERNEL_TABLE = pathlib.Path("/proc/net/unix")
READY = "ready"


class Plugin(plugin_rpc.DevicePluginServicer):
    """A device plugin that prefers some allocations; the method names are the contract's."""

    def __init__(self, *, prefers: bool = True) -> None:
        self.prefers = prefers
        self.watchers = 0
        """Streams of ListAndWatch ever opened: whoever opens a second one robs the first (faults.md S16)."""

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> plugin_pb2.DevicePluginOptions:  # noqa: ARG002, N802
        return plugin_pb2.DevicePluginOptions(get_preferred_allocation_available=self.prefers)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[plugin_pb2.ListAndWatchResponse]:  # noqa: ARG002, N802
        self.watchers += 1
        yield plugin_pb2.ListAndWatchResponse(devices=[plugin_pb2.Device(id="GPU-0", health="Unhealthy")])
        await asyncio.Event().wait()

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNAVAILABLE, "every device is unhealthy")


class Driver(driver_rpc.RegistrationServicer):
    """A driver's registration."""

    def __init__(self, name: str, kind: str = "DRAPlugin") -> None:
        self.name, self.kind = name, kind
        self.asked = 0

    async def GetInfo(self, request: Any, context: Any) -> driver_pb2.PluginInfo:  # noqa: ARG002, N802
        self.asked += 1
        return driver_pb2.PluginInfo(type=self.kind, name=self.name, supported_versions=["v1.DRAPlugin"])


async def serve(servicer: Plugin | Driver, socket: pathlib.Path) -> grpc.aio.Server:
    """Serve on a socket until the server is stopped or collected."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    match servicer:
        case Plugin():
            plugin_rpc.add_DevicePluginServicer_to_server(servicer, server)
        case Driver():
            driver_rpc.add_RegistrationServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start this program, and return when it is ready."""
    command = (sys.executable, "-m", "hack.fakenode.sockets", *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != READY.encode():
        process.communicate()
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return process


def kernel_table(folder: pathlib.Path) -> str:
    """Return the kernel's table of unix sockets as if those below a folder were all there are."""
    head, *lines = KERNEL_TABLE.read_text().splitlines()
    return "\n".join([head, *(line for line in lines if str(folder) in line), ""])


async def _run(arguments: argparse.Namespace) -> None:
    if arguments.role == "stream":
        async with grpc.aio.insecure_channel(f"unix:{arguments.socket}") as channel:
            async for _ in plugin_rpc.DevicePluginStub(channel).ListAndWatch(plugin_pb2.Empty()):
                print(READY, flush=True)
        return
    servicer = Plugin() if arguments.role == "plugin" else Driver(arguments.name)
    arguments.socket.unlink(missing_ok=True)
    server = await serve(servicer, arguments.socket)
    print(READY, flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description="One real socket of a fake node.")
    parser.add_argument("role", choices=("plugin", "driver", "stream"))
    parser.add_argument("socket", type=pathlib.Path)
    parser.add_argument("name", nargs="?", default="gpu.nvidia.com")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
