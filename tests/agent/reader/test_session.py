"""Opening, closing and proving it; the driver coming, going and changing under the reader."""

import asyncio
import threading

import pytest

from agent import unixserver
from agent.reader import command, config, driver, session, workers
from agent.sources import reader
from hack import fakenvml
from hack.fakenode import host
from muster.model.reading import Known
from tests.agent.reader import world as worlds
from tests.agent.reader.world import Events, running


async def test_a_closed_session_lets_the_gpu_be_reset(tmp_path):
    """Closing frees the driver for real: the fake refuses a reset while anybody has it open."""
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        await world.nvml()
        world.state = world.state.with_gpu(3, lost=True)
        with pytest.raises(fakenvml.InUse):
            fakenvml.reset(host.state_path(world.root), world.uuids[3])
        assert await world.client.set_session("closed", "maintenance: mig-manager") == Known(())
        fakenvml.reset(host.state_path(world.root), world.uuids[3])
        closed = await world.client.read_nvml()
        assert (worlds.reason(closed), closed.detail) == ("MAINTENANCE", "maintenance: mig-manager")
        assert world.sessions == ()
        await world.client.set_session("open", "")
        assert (await world.gpu(3)).error == ""
        assert world.sessions != ()
        states = [event.state for event in events.seen if isinstance(event, reader.SessionEvent)]
        assert "closed" in states
        await events.stop()


async def test_a_closed_session_stays_closed_over_a_new_reader(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        events = Events(world.client)
        await events.ready()
        await world.client.set_session("closed", "maintenance")
        await world.client.exit("test")
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "ReaderUnavailable")
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "MAINTENANCE")
        await events.wait(lambda event: isinstance(event, reader.Ready) and not event.registered)
        assert world.sessions == ()
        await events.stop()


async def test_short_sessions_open_read_and_close(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        assert worlds.is_known(await world.client.set_session("short", "marker does not go away")) == ()
        nvml = await world.nvml(with_static=True)
        assert [gpu.error for gpu in nvml.devices] == [""] * 8

        async def sessions():
            return world.sessions

        assert await worlds.until(sessions, lambda found: found == ())
        assert len((await world.nvml()).devices) == 8


async def test_a_close_under_a_hanging_call_ends_the_reader(tmp_path):
    """What hangs in the driver cannot be closed; the process ends and the kernel closes it."""
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = world.state.with_fault("nvmlDeviceGetUUID", gpu=3, hang=True)
        assert (await world.gpu(3)).error == "TIMEOUT"
        left = await world.client.set_session("closed", "maintenance")
        assert worlds.is_known(left)

        async def sessions():
            return world.sessions

        await worlds.until(sessions, lambda found: found == ())
        assert world.process.last_exit_code in (None, session.EXIT_STUCK)
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "MAINTENANCE")
        assert world.process.last_exit_code == session.EXIT_STUCK


class CountedDriver:
    """Opens and closes and is asked nothing."""

    def __init__(self):
        self.is_open = False

    async def open(self):
        self.is_open = True

    async def close(self):
        self.is_open = False
        return True


def ignore(*_):
    """Callback of a session whose events nobody needs."""


async def a_pass(owner, read=None):
    """One read between begin and finish, and what the session does once it is idle."""
    assert await owner.begin() is None
    if read is not None:
        with pytest.raises(workers.Overdue):
            await read
    owner.finish()
    await asyncio.gather(*owner._idle)


@pytest.mark.parametrize(
    "whose", [lambda owner: owner.device_worker(3), lambda owner: owner.drains], ids=["gpu", "drain"]
)
async def test_nothing_is_closed_under_a_call_that_hangs(monkeypatch, whose):
    """Neither after a short pass nor for maintenance; the first pass after the call has returned closes."""
    monkeypatch.setattr(session, "_SHORT_IDLE_SECONDS", 0)
    owner = session.Session(config.ReaderConfig(), generation=1, on_event=ignore, on_state=ignore, end=ignore)
    owner.driver = CountedDriver()
    await owner.set_mode(session.Mode.SHORT, "the marker stays")
    await a_pass(owner)
    assert not owner.driver.is_open
    returns, worker = threading.Event(), whose(owner)
    await a_pass(owner, worker.run(returns.wait, 0.01))
    assert owner.driver.is_open
    await owner.set_mode(session.Mode.CLOSED, "maintenance")
    assert owner.driver.is_open
    await owner.set_mode(session.Mode.SHORT, "the marker stays")
    assert owner.driver.is_open
    returns.set()
    await worlds.until(lambda: asyncio.sleep(0, worker), lambda late: not late.is_overdue)
    await a_pass(owner)
    assert not owner.driver.is_open
    worker.stop()


