"""A fake GPU host with a real reader process and the agent's client on a real unix socket."""

import asyncio
import contextlib
import os
import sys

from agent.reader import config
from agent.sources import reader, readerprocess
from hack import fakenvml
from hack.fakenode import host
from muster import settings
from muster.model.reading import Known, Unknown

_WAIT_SECONDS = 30.0


class World:
    """One host. `state` is what the driver shows; assigning it changes the driver live."""

    def __init__(self, root, machine="hgx-h100", **overrides):
        self.root = root
        host.make(root, fakenvml.profile(machine, node="n1"))
        self.settings = {"socket": str(root / "reader.sock"), "exit_with_parent": "true", "call_timeout_seconds": "1"}
        self.settings |= {**host.reader_settings(root), **{name: str(value) for name, value in overrides.items()}}
        self.client = reader.ReaderClient(
            root / "reader.sock",
            call_timeout_seconds=float(self.settings["call_timeout_seconds"]),
            static_timeout_seconds=float(self.settings.get("static_timeout_seconds", 10)),
        )
        environment = {
            **os.environ,
            "MUSTER_FAKENVML_STATE": host.environment(root)["MUSTER_FAKENVML_STATE"],
            "PYTHONPATH": os.getcwd(),
            **{settings.variable_of(config.PREFIX, name): value for name, value in self.settings.items()},
        }
        self.process = readerprocess.ReaderProcess((sys.executable, "-m", "agent.main", "read"), environment)

    @property
    def state(self):
        return host.read_state(self.root)

    @state.setter
    def state(self, state):
        host.apply(self.root, state)

    @property
    def uuids(self):
        return tuple(gpu.uuid for gpu in self.state.gpus)

    @property
    def sessions(self):
        return fakenvml.sessions(host.state_path(self.root))

    async def nvml(self, **what):
        """Return the NVML plane once it can be read."""
        return await until(lambda: self.client.read_nvml(**what), is_known)

    async def gpu(self, index, **what):
        """Return one device of the plane."""
        return (await self.nvml(**what)).devices[index]


@contextlib.asynccontextmanager
async def running(root, machine="hgx-h100", *, prepare=lambda world: None, **overrides):
    """A host whose reader runs; `prepare` changes the host before the reader starts."""
    world = World(root, machine, **overrides)
    prepare(world)
    world.process.start()
    try:
        yield world
    finally:
        await world.client.close()
        await world.process.stop()


def is_known(reading):
    return reading.value if isinstance(reading, Known) else None


def reason(reading):
    return reading.reason if isinstance(reading, Unknown) else None


async def until(read, look):
    """Read until `look` returns something, and return that; fails after a bounded wait."""
    last = None
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            while True:
                last = await read()
                found = look(last)
                if found is not None and found is not False:
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never came true; last: {last}") from None


class Events:
    """Collects a client's events in the background."""

    def __init__(self, client):
        self.seen = []
        self._task = asyncio.get_running_loop().create_task(self._collect(client))

    async def _collect(self, client):
        async for event in client.watch():
            self.seen.append(event)

    async def wait(self, look):
        """Return the first event for which `look` is true."""

        async def first():
            return next((event for event in self.seen if look(event)), None)

        return await until(first, lambda event: event)

    async def ready(self):
        return await self.wait(lambda event: isinstance(event, reader.Ready) and event.registered)

    async def stop(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def another(process):
    """Return a second reader of the same host, not yet started."""
    return readerprocess.ReaderProcess(process._argv, process._environment)
