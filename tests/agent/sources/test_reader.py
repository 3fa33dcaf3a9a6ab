"""The client and the supervisor, against a real reader that dies, hangs and comes back."""

import dataclasses
import os
import sys
import time

import grpc
import pytest
from hypothesis import given

from agent.model import planes
from agent.sources import hungreader, reader, readermemory, readerprocess
from hack.fakenode import host
from muster.model import kube, pbform
from muster.model.reading import Known, Unknown
from muster.pb.muster.reader.v1 import reader_pb2, reader_pb2_grpc
from tests import values
from tests.agent.reader import world as worlds
from tests.agent.reader.world import Events, running


async def test_a_reader_that_is_away_is_a_reason_and_never_an_exception(tmp_path):
    client = reader.ReaderClient(tmp_path / "nobody.sock", call_timeout_seconds=0.2)
    answers = (
        await client.read_nvml(),
        await client.read_pci(),
        await client.read_device_nodes(),
        await client.read_kernel_log(),
        await client.read_mps(),
        await client.read_cdi(),
        (await client.read_host()).boot,
        await client.set_session("closed", "maintenance"),
    )
    assert {worlds.reason(answer) for answer in answers} == {"ReaderUnavailable"}
    assert await client.exit("test") is False
    assert client.silent_since is not None
    assert client.counters.failures >= len(answers)
    await client.close()


async def test_a_segfault_in_the_driver_kills_the_reader_only(tmp_path):
    """The process dies, its client says so, and the next reader serves."""
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        before = await world.nvml(with_static=True)
        world.state = world.state.with_fault("nvmlDeviceGetPowerUsage", gpu=2, segfault=True, times=1)
        crashed = await world.client.read_nvml()
        match crashed:
            case Unknown(reason):
                assert reason == "ReaderUnavailable"
            case Known(nvml):
                assert "ReaderUnavailable" in {gpu.error for gpu in nvml.devices}
                assert tuple(gpu.uuid for gpu in nvml.devices) == world.uuids
        world.state = world.state.without_faults()
        after = await worlds.until(
            world.client.read_nvml,
            lambda reading: (nvml := worlds.is_known(reading)) and not any(gpu.error for gpu in nvml.devices) and nvml,
        )
        assert world.process.last_exit_code == -11
        assert [gpu.product for gpu in after.devices] == [gpu.product for gpu in before.devices]
        await events.wait(lambda event: isinstance(event, reader.SessionEvent) and event.state == "reader_away")
        assert sum(isinstance(event, reader.Ready) for event in events.seen) >= 1
        await events.stop()


async def test_a_device_keeps_its_name_over_a_killed_reader(tmp_path):
    """The new reader has never seen the hanging device; the agent has."""
    async with running(tmp_path) as world:
        await world.nvml(with_static=True)
        world.state = world.state.with_fault("nvmlDeviceGetHandleByIndex_v2", gpu=3, hang=True)
        await world.client.exit("test")
        await worlds.until(world.client.read_nvml, worlds.reason)
        nvml = await world.nvml()
        assert (nvml.devices[3].uuid, nvml.devices[3].error) == (world.uuids[3], "TIMEOUT")
        assert [gpu.error for gpu in nvml.devices].count("") == 7


async def test_a_hung_reader_that_is_replaced_hangs_no_more_of_us(tmp_path):
    """The driver hangs, the child is killed, the next one serves the other planes."""
    async with running(tmp_path) as world:
        watchdog = hungreader.Watchdog(world.client, world.process, silent_seconds=1.0)
        await world.nvml()
        assert watchdog.complaint(time.monotonic()) == ""
        world.state = world.state.with_fault("nvmlDeviceGetCount_v2", hang=True)

        async def complaint():
            await world.client.read_nvml()
            return watchdog.complaint(time.monotonic())

        why = await worlds.until(complaint, lambda text: text or None)
        pid = world.process.pid
        assert await watchdog.replace(why)
        await worlds.until(complaint, lambda _: world.process.pid not in (None, pid))
        assert world.process.starts == 2
        assert len(await worlds.until(world.client.read_pci, worlds.is_known)) == 8


