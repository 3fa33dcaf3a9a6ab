"""Events of the driver and of the kernel log, on a real stream."""

import asyncio

from agent.model import planes
from agent.sources import reader
from hack import fakenvml
from hack.fakenode import host
from tests.agent.reader import world as worlds
from tests.agent.reader.world import Events, running


def xid(uuid, code):
    return lambda event: (
        isinstance(event, reader.DeviceEvent) and event.uuid == uuid and event.xid and event.xid.code == code
    )


async def test_the_stream_opens_with_what_is_registered(tmp_path):
    """Unsupported bits are masked first: one of them would refuse the whole registration."""

    def weaken(world):
        world.state = world.state.with_gpu(0, events=0x8).with_gpu(1, events=0)

    async with running(tmp_path, prepare=weaken) as world:
        events = Events(world.client)
        ready = await events.ready()
        assert ready.registered[world.uuids[0]] == ("xid",)
        assert world.uuids[1] not in ready.registered
        assert "mig_config" in ready.registered[world.uuids[2]]
        await events.stop()


async def test_an_xid_arrives_once_and_stays_in_the_gpus_history(tmp_path):
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        world.state = world.state.with_xid(3, 79)
        await events.wait(xid(world.uuids[3], 79))
        host.log_xid(world.root, 3, 79)  # The kernel log tells the same occurrence.
        await events.wait(lambda event: isinstance(event, planes.KernelRecord) and ": 79" in event.text)
        world.state = world.state.with_xid(4, 31)
        await events.wait(xid(world.uuids[4], 31))
        assert sum(map(xid(world.uuids[3], 79), events.seen)) == 1
        devices = (await world.nvml()).devices
        assert [one.code for one in devices[3].xids.value] == [79]
        assert devices[3].xids.value[0].source is planes.XidSource.NVML
        assert devices[5].xids.value == ()
        await events.stop()


async def test_an_xid_of_an_instance_names_it(tmp_path):
    async with running(tmp_path, "dgx-a100") as world:
        world.state = fakenvml.with_instances(world.state, 0, (("1g.10gb", 0),))
        events = Events(world.client)
        await events.ready()
        world.state = world.state.with_xid(0, 31, gi=7, ci=0)
        event = await events.wait(xid(world.uuids[0], 31))
        assert (event.xid.gi, event.xid.ci) == (7, 0)
        world.state = world.state.with_event(0, fakenvml.EventType.MIG_CONFIG_CHANGE)
        changed = await events.wait(lambda event: getattr(event, "kind", "") == "mig_config")
        assert changed.uuid == world.uuids[0]
        await events.stop()


async def test_a_lost_gpu_does_not_end_the_events_of_the_others(tmp_path):
    """The wait answers GPU_IS_LOST: the set is built anew without that GPU, and again with it after a reset."""
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        world.state = world.state.with_gpu(3, lost=True)

        async def send(gpu):
            world.state = world.state.with_xid(gpu, 48)
            await asyncio.sleep(0.3)
            return events.seen

        # What happens before the new registration is lost, as on a real driver; so it happens again.
        await worlds.until(lambda: send(5), lambda seen: any(map(xid(world.uuids[5], 48), seen)))
        world.state = world.state.with_reset(3)
        await worlds.until(lambda: world.gpu(3), lambda gpu: not gpu.error)
        await worlds.until(lambda: send(3), lambda seen: any(map(xid(world.uuids[3], 48), seen)))
        await events.stop()


async def test_a_device_that_hangs_does_not_hold_up_events(tmp_path):
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        world.state = world.state.with_fault("nvmlDeviceGetUUID", gpu=3, hang=True)
        assert (await world.gpu(3)).error == "TIMEOUT"
        world.state = world.state.with_xid(6, 13)
        await events.wait(xid(world.uuids[6], 13))
        await events.stop()


async def test_the_reader_does_not_spin_when_every_wait_fails(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = world.state.with_fault("nvmlEventSetWait_v2", error="UNKNOWN")
        before = _cpu_ticks(world.process.pid)
        await asyncio.sleep(2)
        # A loop without a pause would use about 200 ticks of the two seconds.
        assert _cpu_ticks(world.process.pid) - before < 100
        assert worlds.is_known(await world.client.read_nvml()) is not None


def _cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def test_while_nvml_is_closed_xids_come_from_the_kernel_log(tmp_path):
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        await world.nvml()
        await world.client.set_session("closed", "maintenance")
        host.log_xid(world.root, 2, 62)
        event = await events.wait(xid(world.uuids[2], 62))
        assert event.xid.source is planes.XidSource.KERNEL_LOG
        assert world.sessions == ()
        await events.stop()


async def test_records_of_the_kernel_log_are_about_gpus_only(tmp_path):
    async with running(tmp_path) as world:
        host.log(world.root, "eth0: link up")
        host.log(world.root, "NVRM: The NVIDIA GPU 0000:1b:00.0")
        host.log(world.root, "NVRM: (PCI ID: 10de:2330) installed in this system has")
        host.log(world.root, "NVRM: fallen off the bus and is not responding to commands.")
        host.log(world.root, "nvidia: probe of 0000:1b:00.0 failed with error -1")

        records = await worlds.until(
            world.client.read_kernel_log,
            lambda reading: (found := worlds.is_known(reading)) and len(found) == 2 and found,
        )
        assert records[0].text.endswith("has fallen off the bus and is not responding to commands.")
        assert records[0].text.startswith("NVRM: The NVIDIA GPU 0000:1b:00.0")
        assert [one.code for one in (await world.gpu(0)).xids.value] == [79]
