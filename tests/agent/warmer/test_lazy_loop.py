"""The loop over lazily mounted layers, on plain folders and a client that says where they are."""

import asyncio
import contextlib
import errno
import os

import pytest

from agent.model.warm import Reason
from agent.warmer import lazy as lazily
from agent.warmer.client import CallFailed
from agent.warmer.fetch import Throttle
from tests.agent.warmer.lazyplay import ANSWER, Loop, Runtime, made, remote


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look often: a test has no minute to spare."""
    monkeypatch.setattr(lazily, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lazily, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(lazily, "RETRY_SECONDS", 0.02)


def held():
    """Return what this process has open."""
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # Closed since it was listed.
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return found


@pytest.fixture
async def runtime(tmp_path):
    return Runtime(tmp_path)


async def test_an_image_that_goes_while_another_is_looked_at_ends_nothing(runtime):
    """containerd's garbage collection takes a layer while a view is being made."""
    first, second, third = (runtime.mount(made(name)) for name in "abc")
    loop = Loop(runtime)
    loop.tell([first, second, third])
    runtime.hold.clear()
    async with loop.running():
        await asyncio.wait_for(runtime.asked.wait(), ANSWER)
        loop.tell([first, second, third], snapshots=remote(first, third))
        runtime.hold.set()
        await loop.until(lambda: loop.shown("c0").fetched == 0.5)
        assert "b0" not in runtime.views


async def test_a_fault_of_ours_makes_one_image_broken_and_ends_nothing(runtime):
    bad, good = runtime.mount(made("a", 2)), runtime.mount(made("b"))
    runtime.faults["a1"] = ZeroDivisionError("a fault of ours")
    loop = Loop(runtime)
    loop.tell([bad, good])
    async with loop.running():
        await loop.until(lambda: loop.shown("b0").fetched == 0.5)
        assert [loop.shown(chain).problem for chain in ("a0", "a1", "b0")] == [
            "ZeroDivisionError('a fault of ours')",
            "ZeroDivisionError('a fault of ours')",
            "",
        ]
        runtime.faults.clear()
        await loop.until(lambda: loop.shown("a0").fetched == 0.5)
        assert loop.shown("a0").problem == ""


async def test_a_fault_in_a_look_is_of_that_layer_alone(runtime, monkeypatch):
    bad, good = runtime.mount(made("a")), runtime.mount(made("b"))
    state = lazily.lazyfiles.state

    def broken(folder):
        if folder.name == "a0":
            raise RecursionError("too deep")
        return state(folder)

    monkeypatch.setattr(lazily.lazyfiles, "state", broken)
    loop = Loop(runtime)
    loop.tell([bad, good])
    async with loop.running():
        await loop.until(lambda: loop.shown("b0").fetched == 0.5)
        assert loop.shown("a0").problem == "RecursionError('too deep')"


async def test_a_layer_that_cannot_be_read_stays_broken_whatever_its_state_file_says(runtime, monkeypatch):
    """Its state file is read every 5 s and says no error; a file of it is read once a minute, and gives EIO."""
    image = runtime.mount(made("a"), error=None)
    probes, probe, is_broken = [], lazily.lazyfiles.probe, True

    def probed(*where):
        probes.append(where)
        if is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return probe(*where)

    monkeypatch.setattr(lazily.lazyfiles, "probe", probed)
    loop = Loop(runtime)
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: len(probes) > 3)
        assert [each["a0"] for each in loop.changes] == ["Input/output error"]
        is_broken = False
        await loop.until(lambda: loop.shown("a0").problem == "")


async def test_a_state_file_that_says_an_error_makes_it_broken_while_it_says_so(runtime):
    image = runtime.mount(made("a"), error="no such host")
    loop = Loop(runtime)
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: loop.shown("a0").problem == "no such host")
        runtime.mount(image)
        await loop.until(lambda: loop.shown("a0").problem == "")


async def test_no_file_is_probed_while_the_node_is_busy(runtime, monkeypatch):
    image = runtime.mount(made("a"))
    looks, probes = [], []
    state, probe = lazily.lazyfiles.state, lazily.lazyfiles.probe
    monkeypatch.setattr(lazily.lazyfiles, "state", lambda folder: looks.append(folder) or state(folder))
    monkeypatch.setattr(lazily.lazyfiles, "probe", lambda *where: probes.append(where) or probe(*where))
    loop = Loop(runtime)
    loop.is_busy = True
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: len(looks) > 5)
        assert probes == []
        assert loop.shown("a0").fetched == 0.5
        loop.is_busy = False
        await loop.until(lambda: probes)