async def test_a_device_whose_call_never_returned_is_well_again_with_the_next_reader(tmp_path):
    """The driver has recovered; the reader's thread has not, so the device stays marked until the reader is replaced."""
    async with running(tmp_path, call_timeout_seconds=0.5) as world:
        watchdog = hungreader.Watchdog(world.client, stuck_seconds=1.0)
        await world.nvml()
        world.state = world.state.with_fault("*", gpu=5, hang=True)
        await worlds.until(world.client.read_nvml, lambda nvml: worlds.is_known(nvml).devices[5].error == "TIMEOUT")
        world.state = world.state.without_faults()

        async def complaint():
            assert (await world.nvml()).devices[5].error == "TIMEOUT"
            return watchdog.complaint(time.monotonic())

        why = await worlds.until(complaint, lambda text: text or None)
        assert "device" in why
        assert await watchdog.replace(why)
        await worlds.until(world.client.read_nvml, lambda nvml: (a := worlds.is_known(nvml)) and not a.devices[5].error)
        assert world.client.stuck_since is None


async def test_a_reader_that_cannot_start_is_tried_again_with_pauses(tmp_path):
    client = reader.ReaderClient(tmp_path / "reader.sock")
    process = readerprocess.ReaderProcess((sys.executable, "-c", "raise SystemExit(3)"), dict(os.environ))
    process.start()

    async def starts():
        return process.starts

    await worlds.until(starts, lambda count: count >= 3)
    assert process.last_exit_code == 3
    await process.stop()
    assert process.pid is None
    await client.close()


