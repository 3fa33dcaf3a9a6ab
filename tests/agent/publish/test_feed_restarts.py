"""What an earlier start of the agent was told counts after its restart (decision 0004)."""

import pytest

from muster.model.lease import LeaseSet, NodeLease
from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


LATE = LeaseSet(term=1, leases=(NodeLease(id="late", gang="ns/g", resource="nvidia.com/gpu", units=1),))
HELD = LeaseSet(
    term=2, leases=(NodeLease(id="kept", gang="ns/g", resource="nvidia.com/gpu", units=4, units_per_pod=1),)
)


async def test_what_an_earlier_start_was_told_is_told_to_the_next_leader(world):
    """A restart of the agent and of the admitter together must not loosen a lease."""
    async with world.hub(term=3) as (hub, address), world.agent(address, held=HELD) as agent:
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: "node-1" in hub.view().nodes)
        state = hub.view().nodes["node-1"]
        assert [(lease.id, lease.units) for lease in state.leases] == [("kept", 4)]
        assert state.lease_term == 2


async def test_a_leader_that_was_deposed_before_the_restart_is_not_obeyed_after_it(world):
    """The highest term that an earlier start knew of counts on."""
    leases = []
    async with world.hub(term=1) as (old, address), world.agent(address, held=HELD, on_leases=leases.append) as agent:
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: "node-1" in old.view().nodes)
        old.send_leases("node-1", LATE)
        heard = old.accepted["heartbeat"]
        await feedworld.until(lambda: old.accepted["heartbeat"] > heard + 2)
        assert (agent.state.obeyed, agent.state.term, leases) == ("", 2, [])