async def test_a_pause_leaves_nothing_open_and_reading_goes_on_where_it_was(runtime, monkeypatch):
    """An open file pins the mount: the kubelet's garbage collection is told that it is busy."""
    image = runtime.mount(made("a"))
    content = runtime.folder("a0") / "file"
    content.write_bytes(b"x" * (3 * lazily.lazyfiles.PIECE_BYTES))
    loop, reads, looks = Loop(runtime, Throttle(None)), [], []
    read, state = lazily.lazyfiles.read, lazily.lazyfiles.state

    def read_once(*where):
        loop.is_busy = not reads
        reads.append(where)
        return read(*where)

    monkeypatch.setattr(lazily.lazyfiles, "read", read_once)
    monkeypatch.setattr(lazily.lazyfiles, "state", lambda folder: looks.append(loop.is_busy) or state(folder))
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: True in looks)
        assert held() & {str(content), str(content.parent)} == set()
        assert loop.lazy.read_bytes == lazily.lazyfiles.PIECE_BYTES
        loop.is_busy = False
        await loop.until(lambda: loop.lazy.read_bytes == runtime.bytes_of("a0"))


async def test_a_file_that_cannot_be_read_keeps_it_broken_though_others_can(runtime, monkeypatch):
    """What is probed is the place that could not be read, and reading goes on there."""
    image = runtime.mount(made("a"))
    (runtime.folder("a0") / "bad").write_bytes(b"x" * 7)
    (runtime.folder("a0") / "a").write_bytes(b"x" * 5)
    opened, tries, is_broken = os.open, [], True

    def broken(name, flags, **where):
        if name == "bad":
            tries.append(name)
            if is_broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(name, flags, **where)

    monkeypatch.setattr(os, "open", broken)
    loop = Loop(runtime, Throttle(None))
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: len(tries) > 6)
        assert [each["a0"] for each in loop.changes if each["a0"]] == ["Input/output error"]
        assert loop.changes[-1]["a0"] == "Input/output error"
        assert loop.lazy.read_bytes == runtime.bytes_of("a0") - 7 - 10
        is_broken = False
        await loop.until(lambda: loop.shown("a0").problem == "")
        await loop.until(lambda: loop.lazy.read_bytes == runtime.bytes_of("a0"))


async def test_an_image_whose_folders_do_not_match_is_left_alone_for_a_while(runtime):
    """A view for every image every 5 s is an event each, and work for containerd, for nothing."""
    odd, good = runtime.mount(made("a", 2)), runtime.mount(made("b"))
    runtime.mounts["a1"] = (("bind", str(runtime.folder("a0")), ()),)
    loop = Loop(runtime)
    loop.tell([odd, good])
    async with loop.running():
        await loop.until(lambda: loop.shown("b0").fetched == 0.5)
        runtime.mount(good, fetchedSize=10)
        await loop.until(lambda: loop.shown("b0").fetched == 1.0)
        assert runtime.views == ["a1", "b0"]
        assert loop.shown("a0").problem == ""
        runtime.mounts.clear()
        loop.passed = lazily.MISMATCH_SECONDS
        await loop.until(lambda: loop.shown("a0").fetched == 0.5)
        assert runtime.views == ["a1", "b0", "a1"]


async def test_a_view_that_fails_is_tried_again_after_a_pause(runtime, monkeypatch):
    monkeypatch.setattr(lazily, "RETRY_SECONDS", 60.0)
    odd, good = runtime.mount(made("a")), runtime.mount(made("b"))
    runtime.faults["a0"] = CallFailed(Reason.RUNTIME_AWAY, "UNAVAILABLE", "not now")
    loop = Loop(runtime)
    loop.tell([odd, good])
    async with loop.running():
        await loop.until(lambda: loop.shown("b0").fetched == 0.5)
        runtime.mount(good, fetchedSize=10)
        await loop.until(lambda: loop.shown("b0").fetched == 1.0)
        assert runtime.views == ["a0", "b0"]
        runtime.faults.clear()
        loop.passed = 60.0
        await loop.until(lambda: loop.shown("a0").fetched == 0.5)
