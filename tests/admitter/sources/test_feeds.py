"""The hub over real sockets and certificates: what it accepts, from whom, and what it says back."""

import asyncio

import grpc
import pytest

from admitter.core.feedstate import Reason
from admitter.sources import feedserver, feedstream
from muster.model import kube, pbform, protocol
from muster.model.lease import LeaseSet, NodeLease
from muster.pb.muster.v1 import feed_pb2
from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


async def test_the_welcome_says_how_to_behave(world):
    settings = {"node_ttl_seconds": 3.0, "term": 7, "version": "0.1.0", "api_server": True}
    async with world.hub(**settings) as (_, address), world.wire(address) as wire:
        welcome = await wire.greet()
    assert welcome == feed_pb2.Welcome(
        admitter="admitter-0",
        term=7,
        node_ttl_ms=3000,
        heartbeat_ms=50,
        admitter_version="0.1.0",
        protocol=protocol.MINOR,
        api_server=True,
    )


async def test_a_delta_whose_base_was_not_seen_is_answered_with_resync(world):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        await wire.say(delta=feedworld.a_delta(7, free=8))
        assert (await wire.hear()).resync.reason == "UnknownBase"
        assert feedworld.free_in(hub) == 8
        # What comes before the snapshot is not looked at, and asked for only once.
        await wire.say(delta=feedworld.a_delta(1, free=3))
        await wire.say(snapshot=feedworld.a_snapshot(5, feedworld.a_report(free=2)))
        await feedworld.until(lambda: feedworld.free_in(hub) == 2)
        assert hub.refused == {Reason.UNKNOWN_BASE: 1, Reason.AWAITING_SNAPSHOT: 1}
        await wire.say(delta=feedworld.a_delta(5, free=4, was=2))
        await feedworld.until(lambda: feedworld.free_in(hub) == 4)


@pytest.mark.parametrize(
    "message",
    [
        {"delta": feedworld.a_delta(1, free=7, sequence=3)},
        {"delta": feedworld.a_delta(0, free=7)},
        {"heartbeat": feed_pb2.Heartbeat(sequence=2)},
        {"heartbeat": feed_pb2.Heartbeat(sequence=0)},
        {"snapshot": feedworld.a_snapshot(1)},
        {"snapshot": feedworld.a_snapshot(-(2**62))},
    ],
    ids=["sequence jump", "replayed delta", "early heartbeat", "late heartbeat", "replayed snapshot", "negative"],
)
async def test_a_message_out_of_order_changes_nothing_and_makes_nothing_younger(world, message):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        before = hub.view().nodes["node-1"]
        await wire.say(**message)
        assert (await wire.hear()).WhichOneof("message") == "resync"
        assert hub.view().nodes["node-1"] is before


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"hello": feedworld.a_hello(node="node-2")}, grpc.StatusCode.PERMISSION_DENIED),
        ({"hello": feedworld.a_hello(protocol=9)}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"hello": feedworld.a_hello(boot_id="")}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"snapshot": feedworld.a_snapshot()}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["another node", "another protocol", "no boot id", "no hello"],
)
async def test_a_stream_that_begins_wrongly_ends_at_once(world, message, code):
    async with world.hub() as (hub, address), world.wire(address) as wire:
        await wire.say(**message)
        assert (await wire.hear_end())[0] is code
        assert hub.view().nodes == {}
        assert sum(hub.refused.values()) == 1


async def test_a_second_hello_ends_the_stream(world):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        await wire.say(hello=feedworld.a_hello())
        assert (await wire.hear_end())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_peer_that_is_no_node_is_nobody(world):
    """A client's certificate is of our authority, but names no node."""
    async with world.hub() as (hub, address):
        async with world.wire(address, files=world.authority.issue_client("alice")) as wire:
            await wire.say(hello=feedworld.a_hello())
            assert (await wire.hear_end())[0] is grpc.StatusCode.UNAUTHENTICATED
        assert hub.refused == {Reason.NO_NAME: 1}