async def test_an_unknown_mode_is_refused(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        answer = await world.client.set_session("ajar", "")
        assert worlds.reason(answer) == "ReaderUnavailable"
        assert "ajar" in answer.detail


async def test_the_reader_starts_without_a_driver_and_finds_it_when_it_comes(tmp_path):
    async with running(tmp_path, prepare=lambda world: host.remove_library(world.root)) as world:
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "LIBRARY_NOT_FOUND")
        # The other planes do not need one.
        assert len((await world.client.read_pci()).value) == 8
        host.install_library(world.root)
        assert len((await world.nvml()).devices) == 8
        assert world.process.starts == 1


async def test_a_module_that_is_loaded_late(tmp_path):
    def unload(world):
        world.kept = world.state
        host.unload_driver(world.root)

    async with running(tmp_path, prepare=unload) as world:
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "DRIVER_NOT_LOADED")
        world.state = world.kept
        assert len((await world.nvml()).devices) == 8
        assert world.process.starts == 1


@pytest.mark.parametrize("error", ["LIB_RM_VERSION_MISMATCH", "NO_PERMISSION"])
async def test_a_session_that_is_refused_says_why(tmp_path, error):
    def refuse(world):
        world.state = world.state.with_init_error(error)

    async with running(tmp_path, prepare=refuse) as world:
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == error)
        assert world.process.starts == 1
        world.state = world.state.without_faults()
        assert len((await world.nvml()).devices) == 8


async def test_a_changed_driver_makes_the_reader_start_anew(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        host.set_module_version(world.root, "590.10.01")
        await worlds.until(world.client.read_nvml, lambda reading: world.process.starts >= 2)
        assert world.process.last_exit_code == driver.EXIT_DRIVER_CHANGED
        nvml = await world.nvml()
        assert nvml.kernel_module_version == Known("590.10.01")


async def test_a_driver_that_goes_away_under_an_open_session(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        kept = world.state
        host.unload_driver(world.root)
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "DRIVER_NOT_LOADED")
        await worlds.until(world.client.read_nvml, lambda reading: world.process.starts >= 2)
        assert world.process.last_exit_code == driver.EXIT_DRIVER_CHANGED
        world.state = kept
        assert len((await world.nvml()).devices) == 8


async def test_a_library_that_is_exchanged_after_a_mismatch(tmp_path):
    """The loaded library is kept by the binding for good, so a new one needs a new process."""

    def refuse(world):
        world.state = world.state.with_init_error("LIB_RM_VERSION_MISMATCH")

    async with running(tmp_path, prepare=refuse) as world:
        await worlds.until(world.client.read_nvml, lambda reading: worlds.reason(reading) == "LIB_RM_VERSION_MISMATCH")
        host.install_library(world.root)
        world.state = world.state.without_faults()
        assert len((await world.nvml()).devices) == 8
        assert world.process.starts == 2


async def test_the_reader_ends_when_its_parent_is_gone(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        pid = world.process.pid
        world.process._child.stdin.close()  # What the kernel does when the parent dies, however it dies.
        await worlds.until(world.client.read_nvml, lambda reading: world.process.pid not in (None, pid))
        assert world.process.last_exit_code == 0


async def test_a_reader_whose_socket_was_taken_away_makes_room_for_one_that_can_be_reached(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        (tmp_path / "reader.sock").unlink()
        await worlds.until(world.client.read_nvml, lambda reading: world.process.starts >= 2)
        assert world.process.last_exit_code == command.EXIT_LOST
        assert len((await world.nvml()).devices) == 8


async def test_a_reader_that_ends_late_takes_nothing_from_the_one_after_it(tmp_path):
    """As an agent's last reader does that the agent did not live to bury."""
    async with running(tmp_path) as world:
        await world.nvml()
        earlier = unixserver.identity(tmp_path / "reader.sock")
        late, world.process = world.process, worlds.another(world.process)
        world.process.start()

        async def file():
            return unixserver.identity(tmp_path / "reader.sock")

        later = await worlds.until(file, lambda found: found if found not in (None, earlier) else None)
        await late.stop()
        await world.client.close()
        assert len((await world.nvml()).devices) == 8
        assert await file() == later


async def test_a_terminated_reader_leaves_the_driver_closed(tmp_path):
    async with running(tmp_path) as world:
        events = Events(world.client)
        await events.ready()
        await world.nvml()
        await world.process.stop()
        assert world.process.last_exit_code == 0
        assert world.sessions == ()
        await events.stop()
        await asyncio.sleep(0)
