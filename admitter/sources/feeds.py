"""All agents' feeds: every stream in, one cluster view out.

In: greeted streams and their messages (feedserver.py). Out: `view()`, the newest accepted state of every node, under a
version that rises with each accepted change; what the admitter has to tell an agent goes out on its stream.

Invariants: a state changes only through core/feedstate.py. A refused message never raises capacity, never makes a node
younger and never reaches another node's state. One node has one stream: the higher epoch's, or the newer one's within an
epoch.

Why fleet time: a stall of this process must not expire the fleet (core/fleetclock.py).

Not here: deciding anything from the view, and where Node and Pods slices come from.
"""

import asyncio
import collections
import types
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import grpc

from admitter.core import feedstate
from admitter.core.feedstate import Reason, Refusal
from admitter.core.fleetclock import FleetClock
from admitter.model.content import Answer, Answers, WarmList
from admitter.model.feedmessages import Heartbeat, Hello, Snapshot
from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.sources import feedserver
from admitter.sources.feedstream import FeedStream
from muster import tls
from muster.model import kube, pbform, protocol
from muster.model.delta import Delta
from muster.model.lease import LeaseSet
from muster.pb.muster.v1 import feed_pb2

TICK_SECONDS = 0.25
SLACK_SECONDS = 0.25
"""A tick that is later than this was a stall of ours."""
FORGET_SECONDS = 3600.0
"""A node that was silent for so long is no member any more: autoscalers never reuse most names."""

_SUPERSEDED = Refusal(reason=Reason.SUPERSEDED, detail="a newer stream of this node is open")


class Clock(Protocol):
    """What the hub needs of time."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never decreases."""


SliceSource = Callable[[str], tuple[kube.NodeSlice, float] | None]
"""Node name -> its slice and the slice's age in seconds; None: nothing is known yet."""