async def test_a_silent_peer_is_shown_out(world, monkeypatch):
    monkeypatch.setattr(feedserver, "HELLO_SECONDS", 0.05)
    async with world.hub() as (_, address), world.wire(address) as wire:
        code, words = await wire.hear_end()
        assert (code, "NoHello" in words) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_fields_that_we_do_not_know_are_ignored(world):
    """A newer agent's message has a field 500 that this version never heard of."""
    unknown = b"\xa2\x1f\x03new"
    async with world.hub() as (hub, address), world.wire(address) as wire:
        await wire.greet(protocol=protocol.MINOR + 2)
        message = feed_pb2.ConnectRequest(snapshot=feedworld.a_snapshot())
        report = message.snapshot.report.SerializeToString() + unknown
        message.snapshot.report.CopyFrom(type(message.snapshot.report).FromString(report))
        await wire.say_bytes(message.SerializeToString() + unknown)
        await feedworld.until(lambda: feedworld.free_in(hub) == 8)


async def test_a_new_boot_ends_the_old_one_for_good(world):
    async with (
        world.hub() as (hub, address),
        feedworld.a_settled_wire(world, address, hub) as old,
        world.wire(address) as new,
    ):
        await new.greet(boot_id="boot-2")
        # What the old boot promised counts no more, even before the new one has spoken.
        assert hub.view().nodes == {}
        assert (await old.hear_end())[0] is grpc.StatusCode.ABORTED
        await new.say(snapshot=feedworld.a_snapshot(1, feedworld.a_report(free=1)))
        await feedworld.until(lambda: feedworld.free_in(hub) == 1)
        async with world.wire(address) as replay:
            await replay.say(hello=feedworld.a_hello(start_counter=99))
            assert (await replay.hear_end())[0] is grpc.StatusCode.FAILED_PRECONDITION
        await new.say(delta=feedworld.a_delta(1, free=2, was=1))
        await feedworld.until(lambda: feedworld.free_in(hub) == 2)


async def test_within_a_boot_the_higher_counter_lives(world):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub, start_counter=4) as live:
        async with world.wire(address) as old:
            await old.say(hello=feedworld.a_hello(start_counter=3))
            assert (await old.hear_end())[0] is grpc.StatusCode.FAILED_PRECONDITION
        async with world.wire(address) as new:
            await new.greet(start_counter=5)
            assert (await live.hear_end())[0] is grpc.StatusCode.ABORTED
            assert hub.connected == {"node-1"}


async def test_within_an_epoch_the_newer_stream_takes_over(world):
    """A half-open connection must not keep its agent out."""
    async with (
        world.hub() as (hub, address),
        feedworld.a_settled_wire(world, address, hub) as old,
        world.wire(address) as new,
    ):
        await new.greet()
        assert (await old.hear_end())[0] is grpc.StatusCode.ABORTED
        assert feedworld.free_in(hub) == 8
        await new.say(snapshot=feedworld.a_snapshot(2, feedworld.a_report(free=5)))
        await feedworld.until(lambda: feedworld.free_in(hub) == 5)


async def test_a_silent_node_goes_stale_and_comes_back(world):
    async with world.hub(node_ttl_seconds=0.3) as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        version = hub.version
        await feedworld.until(lambda: hub.view().is_stale("node-1"))
        async with asyncio.timeout(20):
            version = await hub.changed(version)
        await wire.say(heartbeat=feed_pb2.Heartbeat(sequence=1, plane_age_ms={"nvml": 3}))
        async with asyncio.timeout(20):
            await hub.changed(version)
        assert not hub.view().is_stale("node-1")
        assert hub.view().nodes["node-1"].plane_age_ms == {"nvml": 3}


async def test_a_stall_of_the_admitter_does_not_expire_the_fleet(world):
    clock = feedworld.MonotonicClock()
    async with (
        world.hub(clock=clock, node_ttl_seconds=15.0) as (hub, address),
        feedworld.a_settled_wire(world, address, hub),
    ):
        clock.jumped += 3600.0
        # First whoever looks before the ticker, then the ticker, then everybody after it.
        assert not hub.view().is_stale("node-1")
        await feedworld.until(lambda: hub.stalled_seconds > 3590)
        assert not hub.view().is_stale("node-1")


async def test_a_node_that_stays_away_is_forgotten(world):
    """Its stream is gone and hours pass, in steps that are no stall."""
    clock = feedworld.MonotonicClock()
    async with world.hub(clock=clock) as (hub, address):
        async with feedworld.a_settled_wire(world, address, hub):
            pass
        await feedworld.until(lambda: not hub.connected)
        for _ in range(8000):
            clock.jumped += 0.5
            hub.tick()
        assert hub.view().nodes == {}


