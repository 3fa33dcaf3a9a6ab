"""A whole admitter in this process, on loopback with real certificates; nodes that say what a test has them say."""

import asyncio
import contextlib
import dataclasses

import grpc

from admitter import run
from admitter.config import AdmitterConfig
from muster import client, tls
from muster.model import pbform
from muster.model.admission import Gang, Podset
from muster.model.reading import Known
from muster.model.report import CountedPod
from muster.pb.muster.v1 import admission_pb2_grpc, feed_pb2
from tests import feedworld

WAIT_SECONDS = 20


class Town:
    """One authority, admitters that run under it and the nodes that feed them."""

    def __init__(self, folder):
        self.folder = folder
        self.world = feedworld.World(folder / "pki")
        self.clients = {}

    def files(self, name):
        if name not in self.clients:
            self.clients[name] = self.world.authority.issue_client(name)
        return self.clients[name]

    @contextlib.asynccontextmanager
    async def admitter(self, *, port=0, **settings):
        """A running admitter; yields it with its address."""
        files = self.world.admitter
        config = AdmitterConfig(
            **{
                "name": "admitter-0",
                "listen": f"127.0.0.1:{port}",
                "metrics_address": "127.0.0.1:0",
                "tls_ca": files.ca,
                "tls_certificate": files.certificate,
                "tls_key": files.key,
                "state_dir": self.folder / "state",
                # The nodes of these tests send no heartbeats, and a busy machine is slow.
                "node_ttl_seconds": 300.0,
                "decision_log": self.folder / "decisions.jsonl",
                **settings,
            }
        )
        running = run.Admitter(config)
        stop = asyncio.Event()
        task = asyncio.create_task(running.run(stop))
        try:
            await until(lambda: running.port or task.done())
            if task.done():
                task.result()
            yield running, f"127.0.0.1:{running.port}"
        finally:
            stop.set()
            await task

    @contextlib.asynccontextmanager
    async def node(self, address, name, free=8, **fields):
        """A node's feed; yields what lets the test change its mind."""
        async with self.world.wire(address, node=name) as wire:
            await wire.greet(node=name)
            feeder = Feeder(wire, name)
            await feeder.say(free, **fields)
            listening = asyncio.create_task(feeder.listen())
            try:
                yield feeder
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    def client(self, address, name="submitter"):
        return client.connect(address, self.files(name))

    @contextlib.asynccontextmanager
    async def raw(self, address, files=None):
        """A bare admission stub."""
        credentials = tls.channel_credentials(files or self.files("submitter"))
        async with grpc.aio.secure_channel(address, credentials, options=tls.DIAL_OPTIONS) as channel:
            yield admission_pb2_grpc.AdmissionServiceStub(channel)


class Feeder:
    """One node that says what it is told to."""

    def __init__(self, wire, name):
        self._wire = wire
        self._name = name
        self._sequence = 0
        self.leases = None
        """The last LeaseSet it was told."""
        self.slices = []
        self.warmth = None
        """What its warmer says; None: it has none."""
        self.warm = []
        """The lists of images that it was told."""
        self.answer = lambda _: feed_pb2.ImageAnswer(reason="WarmerUnavailable")
        """What its warmer answers to a question."""
        self.resyncs = 0
        """How often it was asked for all it knows: by each new leadership."""

    async def say(self, free=8, *, counted=(), leases=None, **fields):
        """Send a snapshot: `free` GPUs are free, these pods are counted."""
        self._sequence += 1
        report = feedworld.a_report(self._name, free=free)
        resource = dataclasses.replace(
            report.resources["nvidia.com/gpu"],
            capacity=Known(8),
            counted=tuple(CountedPod(uid=uid, units=units) for uid, units in counted),
            **fields,
        )
        report = dataclasses.replace(report, resources={"nvidia.com/gpu": resource}, verdict=resource.verdict)
        message = feed_pb2.Snapshot(sequence=self._sequence)
        pbform.fill(message.report, report)
        pbform.fill(message.topology, feedworld.TOPOLOGY)
        if leases is not None:
            message.leases.CopyFrom(leases)
        if self.warmth is not None:
            pbform.fill(message.warmth, self.warmth)
        await self._wire.say(snapshot=message)

    async def listen(self):
        while True:
            # A bound would end the stream with it: an admitter says nothing for as long as nothing changes.
            message = await self._wire.hear(seconds=None)
            match message.WhichOneof("message"):
                case "leases":
                    self.leases = message.leases
                case "slice":
                    self.slices.append(message.slice)
                case "resync":
                    self.resyncs += 1
                case "warm":
                    await self._hear_warm(message.warm)

    async def _hear_warm(self, wanted):
        asked = {question.id for each in self.warm for question in each.questions}
        self.warm.append(wanted)
        for question in (each for each in wanted.questions if each.id not in asked):
            answer = self.answer(question)
            answer.id = question.id
            await self._wire.say(answers=feed_pb2.ImageAnswers(answers=[answer]))

    def units(self):
        """Units leased here, as this node was told."""
        return sum(lease.units for lease in self.leases.leases) if self.leases is not None else 0


def a_gang(count=8, gpus=1, *, name="train", request_id="r1", priority=0, **fields):
    podset = Podset(count=count, request=gpus, **fields)
    return Gang(namespace="team-a", name=name, request_id=request_id, priority=priority, podsets=(podset,))


async def hear(states, kind):
    """Return the next state of this class, whatever comes before."""
    async with asyncio.timeout(WAIT_SECONDS):
        async for state in states:
            if isinstance(state, kind):
                return state
    raise AssertionError(f"the stream ended without {kind.__name__}")


until = feedworld.until


async def heard_of(town, address, nodes):
    """Wait until the admitter has heard of so many nodes."""
    seen = set()
    async with asyncio.timeout(WAIT_SECONDS), town.client(address, "watcher") as admitter:
        async for change in admitter.watch_capacity():
            seen |= change.nodes.keys()
            if len(seen) >= nodes:
                return
