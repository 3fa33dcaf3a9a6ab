"""A whole admitter on a real API server: what agents say on the feed stands on their Nodes."""

import asyncio
import contextlib

import pytest
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from muster.model.nodeconditions import ConditionType
from muster.model.report import Verdict
from tests.admitter import admitters

NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


@pytest.fixture
def at(cluster, namespace):
    """Settings of an admitter on the test's cluster, with a Lease of the test's own."""
    return {"kubeconfig": cluster.kubeconfig, "lease_namespace": namespace, "lease_seconds": 3.0}


@pytest.fixture
def says(client):
    """Return what stands on a Node, without and with the instant of our last write."""

    def read(name):
        node = client.get(core.Node, name)
        return {
            item.type: f"{item.status} {item.reason}"
            for item in node.status.conditions
            if item.type in set(ConditionType)
        }

    return read


@pytest.fixture
def written_at(client):
    """Return when conditions of ours were last written on a Node."""

    def read(name):
        entries = client.get(core.Node, name).metadata.managedFields
        return [entry.time for entry in entries if (entry.manager, entry.subresource) == ("muster-admitter", "status")]

    return read


@pytest.fixture(autouse=True)
def unwritten(client):
    """Take our conditions away before each test, so that the first word is written at once."""
    body = {"status": {"conditions": [{"type": kind.value, "$patch": "delete"} for kind in ConditionType]}}
    for name in NODES:
        client.patch(core.NodeStatus, name, body, patch_type=PatchType.STRATEGIC)


def is_well(said):
    return said.get("GPUCapacityTruthful") == "True AsAdvertised"


def is_lying(said):
    return said.get("GPUCapacityTruthful", "").startswith("False ")


async def until(wait_for, claim, what):
    await asyncio.to_thread(wait_for, claim, what)


async def test_the_word_of_an_agent_stands_on_its_node_and_the_next_leader_does_not_write_it_again(
    town, at, says, written_at, wait_for
):
    async with contextlib.AsyncExitStack() as stack:
        first_life = await stack.enter_async_context(contextlib.AsyncExitStack())
        _, first = await first_life.enter_async_context(town.admitter(**at))
        feeder = await first_life.enter_async_context(town.node(first, NODES[0]))
        await until(wait_for, lambda: is_well(says(NODES[0])), "the first word")
        await feeder.say(0, verdict=Verdict.OVER)
        await until(wait_for, lambda: is_lying(says(NODES[0])), "the fault")
        _, second = await stack.enter_async_context(town.admitter(name="admitter-1", **at))
        await stack.enter_async_context(town.node(second, NODES[0], free=0, verdict=Verdict.OVER))
        before = written_at(NODES[0])
        await first_life.aclose()
        await asyncio.sleep(10)
        assert is_lying(says(NODES[0]))
        assert written_at(NODES[0]) == before, "a new leader writes nothing that is there already"


async def test_many_nodes_that_turn_at_once_are_held_and_stand_as_they_were(town, at, says, wait_for):
    settings = {**at, "breaker_least_nodes": 3}
    async with contextlib.AsyncExitStack() as stack:
        running, address = await stack.enter_async_context(town.admitter(**settings))
        feeders = [await stack.enter_async_context(town.node(address, name)) for name in NODES]
        await until(wait_for, lambda: all(is_well(says(name)) for name in NODES), "the first words")
        for feeder in feeders[:3]:
            await feeder.say(0, verdict=Verdict.OVER)
        await until(wait_for, lambda: len(running._safeguard.seen.nodes) == 3, "the hold")
        await asyncio.sleep(5)
        assert all(is_well(says(name)) for name in NODES), "the last good word stands"


async def test_a_silent_agent_makes_its_nodes_conditions_unknown(town, at, says, wait_for):
    settings = {**at, "node_ttl_seconds": 2.0, "heartbeat_seconds": 0.5, "silent_seconds": 2.0}
    async with town.admitter(**settings) as (_, address):
        async with town.node(address, NODES[1]) as feeder:
            await feeder.say(8)
            await until(wait_for, lambda: NODES[1] and is_well(says(NODES[1])), "the first word")
        gone = {"Unknown AgentSilent"}
        await until(wait_for, lambda: set(says(NODES[1]).values()) == gone, "the word that it is silent")


async def test_conditions_can_be_switched_off(town, at, says, client):
    name = NODES[2]
    before = says(name)
    async with town.admitter(**at, node_conditions=False) as (running, address), town.node(address, name, free=0):
        await admitters.until(lambda: running._loop.term > 0)
        await asyncio.sleep(3)
        assert says(name) == before
