"""Tell every admitter the newest state of this node, and obey one of them.

In: `publish(report, topology)` and `set_plane_ages(...)` from the loop, at any rate. Out: one stream to every address;
the slice and the leases of the admitter that is obeyed, through callbacks.

Invariants: the newest state wins, and no admitter, however slow, blocks the loop or makes memory grow. Obeyed is only a
stream whose welcome carries the highest term ever heard: a leader that was deposed while it was cut off is never obeyed
again.

Why every address gets a stream: a standby is warm the moment it becomes the leader.

Not here: what a stream says next (outbox.py), the wire (feed_session.py).
"""

import asyncio
import collections
import dataclasses
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import grpc
import structlog

from agent.publish.feed_session import WELCOME_SECONDS, FeedSession, StreamEnded
from agent.publish.outbox import Outbox, PlaneAges, Published
from muster import bearer
from muster import clock as clocks
from muster.model import codec, kube, pbform, protocol
from muster.model.lease import LeaseSet
from muster.model.report import NodeReport, Topology
from muster.model.warmth import NodeWarmth
from muster.pb.muster.v1 import feed_pb2

_LOG = structlog.get_logger(__name__)

BACKOFF_SECONDS = (0.4, 10.0)
"""First and longest pause between two dials of one address. Each is cut by up to a half, at random, so that a fleet does
not dial in step; the pause doubles."""
SETTLED_SECONDS = 10.0
"""A stream that lived so long resets the pause."""
RESOLVE_SECONDS = 30.0
"""How often the addresses are asked for anew; also after any stream that ended."""

