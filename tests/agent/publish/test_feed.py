"""The agent's end over real sockets and certificates: whom it tells, whom it obeys, and what it survives."""

import asyncio
import contextlib
import socket

import grpc
import pytest

from agent.publish import feed, feed_session
from muster import tls
from muster.model import kube, protocol
from muster.model.lease import LeaseSet, NodeLease
from muster.pb.muster.v1 import feed_pb2
from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


@contextlib.asynccontextmanager
async def an_admitter(world, connect):
    """A server that answers the feed with `connect`; yields its address."""
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(connect)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protocol.SERVICE, {"Connect": handler}),))
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(world.admitter))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def a_welcome(**fields):
    welcome = feed_pb2.Welcome(**{"admitter": "fake", "heartbeat_ms": 20, "protocol": protocol.MINOR, **fields})
    return feed_pb2.ConnectResponse(welcome=welcome).SerializeToString()


def a_lease_set(name, term):
    return LeaseSet(term=term, leases=(NodeLease(id=name, gang="ns/g", resource="nvidia.com/gpu", units=1),))


async def test_every_admitter_is_told(world):
    async with world.hub() as (first, one), world.hub() as (second, two), world.agent(one, two) as agent:
        agent.publish(feedworld.a_report(free=8), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(first) == feedworld.free_in(second) == 8)
        agent.publish(feedworld.a_report(free=3), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(first) == feedworld.free_in(second) == 3)
        assert agent.state.connected == tuple(sorted((one, two)))


async def test_what_was_published_before_any_admitter_is_told_to_the_first(world):
    async with world.hub() as (hub, address), world.agent(address) as agent:
        agent.publish(feedworld.a_report(free=1), feedworld.TOPOLOGY)
        agent.publish(feedworld.a_report(free=2), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(hub) == 2)
        assert hub.accepted["snapshot"] == 1


async def test_a_steady_node_sends_heartbeats_with_the_ages_of_its_planes(world):
    async with world.hub(node_ttl_seconds=2.0) as (hub, address), world.agent(address) as agent:
        agent.set_plane_ages({"nvml": 60.0})
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: hub.accepted["heartbeat"] > 3)
        assert hub.accepted["delta"] == 0
        assert not hub.view().is_stale("node-1")
        assert hub.view().nodes["node-1"].plane_age_ms["nvml"] >= 60_000
        assert agent.sent["heartbeat"] > 3


async def test_only_the_highest_term_is_obeyed(world):
    """Slice and leases of the others are received and not acted on, until their term is the highest."""
    slices, leases = [], []
    content = kube.NodeSlice(features={"leader": True})
    async with contextlib.AsyncExitStack() as stack:
        low, one = await stack.enter_async_context(world.hub(term=1, admitter="low"))
        high, two = await stack.enter_async_context(
            world.hub(term=2, admitter="high", slice_source=lambda _: (content, 5.0), api_server=True)
        )
        agent = await stack.enter_async_context(
            world.agent(one, two, on_slice=lambda *heard: slices.append(heard), on_leases=leases.append)
        )
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: len(agent.state.connected) == 2 and slices)
        assert (agent.state.obeyed, agent.state.term, agent.state.api_server) == ("high", 2, True)
        low.send_leases("node-1", a_lease_set("from-low", 1))
        low.send_slice("node-1", kube.NodeSlice(features={"leader": False}), 1.0)
        high.send_leases("node-1", a_lease_set("from-high", 2))
        await feedworld.until(lambda: leases)
        assert [lease.id for heard in leases for lease in heard.leases] == ["from-high"]
        assert [heard for heard, _ in slices] == [content]
        assert slices[0][1] >= 5.0
        # The other one leads now: its slice, which has been there all the time, is handed over, and it hears of the
        # leases that the old leader gave.
        low.set_term(3)
        await feedworld.until(lambda: agent.state.obeyed == "low")
        await feedworld.until(lambda: [lease.id for lease in low.view().nodes["node-1"].leases] == ["from-high"])
        assert slices[-1][0] == kube.NodeSlice(features={"leader": False})


async def test_a_deposed_leader_is_not_obeyed_while_the_new_one_is_away(world):
    leases = []
    async with contextlib.AsyncExitStack() as stack:
        old, one = await stack.enter_async_context(world.hub(term=1, admitter="old"))
        new = contextlib.AsyncExitStack()
        _, two = await new.enter_async_context(world.hub(term=2, admitter="new"))
        agent = await stack.enter_async_context(world.agent(one, two, on_leases=leases.append))
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: agent.state.obeyed == "new" and len(agent.state.connected) == 2)
        await new.aclose()
        await feedworld.until(lambda: agent.state.connected == (one,))
        old.send_leases("node-1", a_lease_set("late", 1))
        heard = old.accepted["heartbeat"]
        await feedworld.until(lambda: old.accepted["heartbeat"] > heard + 2)
        assert (agent.state.obeyed, agent.state.term, leases) == ("", 2, [])


