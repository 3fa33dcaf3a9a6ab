"""A mount that hangs holds a thread, and nothing else."""

import threading

import pytest

from agent.warmer import lazy as lazily
from tests.agent.warmer.lazyplay import ANSWER, Loop, Runtime, made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look often: a test has no minute to spare."""
    monkeypatch.setattr(lazily, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lazily, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(lazily, "RETRY_SECONDS", 0.02)


@pytest.fixture
async def runtime(tmp_path):
    return Runtime(tmp_path)


async def test_layers_that_hang_take_no_other_layer_along(runtime, monkeypatch):
    """Each hung mount holds a thread for as long as it hangs, and only one."""
    image = runtime.mount(made("a", 4))
    hung = {"a0": 0, "a1": 0, "a2": 0}
    release, state = threading.Event(), lazily.lazyfiles.state

    def hanging(folder):
        if folder.name in hung:
            hung[folder.name] += 1
            release.wait(ANSWER)
        return state(folder)

    monkeypatch.setattr(lazily, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(lazily.lazyfiles, "state", hanging)
    loop = Loop(runtime)
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: loop.shown("a3").fetched == 0.5)
        await loop.until(lambda: loop.shown("a2").problem == "no answer")
        runtime.mount(image, fetchedSize=10)
        await loop.until(lambda: (loop.shown("a3").fetched, loop.shown("a3").problem) == (1.0, ""))
        assert hung == {"a0": 1, "a1": 1, "a2": 1}
        release.set()
        await loop.until(lambda: [loop.shown(f"a{each}").problem for each in range(4)] == [""] * 4)


async def test_layers_that_hang_do_not_have_others_wait(runtime, monkeypatch):
    """A daemon that hangs takes 30 s for each of its layers; what the others say is told meanwhile."""
    image = runtime.mount(made("a", lazily.LOOKS_AT_ONCE))
    release, state = threading.Event(), lazily.lazyfiles.state
    well = f"a{lazily.LOOKS_AT_ONCE - 1}"

    def hanging(folder):
        if folder.name != well:
            release.wait(ANSWER)
        return state(folder)

    monkeypatch.setattr(lazily, "ANSWER_SECONDS", 10 * ANSWER)
    monkeypatch.setattr(lazily.lazyfiles, "state", hanging)
    loop = Loop(runtime)
    loop.tell([image])
    async with loop.running():
        await loop.until(lambda: loop.changes)
        assert [chain for chain, each in loop.lazy.shown(loop.snapshots).items() if each.fetched is not None] == [well]
        release.set()
