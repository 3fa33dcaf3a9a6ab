"""Inspection over real sockets: the merged feed, why a gang waits, what there is."""

import asyncio

import grpc
import pytest

from admitter.core import observe
from admitter.model.lease import Lease, Placement
from muster import client
from muster.model.admission import Leased, Waiting
from muster.model.report import Verdict
from tests.admitter import admitters
from tests.admitter.admitters import a_gang, hear, heard_of
from tests.admitter.core.test_trust import a_rejection

GPU = "nvidia.com/gpu"


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


class Watch:
    """What a watcher of the merged feed holds after each change."""

    def __init__(self, changes):
        self._changes = changes
        self.nodes = {}
        self.version = -1

    async def until(self, claim):
        async with asyncio.timeout(20):
            while not claim(self.nodes):
                change = await anext(self._changes)
                assert change.version >= self.version
                self.version = change.version
                self.nodes |= change.nodes
                for name in change.removed:
                    del self.nodes[name]


async def test_the_full_state_comes_first_then_changes(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1") as first,
        town.node(address, "n2", free=3),
        town.client(address) as admitter,
    ):
        await heard_of(town, address, 2)
        changes = admitter.watch_capacity()
        change = await anext(changes)
        assert (sorted(change.nodes), change.synced) == (["n1", "n2"], True)
        assert change.nodes["n2"].admissible[GPU] == 3
        assert len(change.nodes["n2"].topology.gpus) == 8
        watch = Watch(changes)
        await first.say(0, verdict=Verdict.OVER)
        await watch.until(lambda nodes: "n1" in nodes and nodes["n1"].report.verdict is Verdict.OVER)
        assert watch.nodes["n1"].admissible[GPU] == 0
        assert "n2" not in watch.nodes


async def test_a_lease_is_a_change_of_capacity(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1"),
        town.client(address) as admitter,
        admitter.admit(a_gang(count=5)) as gang,
    ):
        watch = Watch(admitter.watch_capacity())
        await hear(gang.states(), Leased)
        await watch.until(lambda nodes: "n1" in nodes and nodes["n1"].leased.get(GPU) == 5)
        assert watch.nodes["n1"].admissible[GPU] == 3


async def test_a_node_that_broke_a_promise_admits_nothing_and_a_watcher_is_told(town):
    async with (
        town.admitter() as (running, address),
        town.node(address, "n1"),
        town.client(address) as admitter,
    ):
        await heard_of(town, address, 1)
        watch = Watch(admitter.watch_capacity())
        await watch.until(lambda nodes: "n1" in nodes and nodes["n1"].admissible[GPU] == 8)
        place = Placement(podset="main", node="n1", resource=GPU, pods=1, units_per_pod=8)
        trust, view = running._loop.book.trust, running._hub.view()
        trust.note_lease("team-a/train", Lease(id="t1-abc-1", term=1, snapshot_version=1, placements=(place,)))
        trust.hear([a_rejection(at=view.now)], view, view.now)
        running._loop.wake()
        await watch.until(lambda nodes: nodes["n1"].admissible[GPU] == 0)
        assert [node.admissible[GPU] for node in (await admitter.status(20)).nodes] == [0]


async def test_silence_is_a_change_of_capacity(town):
    async with (
        town.admitter(node_ttl_seconds=0.3, heartbeat_seconds=0.1) as (_, address),
        town.node(address, "n1"),
        town.client(address) as admitter,
    ):
        watch = Watch(admitter.watch_capacity())
        await watch.until(lambda nodes: "n1" in nodes and nodes["n1"].stale)
        assert watch.nodes["n1"].admissible[GPU] == 0


async def test_a_watcher_of_some_nodes_hears_of_no_other(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1"),
        town.node(address, "n2"),
        town.client(address) as admitter,
    ):
        await heard_of(town, address, 2)
        change = await anext(admitter.watch_capacity(["n2", "n9"]))
        assert (sorted(change.nodes), change.removed, change.synced) == (["n2"], (), True)


async def test_an_empty_fleet_is_synced_too(town):
    async with town.admitter() as (_, address), town.client(address) as admitter:
        change = await anext(admitter.watch_capacity())
        assert (change.nodes, change.synced) == ({}, True)


async def test_why_and_status(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1", free=2),
        town.client(address) as admitter,
        admitter.admit(a_gang(gpus=4, count=2)) as gang,
    ):
        await hear(gang.states(), Waiting)
        why = await admitter.why("team-a", "train", 10)
        assert (why.state, why.request_id, why.why.position) == ("waiting", "r1", 1)
        assert [(list(span.delays), span.clock) for span in why.delays] == [
            (["admission", "scheduling", "binding", "device", "content"], "")
        ]
        status = await admitter.status(10)
        assert (status.admitter, status.term) == ("admitter-0", 1)
        assert [node.node for node in status.nodes] == ["n1"]
        assert [one.name for one in status.gangs] == ["train"]
        assert not status.nodes[0].report.devices


async def test_a_status_says_what_was_observed_only_where_somebody_observes(town):
    async with town.admitter() as (running, address), town.client(address) as admitter:
        assert not (await admitter.status(10)).HasField("observation")
        tally = observe.Tally()
        tally.ends[observe.Verdict.HELD, observe.Outcome.RAN] = 2
        tally.held["NodesBlind"] = 3
        running._inspect.show_observed(tally)
        found = (await admitter.status(10)).observation
        assert dict(found.held) == {"NodesBlind": 3}
        assert [(end.verdict, end.outcome, end.gangs) for end in found.ends] == [("held", "ran", 2)]


async def test_an_unknown_gang_is_said_to_be_unknown(town):
    async with town.admitter() as (_, address), town.client(address) as admitter:
        with pytest.raises(client.Refused) as caught:
            await admitter.why("team-a", "nobody", 10)
        assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_a_node_may_not_look(town):
    async with town.admitter() as (_, address), client.connect(address, town.world.node("n1")) as admitter:
        for question in (admitter.status(10), admitter.why("a", "b", 10), anext(admitter.watch_capacity())):
            with pytest.raises(client.Refused) as caught:
                await question
            assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_nobody_answers(town):
    async with town.client("127.0.0.1:1") as admitter:
        with pytest.raises(client.Unreachable):
            await admitter.status(0.5)
