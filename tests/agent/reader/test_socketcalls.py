"""Plugins and drivers are asked on real sockets, and asked nothing that changes them."""

import asyncio
import contextlib
import doctest
import errno
import os
import pathlib
import signal
import socket as unix
import tempfile

import pytest

from agent.reader import socketcalls, sockets
from hack.fakenode import sockets as fakes
from muster.model.reading import Known, Unknown
from tests.agent.reader import world
from tests.agent.reader.world import reason, until


@pytest.fixture
def host():
    # A socket's path has 107 bytes at most, and pytest's own folders take most of them.
    with tempfile.TemporaryDirectory(prefix="muster-") as name:
        root = pathlib.Path(name)
        for folder in ("device-plugins", "plugins_registry", "k0s/device-plugins"):
            (root / folder).mkdir(parents=True)
        (root / "device-plugins/kubelet.sock").touch()
        yield root


class Asked:
    """The calls on one host, and what they found."""

    def __init__(self, host):
        self._host = host
        self.calls = socketcalls.SocketCalls(self._listed, 60)

    def listing(self):
        return sockets.look(self._host / "device-plugins", self._host / "plugins_registry", self._host, ("/k0s",))

    async def _listed(self):
        return self.listing()

    async def drivers(self):
        await self.calls.ask_all()
        return {driver.name: driver.answering for driver in socketcalls.drivers(self.listing(), self.calls).value}


@pytest.fixture
def asked(host):
    return Asked(host)


def test_examples():
    results = doctest.testmod(socketcalls)
    assert results.attempted > 0
    assert results.failed == 0


async def test_a_plugin_says_whether_it_prefers_and_keeps_its_stream_to_itself(host, asked):
    plugin = fakes.Plugin(prefers=True)
    server = await fakes.serve(plugin, host / "device-plugins/nvidia-gpu.sock")
    assert socketcalls.preferred_allocation(asked.listing(), asked.calls) == ""
    await asked.calls.ask_all()
    assert socketcalls.preferred_allocation(asked.listing(), asked.calls) == "true"
    plugin.prefers = False
    await asked.calls.ask_all()
    assert socketcalls.preferred_allocation(asked.listing(), asked.calls) == "false"
    assert plugin.watchers == 0
    await server.stop(None)


async def test_a_plugin_elsewhere_counts_while_somebody_serves_it(host, asked):
    server = await fakes.serve(fakes.Plugin(), host / "k0s/device-plugins/nvidia-gpu.sock")
    assert socketcalls.elsewhere(asked.listing(), asked.calls) is None
    await asked.calls.ask_all()
    assert socketcalls.elsewhere(asked.listing(), asked.calls).path == host / "k0s/device-plugins/nvidia-gpu.sock"
    await server.stop(None)
    (host / "k0s/device-plugins/nvidia-gpu.sock").touch()  # an earlier installation left it behind
    await asked.calls.ask_all()
    assert socketcalls.elsewhere(asked.listing(), asked.calls) is None


async def test_a_driver_that_died_is_there_and_does_not_answer(host, asked):
    path = host / "plugins_registry/gpu.nvidia.com-reg.sock"
    process = await asyncio.to_thread(fakes.start, "driver", str(path), "gpu.nvidia.com")
    try:
        assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
        process.send_signal(signal.SIGSTOP)
        assert await asked.drivers() == {"gpu.nvidia.com": Known(False)}
        process.send_signal(signal.SIGCONT)
        assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert path.exists()
    assert await asked.drivers() == {"gpu.nvidia.com": Known(False)}
    path.unlink()
    assert await asked.drivers() == {}


async def test_a_driver_of_another_kind_is_asked_once(host, asked):
    csi, dra = fakes.Driver("ebs.csi.aws.com", "CSIPlugin"), fakes.Driver("gpu.nvidia.com")
    servers = [
        await fakes.serve(csi, host / "plugins_registry/ebs-reg.sock"),
        await fakes.serve(dra, host / "plugins_registry/gpu.nvidia.com-reg.sock"),
    ]
    for _ in range(3):
        assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    assert (csi.asked, dra.asked) == (1, 3)
    for server in servers:
        await server.stop(None)


