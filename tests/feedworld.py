"""A feed on loopback with real certificates: one authority, hubs that serve, agents that publish or misbehave."""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import time

import grpc

from admitter.sources import feeds
from agent.publish import feed
from hack import pki
from muster import tls
from muster.model import delta as deltas
from muster.model import pbform, protocol, report
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2

UUIDS = tuple(f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000" for index in range(8))
AT = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
TOPOLOGY = report.Topology(generation=1, gpus=tuple(report.GpuTopology(uuid=uuid) for uuid in UUIDS))


def a_resource(free=8, **fields):
    counts = dict.fromkeys(("advertised", "present", "usable"), Known(8))
    admits = dict.fromkeys(("admit_strict", "admit_lenient", "free"), Known(free))
    return report.ResourceReport(
        **{
            "verdict": report.Verdict.OK,
            "pick_risk": Known(0.0),
            "free_devices": UUIDS[:free],
            **counts,
            **admits,
            **fields,
        }
    )


def a_report(node="node-1", free=8, **fields):
    """A node of eight GPUs with `free` of them free."""
    devices = tuple(
        report.DeviceReport(
            uuid=uuid,
            state=report.DeviceState.HEALTHY,
            reason="Ok",
            holder=report.Holder.NONE if index < free else report.Holder.POD,
        )
        for index, uuid in enumerate(UUIDS)
    )
    return report.NodeReport(
        **{
            "node": node,
            "taken_at": AT,
            "verdict": report.Verdict.OK,
            "resources": {"nvidia.com/gpu": a_resource(free)},
            "devices": devices,
            **fields,
        }
    )


class MonotonicClock:
    """The machine's, with a jump that a test makes to stand for a stall."""

    def __init__(self):
        self.jumped = 0.0

    def monotonic(self):
        return time.monotonic() + self.jumped


class World:
    """One authority and what listens under it."""

    def __init__(self, folder):
        self.authority = pki.create(folder)
        self.admitter = self.authority.issue_admitter()
        self._nodes = {}

    def node(self, name):
        if name not in self._nodes:
            self._nodes[name] = self.authority.issue_node(name)
        return self._nodes[name]

    @contextlib.asynccontextmanager
    async def hub(self, *, port=0, max_age=3600.0, **settings):
        """A hub that serves; yields it with its address."""
        settings = {"clock": MonotonicClock(), "admitter": "admitter-0", "heartbeat_ms": 50, **settings}
        hub = feeds.FeedHub(**settings)
        server = grpc.aio.server(options=feeds.server_options(max_age))
        hub.add_to(server)
        port = server.add_secure_port(f"127.0.0.1:{port}", tls.server_credentials(self.admitter))
        await server.start()
        ticker = asyncio.create_task(hub.run())
        try:
            yield hub, f"127.0.0.1:{port}"
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
            await server.stop(None)

    @contextlib.asynccontextmanager
    async def agent(self, *addresses, node="node-1", boot_id="boot-1", start_counter=1, **settings):
        """A publisher that runs."""
        hello = feed.Hello(node=node, boot_id=boot_id, start_counter=start_counter, version="0.1.0")
        settings = {"addresses": addresses, "hello": hello, **settings}
        publisher = feed.FeedPublisher(
            credentials=functools.partial(tls.channel_credentials, self.node(node)), **settings
        )
        task = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def wire(self, address, node="node-1", files=None, options=()):
        """A bare stream, to say anything at all."""
        credentials = tls.channel_credentials(files or self.node(node))
        options = (*tls.DIAL_OPTIONS, ("grpc.use_local_subchannel_pool", 1), *options)
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            call = channel.stream_stream(protocol.METHOD)()
            try:
                yield Wire(call)
            finally:
                call.cancel()


class Wire:
    """One end of a stream, message by message."""

    def __init__(self, call):
        self._call = call

    async def say(self, **message):
        await self.say_bytes(feed_pb2.ConnectRequest(**message).SerializeToString())

    async def say_bytes(self, data):
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(data)

    async def greet(self, **fields):
        """Say a hello and hear the welcome."""
        await self.say(hello=a_hello(**fields))
        return (await self.hear()).welcome

    async def hear(self, seconds=20):
        async with asyncio.timeout(seconds):
            data = await self._call.read()
        assert data is not grpc.aio.EOF, (await self._call.code(), await self._call.details())
        return feed_pb2.ConnectResponse.FromString(data)

    async def hear_end(self):
        """Wait for the end of the stream and return its status and words."""
        async with asyncio.timeout(20):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self._call.read() is not grpc.aio.EOF:
                    continue
            return await self._call.code(), await self._call.details()


def a_hello(**fields):
    return feed_pb2.Hello(
        **{
            "node": "node-1",
            "boot_id": "boot-1",
            "start_counter": 1,
            "agent_version": "0.1.0",
            "protocol": protocol.MINOR,
            **fields,
        }
    )


def a_snapshot(sequence=1, content=None, topology=TOPOLOGY):
    message = feed_pb2.Snapshot(sequence=sequence)
    pbform.fill(message.report, content if content is not None else a_report())
    pbform.fill(message.topology, topology)
    return message


async def until(claim, what="the claim"):
    """Wait, within bounds, for something to become true."""
    try:
        async with asyncio.timeout(20):
            while not claim():  # noqa: ASYNC110 -- whatever makes it true has no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None


def free_in(hub, node="node-1"):
    """Units that the hub's view says may be admitted on a node; None: the node is not there."""
    state = hub.view().nodes.get(node)
    return None if state is None else state.report.resources["nvidia.com/gpu"].admit_strict.value


def a_delta(base, free=8, *, was=8, sequence=None):
    change = deltas.diff(a_report(free=was), a_report(free=free), base=base)
    return pbform.fill(feed_pb2.Delta(), dataclasses.replace(change, sequence=sequence or base + 1))


@contextlib.asynccontextmanager
async def a_settled_wire(world, address, hub, **fields):
    """A stream whose snapshot, sequence 1 with eight free units, is in."""
    async with world.wire(address) as wire:
        await wire.greet(**fields)
        await wire.say(snapshot=a_snapshot())
        await until(lambda: free_in(hub) == 8)
        yield wire