async def test_a_stopped_supervisor_leaves_no_child(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        pid = world.process.pid
        await world.process.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_the_host_and_its_plugin(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        answer = await world.client.read_host()
        assert world.client.counters.usage.value.cpu_seconds > 0
        assert world.client.counters.usage.value.resident_bytes > 1 << 20
        assert isinstance(answer.boot, Known)
        (plugin,) = answer.plugins.value
        assert (plugin.process_alive, plugin.socket_present) == (Known(True), Known(True))
        assert plugin.started_at.value > answer.kubelet_started_at.value
        host.stop_plugin(world.root)
        host.stop_kubelet(world.root)
        answer = await world.client.read_host()
        (plugin,) = answer.plugins.value
        assert (plugin.process_alive, plugin.socket_present) == (Known(False), Known(False))
        assert worlds.reason(answer.kubelet_started_at) == "NotFound"


async def test_static_facts_are_read_once_and_kept(tmp_path):
    async with running(tmp_path) as world:
        first = await world.nvml(with_static=True)
        second = await world.nvml()
        assert [gpu.nvlinks for gpu in second.devices] == [gpu.nvlinks for gpu in first.devices]
        calls = world.client.counters.calls
        await world.nvml()
        assert world.client.counters.calls - calls == 1 + len(first.devices)
        assert world.client.counters.nvml_seconds > 0


class _Canned(reader_pb2_grpc.ReaderServiceServicer):
    """A reader that answers what it was told to."""

    def __init__(self, answer, events=()):
        self.answer, self.events = answer, events

    async def Read(self, request, context):  # noqa: N802
        return self.answer

    async def Watch(self, request, context):  # noqa: N802
        for event in self.events:
            yield event


async def _answered(tmp_path, answer, events, ask):
    server = grpc.aio.server()
    reader_pb2_grpc.add_ReaderServiceServicer_to_server(_Canned(answer, events), server)
    server.add_insecure_port(f"unix:{tmp_path}/canned.sock")
    await server.start()
    client = reader.ReaderClient(tmp_path / "canned.sock")
    try:
        return await ask(client)
    finally:
        await client.close()
        await server.stop(None)


async def test_an_answer_that_does_not_fit_is_malformed(tmp_path):
    answer = reader_pb2.ReadResponse()
    answer.kernel_log.items.add().at.seconds = 1 << 60
    found = await _answered(tmp_path, answer, (), lambda client: client.read_kernel_log())
    assert worlds.reason(found) == "Malformed"


async def test_an_event_of_a_newer_reader_is_passed_over(tmp_path):
    async def two(client):
        stream = client.watch()
        return [await anext(stream), await anext(stream)]

    ready = reader_pb2.WatchResponse()
    ready.ready.registered["GPU-a"].items.append("xid")
    found = await _answered(tmp_path, reader_pb2.ReadResponse(), (reader_pb2.WatchResponse(), ready), two)
    assert found[0] == reader.Ready(registered={"GPU-a": ("xid",)})
    assert found[1].state == "reader_away"


@given(values.of(planes.Gpu))
def test_a_gpu_is_the_same_on_both_sides_of_the_wire(gpu):
    message = reader_pb2.ReadResponse()
    pbform.fill(message.nvml_device, gpu)
    again = reader_pb2.ReadResponse.FromString(message.SerializeToString())
    assert pbform.from_pb(planes.Gpu, again.nvml_device) == gpu


@pytest.mark.parametrize(
    ("cls", "field"),
    [
        (planes.PciFunction, "pci"),
        (planes.DeviceNode, "device_nodes"),
        (planes.KernelRecord, "kernel_log"),
        (planes.CdiSpec, "cdi"),
    ],
)
def test_listed_planes_are_the_same_on_both_sides_of_the_wire(cls, field):
    @given(values.of(cls))
    def same(value):
        message = reader_pb2.ReadResponse()
        pbform.fill(getattr(message, field).items.add(), value)
        again = reader_pb2.ReadResponse.FromString(message.SerializeToString())
        assert pbform.from_pb(cls, getattr(again, field).items[0]) == value

    same()


@given(values.of(planes.Boot), values.of(kube.Plugin), values.of(planes.Mps))
def test_the_host_is_the_same_on_both_sides_of_the_wire(boot, plugin, mps):
    message = reader_pb2.ReadResponse()
    pbform.fill(message.host.boot, boot)
    pbform.fill(message.host.plugins.items.add(), plugin)
    again = reader_pb2.ReadResponse.FromString(message.SerializeToString())
    assert pbform.from_pb(planes.Boot, again.host.boot) == boot
    assert pbform.from_pb(kube.Plugin, again.host.plugins.items[0]) == plugin
    mps_message = reader_pb2.ReadResponse()
    pbform.fill(mps_message.mps, mps)
    assert pbform.from_pb(planes.Mps, mps_message.mps) == mps


def _gpu(uuid, index, **fields):
    return planes.Gpu(uuid=uuid, index=Known(index), pci=Known(f"0000:0{index}:00.0"), **fields)


def _lost(index):
    return planes.Gpu(uuid="", index=Known(index), error="GPU_IS_LOST")


def test_memory_names_a_failed_index_only_while_nothing_contradicts_it():
    memory = readermemory.Memory()
    memory.begin(1, 2)
    memory.settle((_gpu("GPU-a", 0), _gpu("GPU-b", 1)))
    memory.begin(1, 2)
    assert [gpu.uuid for gpu in memory.settle((_gpu("GPU-a", 0), _lost(1)))] == ["GPU-a", "GPU-b"]
    # GPU-b answers at index 0 by now: the failed index is not GPU-b.
    memory.begin(1, 2)
    assert [gpu.uuid for gpu in memory.settle((_gpu("GPU-b", 0), _lost(1)))] == ["GPU-b", "unidentified-1"]
    # Another number of devices: indices may have shifted.
    memory.begin(2, 1)
    assert [gpu.uuid for gpu in memory.settle((_lost(0),))] == ["unidentified-0"]


def test_memory_keeps_facts_of_a_failed_gpu_but_no_measurement():
    memory = readermemory.Memory()
    memory.begin(1, 1)
    memory.settle((_gpu("GPU-a", 0, product=Known("H100"), utilization_percent=Known(90)),))
    memory.begin(1, 1)
    (gpu,) = memory.settle((_lost(0),))
    assert gpu.product == Known("H100")
    assert gpu == dataclasses.replace(_lost(0), uuid="GPU-a", pci=Known("0000:00:00.0"), product=Known("H100"))


def test_another_generation_makes_static_facts_due():
    memory = readermemory.Memory()
    memory.begin(1, 1)
    memory.settle((_gpu("GPU-a", 0, nvlinks=Known(())),))
    assert memory.knows("GPU-a")
    memory.begin(2, 1)
    assert not memory.knows("GPU-a")
