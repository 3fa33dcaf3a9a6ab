"""The feed's gRPC service: who is on a stream, and what becomes of each message on it.

In: streams of muster.v1.FeedService. Out: messages for the hub; refusals as a status, a log line and a count by reason.

Invariants: the node is the authenticated peer's, whatever the Hello says. No message, however long or broken, ends more
than its own stream, and a stream is read no faster than a node may speak.

Why messages come as bytes: one that cannot be parsed is then ours to count, not a stack trace of the library's.

Not here: which messages are accepted (core/feedstate.py) and what the accepted ones add up to (feeds.py).
"""

import asyncio
import collections
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import grpc
import structlog
from google.protobuf import message as protobuf

from admitter.core import feedstate
from admitter.core.feedstate import Reason, Refusal
from admitter.model.caller import Caller, Nobody, Node, User
from admitter.model.feedmessages import Hello
from admitter.sources.feedstream import FeedStream
from muster import bearer
from muster.model import codec, pbform, protocol
from muster.pb.muster.v1 import feed_pb2

_LOG = structlog.get_logger(__name__)

HELLO_SECONDS = 10.0
"""An agent that connects says at once who it is."""

NamePeer: TypeAlias = Callable[[Mapping[str, Iterable[bytes]]], str]
"""Authentication context -> node name, empty for nobody."""

NameToken: TypeAlias = Callable[[str], Awaitable[Caller]]
"""Bearer token -> whom the API server says it names."""

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in grpc-stubs

_STATUS = {
    Reason.WRONG_NODE: grpc.StatusCode.PERMISSION_DENIED,
    Reason.NO_NAME: grpc.StatusCode.UNAUTHENTICATED,
    Reason.NOT_REVIEWED: grpc.StatusCode.UNAVAILABLE,
    Reason.OLD_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PROTOCOL_SKEW: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUPERSEDED: grpc.StatusCode.ABORTED,
    Reason.OVERSIZED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Every other refusal is INVALID_ARGUMENT."""


class Hub(Protocol):
    """What the service needs of the hub."""

    refused: collections.Counter[Reason]

    def enter(self, hello: Hello, stream: FeedStream) -> Refusal | None:
        """Let a stream speak for its node, or refuse it."""

    def leave(self, stream: FeedStream) -> None:
        """Note that a stream is over."""

    def take(self, stream: FeedStream, request: feed_pb2.ConnectRequest) -> Refusal | None:
        """Decide on one message."""


class FeedServicer:
    """Serves Connect."""

    def __init__(self, hub: Hub, name_peer: NamePeer, name_token: NameToken | None = None) -> None:
        """`name_token` is asked about peers that show no certificate; None: they are nobody."""
        self._hub = hub
        self._name_peer = name_peer
        self._name_token = name_token

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the method, with bytes in and out."""
        handler = grpc.stream_stream_rpc_method_handler(self.connect)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protocol.SERVICE, {"Connect": handler}),))

    async def connect(self, _requests: Any, context: _Context) -> None:
        """Serve one stream to its end."""
        node = await self._name(context)
        refusal = node if isinstance(node, Refusal) else await self._serve(node, context)
        if refusal is not None:
            self._hub.refused[refusal.reason] += 1
            name = node if isinstance(node, str) else ""
            _LOG.warning("feed refused", node=name, reason=refusal.reason.value, detail=refusal.detail)
            code = _STATUS.get(refusal.reason, grpc.StatusCode.INVALID_ARGUMENT)
            await context.abort(code, f"{refusal.reason.value}: {refusal.detail}")

    async def _name(self, context: _Context) -> str | Refusal:
        """Return the node that the peer is: of its certificate, else of its token."""
        node = self._name_peer(context.auth_context())
        if node:
            return node
        token = bearer.token_of(context.invocation_metadata())
        if self._name_token is None or not token:
            return Refusal(reason=Reason.NO_NAME, detail="the certificate carries no muster:node: name")
        match await self._name_token(token):
            case Node(name=name):
                return name
            case User(name=name):
                return Refusal(reason=Reason.NO_NAME, detail=f"{name} is not the agents' service account")
            case Nobody(reason=why, may_retry=may_retry):
                return Refusal(reason=Reason.NOT_REVIEWED if may_retry else Reason.NO_NAME, detail=why)

    async def _serve(self, node: str, context: _Context) -> Refusal | None:
        hello = await _read_hello(context)
        if isinstance(hello, Refusal):
            return hello
        stream = FeedStream(node, hello, context)
        try:
            refusal = self._hub.enter(hello, stream)
            if refusal is not None:
                return refusal
            _LOG.info("agent connected", node=node, boot_id=hello.boot_id, start=hello.start_counter)
            return await self._listen(stream, context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stream.ended_by is None or task is None:
                raise
            task.uncancel()
            return stream.ended_by
        finally:
            self._hub.leave(stream)
            await stream.close()

    async def _listen(self, stream: FeedStream, context: _Context) -> Refusal | None:
        """Take messages until the agent hangs up (None) or one of them ends the stream."""
        while (data := await context.read()) is not _EOF:
            refusal = self._take(stream, data)
            if refusal is not None:
                if refusal.reason not in feedstate.CURABLE:
                    return refusal
                self._hub.refused[refusal.reason] += 1
                if refusal.reason is not Reason.AWAITING_SNAPSHOT:
                    _LOG.info("feed out of step", node=stream.node, reason=refusal.reason.value, detail=refusal.detail)
            stream.budget -= 1
            if stream.budget < 1:
                await stream.rest()
        return None

    def _take(self, stream: FeedStream, data: bytes) -> Refusal | None:
        if len(data) > protocol.MAX_MESSAGE_BYTES:
            return Refusal(reason=Reason.OVERSIZED, detail=f"{len(data)} bytes")
        try:
            return self._hub.take(stream, feed_pb2.ConnectRequest.FromString(data))
        except (protobuf.DecodeError, codec.Malformed) as error:
            return _malformed(error)


async def _read_hello(context: _Context) -> Hello | Refusal:
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            data: Any = await context.read()
    except TimeoutError:
        return Refusal(reason=Reason.NO_HELLO, detail=f"none within {HELLO_SECONDS:g} s")
    if data is _EOF:
        return Refusal(reason=Reason.NO_HELLO, detail="the stream ended first")
    try:
        request = feed_pb2.ConnectRequest.FromString(data)
        if request.WhichOneof("message") != "hello":
            return Refusal(reason=Reason.NO_HELLO, detail="something else came first")
        return pbform.from_pb(Hello, request.hello)
    except (protobuf.DecodeError, codec.Malformed) as error:
        return _malformed(error)


def _malformed(error: Exception) -> Refusal:
    return Refusal(reason=Reason.MALFORMED, detail=str(error)[:200])
