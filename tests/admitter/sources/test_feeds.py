"""The feed over real sockets and certificates: an agent and a hub that work together."""

import pytest

from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


async def test_what_an_agent_publishes_is_in_the_view(world):
    """Snapshot first, then deltas; the view's version rises with each."""
    async with world.hub() as (hub, address), world.agent(address) as agent:
        agent.publish(feedworld.a_report(free=8), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(hub) == 8)
        version = hub.version
        agent.publish(feedworld.a_report(free=3), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(hub) == 3)
        assert hub.version > version
        assert hub.accepted["snapshot"] == 1
        assert hub.view().nodes["node-1"].report == feedworld.a_report(free=3)