async def test_a_node_that_only_greeted_is_forgotten_too(world):
    """A hello that is followed by nothing leaves the epoch behind, and nothing else of the node."""
    clock = feedworld.MonotonicClock()
    async with world.hub(clock=clock) as (hub, address):
        async with world.wire(address) as wire:
            await wire.greet(start_counter=4)
        await feedworld.until(lambda: not hub.connected)
        for _ in range(8000):
            clock.jumped += 0.5
            hub.tick()
        async with world.wire(address) as again:
            await again.greet(start_counter=3)
        assert hub.refused == {}


async def test_a_flood_is_read_no_faster_than_a_node_may_speak(world, monkeypatch):
    """The rest waits in the sender's socket; others are served meanwhile."""
    monkeypatch.setattr(feedstream, "BUDGET", 10)
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        heartbeat = feed_pb2.Heartbeat(sequence=1)
        for _ in range(60):
            await wire.say(heartbeat=heartbeat)
        assert hub.accepted["heartbeat"] < 60
        async with world.wire(address, node="node-2") as other:
            await other.greet(node="node-2")
            await other.say(snapshot=feedworld.a_snapshot(1, feedworld.a_report(node="node-2")))
            await feedworld.until(lambda: "node-2" in hub.view().nodes)
        await feedworld.until(lambda: hub.accepted["heartbeat"] == 60)


async def test_slices_and_leases_reach_their_node_and_the_newest_wins(world):
    content = kube.NodeSlice(features={"DRAExtendedResource": True})
    async with world.hub(slice_source=lambda node: (content, 2.0) if node == "node-1" else None) as (hub, address):
        hub.send_leases("node-1", LeaseSet(term=1, leases=(NodeLease(id="a", gang="b/c", resource="d", units=2),)))
        hub.send_slice("node-1", content)
        async with world.wire(address) as wire:
            await wire.greet()
            leases, first = await wire.hear(), await wire.hear()
            assert [lease.id for lease in leases.leases.leases] == ["a"]
            assert (pbform.from_pb(kube.NodeSlice, first.slice), first.slice.age_ms) == (content, 2000)
            for age in range(50):
                hub.send_slice("node-1", content, float(age))
            heard = [(await wire.hear()).slice.age_ms]
            while heard[-1] != 49000:
                heard.append((await wire.hear()).slice.age_ms)
            assert len(heard) < 50


async def test_a_new_term_is_announced_and_asks_for_the_leases_that_agents_know(world):
    async with world.hub(term=1) as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        assert hub.view().nodes["node-1"].snapshot_term == 1
        hub.set_term(2)
        assert (await wire.hear()).welcome.term == 2
        assert (await wire.hear()).resync.reason == "NewTerm"
        # The state that stands goes on standing meanwhile.
        await wire.say(delta=feedworld.a_delta(1, free=3))
        await feedworld.until(lambda: feedworld.free_in(hub) == 3)
        snapshot = feedworld.a_snapshot(3)
        snapshot.leases.CopyFrom(feed_pb2.LeaseSet(term=1, leases=[feed_pb2.NodeLease(id="a", gang="b/c", units=1)]))
        await wire.say(snapshot=snapshot)
        await feedworld.until(lambda: hub.view().nodes["node-1"].snapshot_term == 2)
        state = hub.view().nodes["node-1"]
        assert (state.lease_term, [lease.id for lease in state.leases]) == (1, ["a"])


async def test_changes_are_told_once_however_many_they_are(world):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        changes = hub.changes()
        first = await anext(changes)
        for base in range(1, 20):
            await wire.say(delta=feedworld.a_delta(base, free=base % 8, was=(base - 1) % 8 if base > 1 else 8))
        await feedworld.until(lambda: hub.view().nodes["node-1"].sequence == 20)
        second = await anext(changes)
        assert (second.version, first.version) == (hub.version, hub.version - 19)
        await changes.aclose()


async def test_a_test_may_name_peers_without_certificates(world):
    """The one way around the certificate is a constructor argument."""
    async with world.hub(name_peer=lambda _: "node-9") as (hub, address), world.wire(address) as wire:
        await wire.greet(node="node-9")
        assert hub.connected == {"node-9"}