Resolver: TypeAlias = Callable[[], Awaitable[tuple[str, ...]]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who speaks. The boot id and the start counter are this agent's epoch."""

    node: str
    boot_id: str
    start_counter: int
    version: str
    protocol: int = protocol.MINOR


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """Where the feed stands."""

    connected: tuple[str, ...] = ()
    """Addresses with a welcomed stream, sorted."""
    obeyed: str = ""
    """Name of the admitter that is obeyed; empty: none."""
    term: int = 0
    """Highest ever heard."""
    api_server: bool | None = None
    """What the obeyed admitter's welcome says; None: nobody has said."""
    node_ttl_seconds: float = 0.0


class FeedPublisher:
    """The agent's end of the feed. Belongs to one event loop; callbacks run in it and must not block."""

    def __init__(
        self,
        *,
        addresses: tuple[str, ...] | Resolver,
        credentials: Callable[[], grpc.ChannelCredentials],
        hello: Hello,
        metadata: Callable[[], bearer.Metadata] = lambda: (),
        on_slice: Callable[[kube.NodeSlice, float], None] = lambda _slice, _age: None,
        on_leases: Callable[[LeaseSet], None] = lambda _leases: None,
        on_state: Callable[[FeedState], None] = lambda _state: None,
        on_warm: Callable[[feed_pb2.WarmList], None] = lambda _list: None,
        held: LeaseSet = LeaseSet(),  # noqa: B008 -- frozen
        clock: clocks.Clock | None = None,
    ) -> None:
        """`held` is what an earlier start of this agent was told, by the highest term that it knew."""
        self._resolve = addresses if callable(addresses) else _fixed(addresses)
        self._credentials, self._metadata = credentials, metadata
        self._hello = hello
        self._on_slice, self._on_leases, self._on_state, self._on_warm = on_slice, on_leases, on_state, on_warm
        self._clock = clock or clocks.SystemClock()
        self._newest: Published | None = None
        self._warmth: NodeWarmth | None = None
        self._ages = PlaneAges()
        self._leases: feed_pb2.LeaseSet = pbform.fill(feed_pb2.LeaseSet(), held)
        self._sequence = 0
        self._sessions: dict[str, FeedSession] = {}
        self._slices: dict[str, tuple[feed_pb2.NodeSlice, float]] = {}
        self._obeyed: str | None = None
        self._stream_ended = asyncio.Event()
        self._state = FeedState(term=held.term)
        self.sent: collections.Counter[str] = collections.Counter()
        """Messages by kind."""
        self.ended_streams = 0

    @property
    def state(self) -> FeedState:
        """Where the feed stands now."""
        return self._state

    def publish(self, report: NodeReport, topology: Topology) -> None:
        """Make this the state that every stream is to tell next."""
        self._newest = Published(report=report, topology=topology, warmth=self._warmth)
        self._wake()

    def publish_warmth(self, warmth: NodeWarmth) -> None:
        """Tell the node's images as they are now, beside the report that stands."""
        self._warmth = warmth
        if self._newest is not None:
            self._newest = dataclasses.replace(self._newest, warmth=warmth)
            self._wake()

    def answer(self, found: feed_pb2.ImageAnswer) -> None:
        """Tell the obeyed admitter what an image is; nobody is obeyed: whoever is next asks again."""
        session = self._sessions.get(self._obeyed or "")
        if session is not None:
            session.answer(found)

    def _wake(self) -> None:
        for session in self._sessions.values():
            session.wake()

    def set_plane_ages(self, seconds: Mapping[str, float]) -> None:
        """Say how old each plane is now; heartbeats add the time since."""
        self._ages = PlaneAges(seconds=codec.freeze(seconds), taken_at=self._clock.monotonic())

    async def run(self) -> None:
        """Keep one stream to every address until cancelled."""
        dialers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._stream_ended.clear()
                await self._follow_addresses(dialers)
                for dialer in dialers.values():
                    if dialer.done():
                        # Only a fault of ours ends it, a callback's for one: better a restart than a feed that is mute.
                        dialer.result()
                try:
                    async with asyncio.timeout(RESOLVE_SECONDS):
                        await self._stream_ended.wait()
                except TimeoutError:
                    continue
        finally:
            for dialer in dialers.values():
                dialer.cancel()
            await asyncio.gather(*dialers.values(), return_exceptions=True)

    def hello(self) -> feed_pb2.ConnectRequest:
        """Return the first message of a stream."""
        own = self._hello
        return feed_pb2.ConnectRequest(
            hello=feed_pb2.Hello(
                node=own.node,
                boot_id=own.boot_id,
                start_counter=own.start_counter,
                agent_version=own.version,
                protocol=own.protocol,
            )
        )

    def open_outbox(self, heartbeat_seconds: float) -> Outbox:
        """Return a new stream's memory, above every sequence that was ever sent."""
        return Outbox(self._sequence, heartbeat_seconds, self._clock.monotonic())

    def next_message(self, outbox: Outbox) -> feed_pb2.ConnectRequest | None:
        """Return what a stream says next."""
        message = outbox.next(self._newest, self._ages, self._leases, self._clock.monotonic())
        if message is not None:
            self._sequence = max(self._sequence, outbox.sequence)
            self.sent[message.WhichOneof("message") or ""] += 1
        return message

    def hear(self, session: FeedSession, response: feed_pb2.ConnectResponse) -> None:
        """Take an answer, and act on it if it is the obeyed admitter's."""
        match response.WhichOneof("message"):
            case "welcome":
                self._sessions[session.address] = session
                self._choose()
            case "slice":
                self._slices[session.address] = (response.slice, self._clock.monotonic())
                if session.address == self._obeyed:
                    self._hand_slice(session.address)
            case "leases":
                if session.address == self._obeyed and response.leases.term >= self._leases.term:
                    self._hold(session.address, response.leases)
            case "warm":
                if session.address == self._obeyed and response.warm.term >= self._state.term:
                    self._on_warm(response.warm)

    async def _follow_addresses(self, dialers: dict[str, asyncio.Task[None]]) -> None:
        try:
            addresses = await self._resolve()
        except OSError as error:
            # Names fail while a cluster restarts; the streams that stand are worth keeping.
            _LOG.warning("admitter addresses cannot be resolved", error=str(error))
            return
        for address in set(dialers) - set(addresses):
            dialers.pop(address).cancel()
        for address in addresses:
            if address not in dialers:
                dialers[address] = asyncio.create_task(self._keep_stream(address))

    async def _keep_stream(self, address: str) -> None:
        shortest, longest = BACKOFF_SECONDS
        pause, patience = shortest, WELCOME_SECONDS[0]
        while True:
            dialled_at = self._clock.monotonic()
            session = FeedSession(address, self, self._clock)
            try:
                await session.run(self._credentials, self._metadata, patience=patience)
            except StreamEnded as error:
                _LOG.info("feed stream ended", address=address, why=str(error))
            finally:
                self._part(session)
            lived = self._clock.monotonic() - dialled_at
            if session.welcome is None and lived >= patience:
                patience = min(patience * 2, WELCOME_SECONDS[1])
            elif session.welcome is not None and lived > SETTLED_SECONDS:
                pause, patience = shortest, WELCOME_SECONDS[0]
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter, not a secret
            pause = min(pause * 2, longest)

    def _part(self, session: FeedSession) -> None:
        if self._sessions.get(session.address) is session:
            del self._sessions[session.address]
            self._slices.pop(session.address, None)
            self.ended_streams += 1
        self._stream_ended.set()
        self._choose()

    def _choose(self) -> None:
        """Obey the stream of the highest term ever heard; among equals, the one that is obeyed already."""
        welcomes = {address: session.welcome for address, session in self._sessions.items() if session.welcome}
        term = max((self._state.term, *(welcome.term for welcome in welcomes.values())))
        leading = [address for address, welcome in welcomes.items() if welcome.term == term]
        before = self._obeyed
        self._obeyed = before if before in leading else next(iter(sorted(leading)), None)
        welcome = welcomes.get(self._obeyed) if self._obeyed is not None else None
        state = dataclasses.replace(self._state, connected=tuple(sorted(welcomes)), term=term, obeyed="")
        if welcome is not None:
            state = dataclasses.replace(
                state,
                obeyed=welcome.admitter,
                api_server=welcome.api_server,
                node_ttl_seconds=welcome.node_ttl_ms / 1000,
            )
        if state != self._state:
            self._state = state
            _LOG.info("feed", connected=len(state.connected), obeyed=state.obeyed, term=term)
            self._on_state(state)
        if self._obeyed is not None and self._obeyed != before and self._obeyed in self._slices:
            self._hand_slice(self._obeyed)

    def _hold(self, address: str, leases: feed_pb2.LeaseSet) -> None:
        try:
            held = pbform.from_pb(LeaseSet, leases)
        except codec.Malformed as error:
            _LOG.error("the admitter's leases cannot be read", address=address, error=str(error))
            return
        self._leases = leases
        self._on_leases(held)

    def _hand_slice(self, address: str) -> None:
        message, received_at = self._slices[address]
        try:
            content = pbform.from_pb(kube.NodeSlice, message)
        except codec.Malformed as error:
            _LOG.error("the admitter's slice cannot be read", address=address, error=str(error))
            return
        # An age of 0 says that the admitter hears the API server: every change will come, so the slice does not age.
        waited = self._clock.monotonic() - received_at if message.age_ms else 0.0
        self._on_slice(content, message.age_ms / 1000 + waited)


def _fixed(addresses: tuple[str, ...]) -> Resolver:
    async def resolve() -> tuple[str, ...]:
        return addresses

    return resolve


def dns_resolver(target: str) -> Resolver:
    """Return a resolver of every address behind HOST:PORT; HOST may be a name with many."""
    host, _, port = target.rpartition(":")

    async def resolve() -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), int(port), proto=socket.IPPROTO_TCP)
        hosts = {str(entry[4][0]) for entry in found}
        return tuple(sorted(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in hosts))

    return resolve