async def test_an_admitter_that_restarts_gets_everything_anew(world):
    port = _free_port()
    async with world.agent(f"127.0.0.1:{port}") as agent:
        agent.publish(feedworld.a_report(free=4), feedworld.TOPOLOGY)
        for _ in range(2):
            async with world.hub(port=port) as (hub, _):
                await feedworld.until(lambda hub=hub: feedworld.free_in(hub) == 4)
                assert agent.state.obeyed == "admitter-0"
        await feedworld.until(lambda: agent.state.obeyed == "")
        assert agent.ended_streams == 2


async def test_an_agent_that_restarts_goes_on_with_a_higher_counter(world):
    async with world.hub() as (hub, address):
        for start in (1, 2, 3):
            async with world.agent(address, start_counter=start) as agent:
                agent.publish(feedworld.a_report(free=start), feedworld.TOPOLOGY)
                await feedworld.until(lambda start=start: feedworld.free_in(hub) == start)
        assert hub.view().nodes["node-1"].epoch.start_counter == 3


async def test_a_stream_ends_at_its_maximum_age_and_a_new_one_proves_its_name_again(world):
    """The node's state stands meanwhile, and the second stream's snapshot is newer than the first's."""
    async with world.hub(max_age=0.5) as (hub, address), world.agent(address) as agent:
        agent.publish(feedworld.a_report(free=6), feedworld.TOPOLOGY)
        await feedworld.until(lambda: hub.accepted["snapshot"] >= 2)
        assert agent.ended_streams >= 1
        assert feedworld.free_in(hub) == 6
        assert not hub.view().is_stale("node-1")
        assert sum(hub.refused.values()) == 0


async def test_a_slow_admitter_costs_nothing(world):
    """It welcomes and does not read. The loop goes on, the other admitter is told, and what waits is one state."""
    released, caught_up = asyncio.Event(), []

    async def read_late(_requests, context):
        await context.read()
        await context.write(a_welcome())
        await released.wait()
        while (data := await context.read()) is not grpc.aio.EOF:
            caught_up.append(feed_pb2.ConnectRequest.FromString(data))

    def deltas():
        return [message.delta for message in caught_up if message.WhichOneof("message") == "delta"]

    def free_at_last():
        return deltas()[-1].resources["nvidia.com/gpu"].admit_strict if deltas() else None

    async with (
        an_admitter(world, read_late) as slow,
        world.hub() as (hub, address),
        world.agent(slow, address) as agent,
    ):
        await feedworld.until(lambda: len(agent.state.connected) == 2)
        for turn in range(600):
            filler = tuple(f"plane {index}: {turn} {'x' * 1000}" for index in range(20))
            agent.publish(feedworld.a_report(free=turn % 4, unverified=filler), feedworld.TOPOLOGY)
            await asyncio.sleep(0.001)
        agent.publish(feedworld.a_report(free=5), feedworld.TOPOLOGY)
        await feedworld.until(lambda: feedworld.free_in(hub) == 5)
        released.set()
        await feedworld.until(lambda: free_at_last() == 5)
        # 20 kB each: no more of the six hundred than fit into the wire's own window, which gRPC lets grow to 4 MiB.
        assert len(deltas()) < 400
        assert agent.ended_streams == 0


async def test_an_admitter_that_has_a_fleet_to_welcome_is_given_more_time_with_each_dial(world, monkeypatch):
    """With the first patience alone nobody would ever be welcomed here."""
    monkeypatch.setattr(feed, "WELCOME_SECONDS", (0.1, 20.0))
    dialled = []

    async def welcome_late(_requests, context):
        dialled.append(await context.read())
        await asyncio.sleep(0.7)
        await context.write(a_welcome())
        while await context.read() is not grpc.aio.EOF:
            pass

    async with an_admitter(world, welcome_late) as address, world.agent(address) as agent:
        await feedworld.until(lambda: agent.state.connected)
        assert len(dialled) > 1


async def test_a_malformed_answer_ends_the_stream_and_it_is_tried_again(world):
    seen = []

    async def babble(_requests, context):
        seen.append(await context.read())
        await context.write(a_welcome())
        await context.write(b"\xff" * 20)
        await asyncio.Event().wait()

    async with an_admitter(world, babble) as address, world.agent(address) as agent:
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: len(seen) >= 2)
        assert agent.ended_streams >= 1


async def test_a_fault_of_our_own_ends_the_run_loudly(world):
    """A callback that raises must not leave an agent that looks alive and tells nobody."""

    def fail(_state):
        raise RuntimeError("a fault of ours")

    async with world.hub() as (_, address), asyncio.timeout(20):
        publisher = feed.FeedPublisher(
            addresses=(address,),
            credentials=lambda: tls.channel_credentials(world.node("node-1")),
            hello=feed.Hello(node="node-1", boot_id="b", start_counter=1, version=""),
            on_state=fail,
        )
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await publisher.run()