def babble(listening):
    """Send everybody the same nonsense until the socket is shut."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"\xff" * 4096)


async def test_garbage_is_no_answer_and_no_silence(host, asked):
    with unix.socket(unix.AF_UNIX) as listening:
        listening.bind(str(host / "plugins_registry/odd-reg.sock"))
        listening.listen()
        babbling = asyncio.create_task(asyncio.to_thread(babble, listening))
        found = await asked.drivers()
        listening.shutdown(unix.SHUT_RDWR)
        await babbling
        assert {name: reason(answering) for name, answering in found.items()} == {"odd": "NoAnswer"}


async def test_a_driver_that_answers_in_another_way_is_not_silent(host, asked):
    """Its own word is missing, so that its name is not known; dead it is not."""
    path = host / "plugins_registry/gpu.nvidia.com-reg.sock"
    server = await fakes.serve(fakes.Plugin(), path)  # it knows no GetInfo: UNIMPLEMENTED
    assert {name: reason(found) for name, found in (await asked.drivers()).items()} == {"gpu.nvidia.com": "NameNotSaid"}
    await server.stop(None)


@pytest.mark.parametrize(
    ("make", "answering"),
    [
        (lambda path: path.touch(), Known(False)),
        (lambda path: path.symlink_to("gone.sock"), Known(False)),
        (lambda path: path.symlink_to(path.name), Unknown("ELOOP", os.strerror(errno.ELOOP))),
    ],
    ids=["not a socket", "a link to nowhere", "a link to itself"],
)
async def test_what_could_not_be_dialled_is_not_what_nobody_serves(host, asked, make, answering):
    make(host / "plugins_registry/gpu.nvidia.com-reg.sock")
    assert await asked.drivers() == {"gpu.nvidia.com": answering}


async def test_a_socket_that_may_not_be_opened_says_nothing_of_its_driver(host, asked, monkeypatch):
    """The test's own user may be root, who may open all; the kernel's answer to another one is the same number."""
    (host / "plugins_registry/gpu.nvidia.com-reg.sock").touch()

    class Refused(unix.socket):
        def connect_ex(self, _):
            return errno.EACCES

    monkeypatch.setattr(socketcalls.unix, "socket", Refused)
    assert await asked.drivers() == {"gpu.nvidia.com": Unknown("EACCES", os.strerror(errno.EACCES))}


async def test_a_queue_that_nobody_empties_is_silence(host, asked):
    path = host / "plugins_registry/gpu.nvidia.com-reg.sock"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(unix.socket(unix.AF_UNIX))
        listening.bind(str(path))
        listening.listen(0)
        waiting = stack.enter_context(unix.socket(unix.AF_UNIX))
        waiting.connect(str(path))
        assert await asked.drivers() == {"gpu.nvidia.com": Known(False)}


async def test_a_path_that_cannot_be_dialled_says_nothing_of_its_driver(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    path = deep / "gpu.nvidia.com-reg.sock"
    path.touch()
    found = sockets.Socket(path=path, inode=1, changed_ns=1)
    listing = sockets.Listing(plugins=Known(()), elsewhere=(), drivers=Known((found,)))

    async def listed():
        return listing

    calls = socketcalls.SocketCalls(listed, 60)
    await calls.ask_all()
    (driver,) = socketcalls.drivers(listing, calls).value
    assert reason(driver.answering) == "PathTooLong"


async def test_folders_that_hang_leave_the_old_answers(host, asked):
    server = await fakes.serve(fakes.Driver("gpu.nvidia.com"), host / "plugins_registry/gpu.nvidia.com-reg.sock")
    assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}

    async def broken():
        raise OSError("stale file handle")

    asked.calls._look = broken
    assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    await server.stop(None)


async def test_a_socket_that_is_new_is_asked_as_soon_as_somebody_wants_to_know(host, asked):
    """A driver that has just restarted stays under suspicion until it has answered; the next round may be far."""
    asked.calls = socketcalls.SocketCalls(asked._listed, 3600)
    rounds = asyncio.create_task(asked.calls.run())
    servers = []
    try:
        for count, name in enumerate(("a", "b"), start=1):
            servers.append(await fakes.serve(fakes.Driver(name), host / f"plugins_registry/{name}-reg.sock"))

            async def told():
                found = socketcalls.drivers(asked.listing(), asked.calls).value
                return [driver.answering for driver in found]

            await until(told, lambda found, count=count: found == [Known(True)] * count)
    finally:
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        for server in servers:
            await server.stop(None)
    assert (asked.calls._loop, len(servers)) == (None, 2)


async def test_a_round_that_fails_leaves_no_old_answer_and_the_next_one_decides(host, asked):
    """Nobody watches the task: the rounds go on, and what was said before is no longer called current."""
    server = await fakes.serve(fakes.Driver("gpu.nvidia.com"), host / "plugins_registry/gpu.nvidia.com-reg.sock")
    assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    look = asked.calls._look

    async def broken():
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    asked.calls._look = broken
    assert {name: reason(found) for name, found in (await asked.drivers()).items()} == {
        "gpu.nvidia.com": "UnicodeEncodeError"
    }
    asked.calls._look = look
    assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    await server.stop(None)


async def test_a_name_that_no_text_can_hold_does_not_end_the_rounds(host, asked):
    """A file's name is bytes; the driver beside it is asked all the same."""
    server = await fakes.serve(fakes.Driver("gpu.nvidia.com"), host / "plugins_registry/gpu.nvidia.com-reg.sock")
    for name in (b"\xff.sock", b"\xff-reg.sock"):
        (host / "plugins_registry" / os.fsdecode(name)).touch()
    assert await asked.drivers() == {"gpu.nvidia.com": Known(True)}
    await server.stop(None)


async def test_the_reader_tells_all_of_it(host):
    """One real reader process, real sockets: who is there, who answers, what a plugin prefers, where another one serves."""
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            world.running(host / "node", sockets_seconds=0.1, kubelet_roots="/k0s")
        )
        other = running.root / "k0s/device-plugins"
        other.mkdir(parents=True, exist_ok=True)
        places = [running.root / "device-plugins/nvidia-mig-1g.5gb.sock", other / "nvidia-gpu.sock"]
        servers = [await fakes.serve(fakes.Plugin(), place) for place in places]
        registry = running.root / "plugins_registry/gpu.nvidia.com-reg.sock"
        servers.append(await fakes.serve(fakes.Driver("gpu.nvidia.com"), registry))

        def told(found):
            plugins, drivers = world.is_known(found.plugins), world.is_known(found.dra_drivers)
            return plugins and drivers and plugins[0].socket_dir and plugins[0].config and (plugins[0], drivers[0])

        plugin, driver = await until(running.client.read_host, told)
        assert plugin.config == {"preferredAllocation": "true"}
        assert (plugin.socket_dir, plugin.socket_present) == ("/k0s/device-plugins", Known(True))
        assert plugin.connected == Known(False)
        assert (driver.name, driver.answering) == ("gpu.nvidia.com", Known(True))
        for server in servers:
            await server.stop(None)
