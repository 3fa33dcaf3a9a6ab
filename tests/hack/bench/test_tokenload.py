"""The fleet that plays a cold restart: every agent comes back by itself, with its token, and what it cost is counted."""

import asyncio
import contextlib
import json
import os
import threading

import grpc
import pytest

from admitter.model.caller import Nobody, Node
from admitter.sources import feeds
from agent.publish import feed as agentfeed
from agent.publish import feed_session
from hack.bench import coldstart, tokenload
from muster import tls
from tests.feedworld import MonotonicClock, World, until

TOKENS = {f"n{index}": f"token-of-n{index}-" + "x" * 1200 for index in range(3)}
"""As long as real ones."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Agents that give up and dial again sooner than a test's reader does."""
    monkeypatch.setattr(agentfeed, "BACKOFF_SECONDS", (0.05, 0.2))


async def name_of(token):
    """Who the API server says it is."""
    names = [node for node, each in TOKENS.items() if each == token]
    return Node(name=names[0]) if names else Nobody(reason="nobody's token")


@contextlib.asynccontextmanager
async def a_hub(world, name_token=name_of, port=0):
    hub = feeds.FeedHub(clock=MonotonicClock(), admitter="admitter-0", heartbeat_ms=100, name_token=name_token)
    server = grpc.aio.server(options=feeds.server_options(3600.0))
    hub.add_to(server)
    port = server.add_secure_port(f"127.0.0.1:{port}", tls.open_server_credentials(world.admitter))
    await server.start()
    try:
        yield hub, port
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def a_fleet(world, port, tokens=TOKENS):
    """Run a fleet in a thread of its own; yields what gives it an order and returns its answer."""
    fleet = tokenload.Fleet(world.admitter.ca, port, tokens)
    with contextlib.ExitStack() as stack:
        (orders, ours), (theirs, answers) = os.pipe(), os.pipe()
        orders, theirs = (stack.enter_context(os.fdopen(end)) for end in (orders, theirs))
        answers = stack.enter_context(os.fdopen(answers, "w"))
        thread = threading.Thread(target=fleet.run, args=(orders, answers))
        with os.fdopen(ours, "w") as ours:
            thread.start()

            async def ask(order=""):
                print(order, file=ours, flush=True)
                return json.loads(await asyncio.to_thread(theirs.readline))

            yield ask
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()


def is_fresh(hub):
    return lambda: len(hub.view().nodes) == len(TOKENS) == len(hub.connected)


async def test_every_agent_is_the_node_of_its_token_and_beats(tmp_path):
    world = World(tmp_path)
    async with a_hub(world) as (hub, port), a_fleet(world, port) as ask:
        await until(is_fresh(hub), "a report of every node")
        await until(lambda: hub.accepted["heartbeat"] > len(TOKENS), "heartbeats")
        assert all(state.report.node == name for name, state in hub.view().nodes.items())
        figures = await ask()
    assert figures == {"welcomed": 3, "dials": 3, "ended": {}}


async def test_a_fleet_comes_back_to_the_next_admitter_and_when_it_is_told_to_hang_up(tmp_path):
    world = World(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        async with a_hub(world) as (hub, port):
            ask = await stack.enter_async_context(a_fleet(world, port))
            await until(is_fresh(hub), "a report of every node")
        async with a_hub(world, port=port) as (hub, _):
            await until(is_fresh(hub), "the fleet at the next admitter")
            told = await ask("again")
            assert (told["welcomed"], told["ended"]["asked"]) == (0, 3)
            await until(lambda: hub.accepted["snapshot"] == 6 and len(hub.connected) == 3, "the fleet once more")
            figures = await ask()
    assert figures["dials"] >= 9
    assert figures["welcomed"] == 3


async def test_a_call_that_is_not_welcomed_in_time_is_given_up_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(feed_session, "WELCOME_SECONDS", (0.3, 20.0))
    world, reviewed = World(tmp_path), asyncio.Event()

    async def slow(token):
        await reviewed.wait()
        return await name_of(token)

    async with a_hub(world, slow) as (hub, port), a_fleet(world, port) as ask:
        while (await ask())["ended"].get("late", 0) < 3:  # noqa: ASYNC110 -- the fleet is asked, it has no event
            await asyncio.sleep(0.05)
        reviewed.set()
        await until(is_fresh(hub), "a report of every node")
        assert (await ask())["welcomed"] == 3


async def test_a_token_that_is_nobodys_is_refused_and_tried_again(tmp_path):
    world = World(tmp_path)
    async with a_hub(world) as (hub, port), a_fleet(world, port, {"n0": "stranger"}) as ask:
        await until(lambda: hub.refused.total() >= 2, "a second try")
        figures = await ask()
    assert figures["welcomed"] == 0
    assert figures["ended"]["Ended"] >= 1


@pytest.mark.parametrize(
    ("page", "nodes"),
    [("", 0), ('muster_admitter_nodes{verdict="OK"} 7.0\nmuster_admitter_nodes{verdict="STALE"} 2.0\n', 7)],
)
def test_stale_nodes_are_not_fresh(page, nodes):
    assert coldstart.fresh(page) == nodes
