"""The device plugin of the tests, spoken to as a kubelet does."""

import asyncio
import contextlib

import grpc
import pytest

from hack.cluster import deviceplugin
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as rpc

DEVICES = ("GPU-a", "GPU-b")


class Kubelet(rpc.RegistrationServicer):
    """Takes registrations on a real socket."""

    def __init__(self, folder):
        self.socket = folder / deviceplugin.KUBELET
        self.registered = asyncio.Queue()
        self.server = None

    async def Register(self, request, context):  # noqa: N802 -- the contract's name
        self.registered.put_nowait(request)
        return pb.Empty()

    async def start(self):
        self.server = grpc.aio.server()
        rpc.add_RegistrationServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{self.socket}")
        await self.server.start()

    async def stop(self):
        await self.server.stop(grace=None)
        self.socket.unlink(missing_ok=True)


@pytest.fixture
async def kubelet(tmp_path):
    made = Kubelet(tmp_path)
    await made.start()
    plugin = deviceplugin.Plugin(DEVICES, tmp_path / "unhealthy")
    task = asyncio.create_task(deviceplugin.run(tmp_path, plugin))
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await made.stop()


@contextlib.asynccontextmanager
async def called(folder):
    async with grpc.aio.insecure_channel(f"unix:{folder / deviceplugin.ENDPOINT}") as channel:
        yield rpc.DevicePluginStub(channel)


async def test_it_registers_with_each_kubelet_anew(kubelet):
    first = await asyncio.wait_for(kubelet.registered.get(), 20)
    assert (first.version, first.resource_name) == ("v1beta1", "nvidia.com/gpu")
    await kubelet.stop()
    await kubelet.start()
    assert await asyncio.wait_for(kubelet.registered.get(), 20) == first


async def test_a_change_of_health_is_sent_as_a_whole_list(kubelet, tmp_path):
    await asyncio.wait_for(kubelet.registered.get(), 20)
    async with called(tmp_path) as plugin:
        lists = plugin.ListAndWatch(pb.Empty())
        assert {each.id: each.health for each in (await lists.read()).devices} == dict.fromkeys(DEVICES, "Healthy")
        (tmp_path / "unhealthy").write_text("GPU-b\n")
        after = await asyncio.wait_for(lists.read(), 20)
        assert {each.id: each.health for each in after.devices} == {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}


async def test_a_container_is_told_its_devices(kubelet, tmp_path):
    await asyncio.wait_for(kubelet.registered.get(), 20)
    async with called(tmp_path) as plugin:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-b", "GPU-a"])])
        response = await plugin.Allocate(request)
    assert response.container_responses[0].envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-a"}
