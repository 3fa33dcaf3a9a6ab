"""A node's images on the feed, from agent to admitter, over real sockets and certificates."""

import dataclasses

import pytest

from muster.model import warmth
from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


async def test_images_reach_every_admitter_and_a_fall_follows(world):
    """Beside a report that does not change; a second admitter, that comes later, is told all of it."""
    at = warmth.NOTHING.observed_at
    warm = warmth.NodeWarmth(observed_at=at, store=warmth.ImageStore(snapshotter="overlayfs"), layers=(1, 2**64 - 1))
    cold = dataclasses.replace(warm, layers=(1,))

    def told(hub):
        return hub.view().nodes["node-1"].warmth if "node-1" in hub.view().nodes else None

    async with world.hub() as (first, one), world.hub() as (second, two), world.agent(one, two) as agent:
        agent.publish_warmth(warm)
        assert told(first) is None, "nothing is told before there is a report"
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: told(first) == told(second) == warm)
        agent.publish_warmth(cold)
        await feedworld.until(lambda: told(first) == told(second) == cold)
        agent.publish(feedworld.a_report(free=3), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(first) == 3)
        assert told(first) == cold