def server_options(stream_max_age_seconds: float) -> tuple[tuple[str, int], ...]:
    """Return the options of the gRPC server that a hub is added to."""
    return (
        # gRPC refuses on the length alone, before it buffers, but does not tell us: up to twice the bound the service
        # refuses and counts (feedserver.py).
        ("grpc.max_receive_message_length", 2 * protocol.MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", protocol.MAX_MESSAGE_BYTES),
        # To estimate bandwidth gRPC answers a message on a quiet connection with a ping. At 5,000 nodes that was half of
        # the hub's work (make bench-feed: 324 us a delta with it, 167 without).
        ("grpc.http2.bdp_probe", 0),
        # Streams end and re-authenticate. gRPC spreads the age by a tenth, so a fleet does not come back at once.
        ("grpc.max_connection_age_ms", int(stream_max_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", 1000),
        # Agents ping an idle connection, to notice an admitter that is gone without a word.
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    )


class FeedHub:
    """All nodes' feeds. Belongs to one event loop; `run` must run beside the server."""

    def __init__(
        self,
        *,
        clock: Clock,
        admitter: str,
        version: str = "",
        term: int = 0,
        node_ttl_seconds: float = 15.0,
        heartbeat_ms: int = 5000,
        api_server: bool = False,
        slice_source: SliceSource = lambda _: None,
        name_peer: feedserver.NamePeer = tls.peer_node,
        name_token: feedserver.NameToken | None = None,
    ) -> None:
        """`name_peer` is for tests alone: everywhere else certificate or token name the node."""
        self._clock = clock
        self._fleet_clock = FleetClock(
            ticked_at=clock.monotonic(), tick_seconds=TICK_SECONDS, slack_seconds=SLACK_SECONDS
        )
        self._node_ttl_seconds = node_ttl_seconds
        self._welcome = feed_pb2.Welcome(
            admitter=admitter,
            admitter_version=version,
            term=term,
            node_ttl_ms=round(node_ttl_seconds * 1000),
            heartbeat_ms=heartbeat_ms,
            protocol=protocol.MINOR,
            api_server=api_server,
        )
        self._slice_source = slice_source
        self._name_peer, self._name_token = name_peer, name_token
        self._nodes: dict[str, NodeState] = {}
        self._lives: dict[str, feedstate.Lives] = {}
        self._streams: dict[str, FeedStream] = {}
        self._left_at: dict[str, float] = {}
        """Nodes without a stream -> when it ended; also of those that greeted and never said more."""
        self._leases: dict[str, feed_pb2.LeaseSet] = {}
        self._stale: frozenset[str] = frozenset()
        self._hear_answers: Callable[[str, tuple[Answer, ...]], None] = lambda _node, _answers: None
        self._new_stream: Callable[[str], None] = lambda _: None
        self._version = 0
        self._changed: asyncio.Future[None] | None = None
        self.accepted: collections.Counter[str] = collections.Counter()
        """Messages by kind."""
        self.refused: collections.Counter[Reason] = collections.Counter()

    @property
    def version(self) -> int:
        """Of the cluster view."""
        return self._version

    @property
    def term(self) -> int:
        """That the agents were told last."""
        return self._welcome.term

    @property
    def connected(self) -> frozenset[str]:
        """Nodes with a stream."""
        return frozenset(self._streams)

    @property
    def stalled_seconds(self) -> float:
        """How long this process was stopped, as its ticker saw it."""
        return self._fleet_clock.stalled_seconds

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the feed on this server; it was made with `server_options`."""
        feedserver.FeedServicer(self, self._name_peer, self._name_token).add_to(server)

    def view(self) -> ClusterView:
        """Return all nodes at this moment."""
        return ClusterView(
            version=self._version,
            now=self._now(),
            node_ttl_seconds=self._node_ttl_seconds,
            nodes=types.MappingProxyType(dict(self._nodes)),
        )

    async def changed(self, since: int) -> int:
        """Wait until the version is above `since` and return it; many changes may have become one."""
        while self._version <= since:
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)
        return self._version

    async def changes(self) -> AsyncIterator[ClusterView]:
        """Yield the view now, then the newest view after each change."""
        while True:
            view = self.view()
            yield view
            await self.changed(view.version)

    def send_slice(self, node: str, content: kube.NodeSlice, age_seconds: float = 0.0) -> None:
        """Send a node what the API server says about it, if its agent is connected."""
        stream = self._streams.get(node)
        if stream is not None:
            message: feed_pb2.NodeSlice = pbform.fill(feed_pb2.NodeSlice(), content)
            message.age_ms = max(0, round(age_seconds * 1000))
            stream.send(feed_pb2.ConnectResponse(slice=message))

    def send_leases(self, node: str, leases: LeaseSet) -> None:
        """Tell a node's agent all leases of its node, now and whenever it connects anew."""
        message: feed_pb2.LeaseSet = pbform.fill(feed_pb2.LeaseSet(), leases)
        self._leases[node] = message
        stream = self._streams.get(node)
        if stream is not None:
            stream.send(feed_pb2.ConnectResponse(leases=message))

    def send_warm(self, node: str, wanted: WarmList) -> None:
        """Tell a node's agent what images are wanted and asked about, if it is connected."""
        stream = self._streams.get(node)
        if stream is not None:
            message: feed_pb2.WarmList = pbform.fill(feed_pb2.WarmList(), wanted)
            stream.send(feed_pb2.ConnectResponse(warm=message))

    def listen_images(self, hear: Callable[[str, tuple[Answer, ...]], None], left: Callable[[str], None]) -> None:
        """Have what warmers answer told, and which node's stream is a new one."""
        self._hear_answers, self._new_stream = hear, left

    def set_term(self, term: int) -> None:
        """Announce a new term to every agent, and ask each for a Snapshot with the leases it knows."""
        self._welcome.term = term
        self._leases.clear()
        for stream in self._streams.values():
            stream.send(feed_pb2.ConnectResponse(welcome=self._welcome))
            stream.resync("NewTerm")

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Move fleet time on, let flooding agents speak again, and note who has gone stale."""
        self._fleet_clock = self._fleet_clock.tick(self._clock.monotonic())
        for stream in self._streams.values():
            if stream.budget < 1:
                stream.refill()
        now = self._now()
        for node, left_at in list(self._left_at.items()):
            if now - left_at > FORGET_SECONDS:
                self._forget(node)
        stale = frozenset(node for node, state in self._nodes.items() if now - state.heard_at > self._node_ttl_seconds)
        if stale != self._stale:
            self._stale = stale
            self._note_change()

    def _forget(self, node: str) -> None:
        del self._left_at[node]
        self._lives.pop(node, None)
        self._leases.pop(node, None)
        if self._nodes.pop(node, None) is not None:
            self._note_change()

    def _now(self) -> float:
        return self._fleet_clock.at(self._clock.monotonic())

    def _note_change(self) -> None:
        self._version += 1
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def enter(self, hello: Hello, stream: FeedStream) -> Refusal | None:
        """Let a stream speak for its node, in place of an older one, and tell it all we have to say; or refuse it."""
        node = stream.node
        before = self._lives.get(node)
        lives = feedstate.greet(before, node, hello)
        if isinstance(lives, Refusal):
            return lives
        self._lives[node] = lives
        if before is not None and before.live != lives.live and self._nodes.pop(node, None) is not None:
            # What the ended epoch promised counts no more.
            self._note_change()
        older = self._streams.get(node)
        if older is not None:
            older.end(_SUPERSEDED)
        self._streams[node] = stream
        self._left_at.pop(node, None)
        stream.send(feed_pb2.ConnectResponse(welcome=self._welcome))
        self._new_stream(node)
        if node in self._leases:
            stream.send(feed_pb2.ConnectResponse(leases=self._leases[node]))
        content = self._slice_source(node)
        if content is not None:
            self.send_slice(node, *content)
        return None

    def leave(self, stream: FeedStream) -> None:
        """Note that a stream is over; the node's state ages from now on."""
        if self._streams.get(stream.node) is stream:
            del self._streams[stream.node]
            self._left_at[stream.node] = self._now()

    def take(self, stream: FeedStream, request: feed_pb2.ConnectRequest) -> Refusal | None:
        """Have the core decide on one message, and keep the state if it was accepted; Malformed if it has no meaning."""
        if self._streams.get(stream.node) is not stream:
            return _SUPERSEDED
        kind = request.WhichOneof("message")
        if kind == "answers":
            self.accepted[kind] += 1
            self._hear_answers(stream.node, pbform.from_pb(Answers, request.answers).answers)
            return None
        if stream.is_awaiting_snapshot and kind != "snapshot":
            return Refusal(reason=Reason.AWAITING_SNAPSHOT, detail=str(kind))
        outcome = self._decide(stream, kind, request)
        if isinstance(outcome, Refusal):
            if outcome.reason in feedstate.CURABLE:
                stream.is_awaiting_snapshot = True
                stream.resync(outcome.reason.value)
            return outcome
        assert kind is not None
        stream.is_awaiting_snapshot = False
        self.accepted[kind] += 1
        self._nodes[stream.node] = outcome
        if kind != "heartbeat":
            self._note_change()
        elif stream.node in self._stale:
            self._stale -= {stream.node}
            self._note_change()
        return None

    def _decide(self, stream: FeedStream, kind: str | None, request: feed_pb2.ConnectRequest) -> NodeState | Refusal:
        known, now = self._nodes.get(stream.node), self._now()
        match kind:
            case "delta":
                return feedstate.accept_delta(known, pbform.from_pb(Delta, request.delta), now=now)
            case "heartbeat":
                return feedstate.accept_heartbeat(known, pbform.from_pb(Heartbeat, request.heartbeat), now=now)
            case "snapshot":
                message = pbform.from_pb(Snapshot, request.snapshot)
                return feedstate.accept_snapshot(known, stream.hello, message, now=now, term=self.term)
            case _:
                return Refusal(reason=Reason.MALFORMED, detail=f"{kind or 'nothing known'} in mid-stream")