@pytest.mark.parametrize(
    "answer", [a_welcome(protocol=protocol.MINOR + 3), b""], ids=["another protocol", "no welcome"]
)
async def test_an_admitter_that_does_not_welcome_us_is_told_nothing(world, answer):
    heard = []

    async def answer_wrongly(_requests, context):
        heard.append(feed_pb2.ConnectRequest.FromString(await context.read()).WhichOneof("message"))
        await context.write(answer)
        while (data := await context.read()) is not grpc.aio.EOF:
            heard.append(feed_pb2.ConnectRequest.FromString(data).WhichOneof("message"))

    async with an_admitter(world, answer_wrongly) as address, world.agent(address) as agent:
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: len(heard) >= 2)
        assert set(heard) == {"hello"}


@pytest.mark.parametrize("skew", [-2, 2])
async def test_an_admitter_two_minor_versions_apart_is_told(world, skew):
    """Both ends as they would be if the other were that much older or newer."""
    heard = []

    async def older_or_newer(_requests, context):
        heard.append(feed_pb2.ConnectRequest.FromString(await context.read()))
        # A field 500 and a message kind 60 that this version never heard of.
        await context.write(a_welcome(protocol=max(0, protocol.MINOR + skew)) + b"\xa2\x1f\x03new")
        await context.write(b"\xe2\x03\x03new")
        while (data := await context.read()) is not grpc.aio.EOF:
            heard.append(feed_pb2.ConnectRequest.FromString(data))

    async with an_admitter(world, older_or_newer) as address, world.agent(address) as agent:
        agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
        await feedworld.until(lambda: len(heard) >= 4)
        assert [message.WhichOneof("message") for message in heard[:3]] == ["hello", "snapshot", "heartbeat"]


async def test_addresses_are_asked_for_anew(world, monkeypatch):
    """One admitter leaves the name and another joins; a name that fails leaves the streams alone."""
    monkeypatch.setattr(feed, "RESOLVE_SECONDS", 0.05)
    answers = []

    async def resolve():
        if answers[0] is None:
            raise socket.gaierror("no such name")
        return answers[0]

    async with world.hub() as (first, one), world.hub() as (second, two):
        answers[:] = [(one,)]
        async with world.agent(
            hello=feed.Hello(node="node-1", boot_id="b", start_counter=1, version=""), addresses=resolve
        ) as agent:
            agent.publish(feedworld.a_report(), feedworld.TOPOLOGY)
            await feedworld.until(lambda: first.connected)
            answers[:] = [None]
            await asyncio.sleep(0.2)
            assert first.connected
            answers[:] = [(two,)]
            await feedworld.until(lambda: agent.state.connected == (two,) and not first.connected)
            assert second.connected


async def test_a_name_has_all_its_addresses():
    resolve = feed.dns_resolver("localhost:7443")
    assert "127.0.0.1:7443" in await resolve()


async def test_a_node_cannot_pose_as_an_admitter(world):
    """Its certificate is of our authority, and still nobody dials it."""
    greeted = []

    async def greet(_requests, context):
        greeted.append(await context.read())

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(greet)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protocol.SERVICE, {"Connect": handler}),))
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(world.node("node-2")))
    await server.start()
    session = feed_session.FeedSession(f"127.0.0.1:{port}", _Mute(), feedworld.MonotonicClock())
    with pytest.raises(feed_session.StreamEnded, match="UNAVAILABLE"):
        await session.run(lambda: tls.channel_credentials(world.node("node-1")))
    await server.stop(None)
    assert greeted == []


async def test_certificates_that_are_missing_are_named_and_tried_again(world, tmp_path):
    files = tls.Files(ca=tmp_path / "ca", certificate=tmp_path / "certificate", key=tmp_path / "key")
    session = feed_session.FeedSession("127.0.0.1:1", _Mute(), feedworld.MonotonicClock())
    with pytest.raises(feed_session.StreamEnded, match=r"key: .*No such file"):
        await session.run(lambda: tls.channel_credentials(files))


async def test_a_certificate_of_another_authority_is_refused(world, tmp_path):
    strangers = feedworld.World(tmp_path)
    async with world.hub() as (hub, address):
        session = feed_session.FeedSession(address, _Mute(), feedworld.MonotonicClock())
        with pytest.raises(feed_session.StreamEnded, match="UNAVAILABLE"):
            await session.run(lambda: tls.channel_credentials(strangers.node("node-1")))
        assert hub.view().nodes == {}


class _Mute:
    """Says hello and nothing more."""

    def hello(self):
        return feed_pb2.ConnectRequest(hello=feedworld.a_hello())


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
