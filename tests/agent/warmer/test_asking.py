"""Listed images are asked about beside each other: a registry that drips holds nothing for good; real HTTP servers."""

import asyncio
import threading

import pytest

from agent.core import warmref
from agent.model.warm import Reason, StoreFacts, Wanted
from agent.warmer import asking, resolve
from agent.warmer.registry import Registry
from tests.agent.warmer.test_questions import DIGEST, PLATFORM, NoCredentials, World, manifest
from tests.agent.warmer.webserver import dripper


@pytest.fixture
async def world(tmp_path):
    made = World(tmp_path)
    registry = Registry(tmp_path, timeout_seconds=30.0)
    resolver = resolve.Resolver(registry, NoCredentials(), made.survey, PLATFORM)
    made.asking, made.woken = asking.Asking(resolver, made.known, made, lambda: made.woken.append(1)), []
    yield made
    await made.asking.close()
    made.asked.close()
    for server in made.servers:
        server.stop()


async def settled(world, *references):
    """Go on as the engine does until each was answered, or has failed."""
    world.known.listed = tuple(Wanted(reference=reference) for reference in references)
    async with asyncio.timeout(60):
        while any(
            world.known.resolution(each) is None and str(each) not in world.known._failures for each in references
        ):
            world.asking.go_on(StoreFacts())
            await asyncio.sleep(0.01)


async def test_registries_that_drip_are_given_up_with_their_threads(world, monkeypatch):
    """A byte now and then: no read of a socket is ever late. All threads are theirs, until they are given up."""
    monkeypatch.setattr(asking, "ASK_SECONDS", 3.0)
    given_up = threading.Semaphore(0)
    drip = dripper(given_up)

    dripping = [warmref.parse(f"{world.host(drip)}/x:1") for _ in range(asking.AT_ONCE)]
    own = warmref.parse(f"{world.host(manifest)}/x:1")
    await settled(world, *dripping, own)
    assert [world.known._failures[str(each)].reason for each in dripping] == [Reason.STALLED] * asking.AT_ONCE
    assert [await asyncio.to_thread(given_up.acquire, timeout=60) for _ in dripping] == [True] * asking.AT_ONCE
    monkeypatch.setattr(asking, "ASK_SECONDS", 60.0)
    world.known.succeeded(own)  # Three seconds may have been too few for it, too.
    await settled(world, own)
    assert world.known.resolution(own).root.digest == DIGEST, "it has its turn"
    assert world.known.host_holds == {}
    assert world.woken
