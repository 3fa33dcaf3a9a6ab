"""One stream to one admitter, from dial to end.

In: the newest state, through `Speaker`. Out: Hello, Snapshot, Deltas and Heartbeats on the wire; every answer handed to
the `Speaker`.

Invariant: the writer awaits the wire's flow control and holds nothing back but the newest state, so a slow admitter
costs neither memory nor time of the agent's loop.

Why a new channel for every stream: a stream that has reached its maximum age must prove its name again, and that takes a
new handshake.

Not here: when to dial again (feed.py).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf import message as protobuf

from agent.publish.outbox import Outbox
from muster import bearer, settings, tls
from muster.clock import Clock
from muster.model import protocol
from muster.pb.muster.v1 import feed_pb2

WELCOME_SECONDS = (10.0, 60.0)
"""How long a call waits for its welcome, and the longest: twice as long after each that was not welcomed. An admitter that has
just started takes a fleet in one by one; five thousand that hang up and dial again keep it from coming to an end. One that
is gone without a word is told by its keepalives."""
MIN_HEARTBEAT_SECONDS = 0.02
"""Whatever a welcome says, the agent does not spin."""

OPTIONS = (
    *tls.DIAL_OPTIONS,
    ("grpc.max_receive_message_length", protocol.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", protocol.MAX_MESSAGE_BYTES),
    # An admitter that is gone without a word is noticed within 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Streams share nothing: a new one means a new handshake.
    ("grpc.use_local_subchannel_pool", 1),
)

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in grpc-stubs


class StreamEnded(Exception):
    """The stream is over; the text says why."""


class Speaker(Protocol):
    """Whose words a session carries."""

    def hello(self) -> feed_pb2.ConnectRequest:
        """Return the first message."""

    def open_outbox(self, heartbeat_seconds: float) -> Outbox:
        """Return the memory of a new stream."""

    def next_message(self, outbox: Outbox) -> feed_pb2.ConnectRequest | None:
        """Return what the stream says next."""

    def hear(self, session: "FeedSession", response: feed_pb2.ConnectResponse) -> None:
        """Take an answer; the welcome comes first."""


class FeedSession:
    """One stream. `wake` tells its writer that there is something new."""

    def __init__(self, address: str, speaker: Speaker, clock: Clock) -> None:
        self.address = address
        self.welcome: feed_pb2.Welcome | None = None
        self._speaker = speaker
        self._clock = clock
        self._news = asyncio.Event()
        self._outbox: Outbox | None = None
        self._answers: list[feed_pb2.ImageAnswer] = []
        """Not sent yet; as many as were asked for."""

    def answer(self, found: feed_pb2.ImageAnswer) -> None:
        """Have an answer sent."""
        self._answers.append(found)
        self.wake()

    def wake(self) -> None:
        """Have the writer look at the newest state."""
        self._news.set()

    async def run(
        self,
        credentials: Callable[[], grpc.ChannelCredentials],
        metadata: Callable[[], bearer.Metadata] = lambda: (),
        *,
        patience: float = WELCOME_SECONDS[0],
    ) -> None:
        """Dial, speak and listen; always ends with StreamEnded. A token that kubelet has replaced is read anew."""
        try:
            async with grpc.aio.secure_channel(self.address, credentials(), options=OPTIONS) as channel:
                connect: Any = channel.stream_stream  # grpc-stubs wants the serialisers that bytes do without
                call = connect(protocol.METHOD)(metadata=metadata())
                try:
                    await self._speak(call, patience)
                finally:
                    call.cancel()
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(f"{error.code().name}: {error.details()}") from error
        except (grpc.aio.BaseError, asyncio.InvalidStateError, protobuf.DecodeError) as error:
            raise StreamEnded(str(error)) from error
        except settings.InvalidSettings as error:
            raise StreamEnded("; ".join(error.problems)) from error

    async def _speak(self, call: Any, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await call.write(self._speaker.hello().SerializeToString())
                await self._hear_next(call)
        except TimeoutError as error:
            raise StreamEnded(f"no welcome within {patience:g} s") from error
        if self.welcome is None or not protocol.is_compatible(self.welcome.protocol):
            raise StreamEnded("the admitter did not welcome us, or in a version that we do not speak")
        self._outbox = self._speaker.open_outbox(_heartbeat_seconds(self.welcome))
        halves = (
            asyncio.create_task(self._listen(call)),
            asyncio.create_task(self._write_all(call, self._outbox)),
        )
        try:
            done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            for half in done:
                half.result()
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)

    async def _listen(self, call: Any) -> None:
        while True:
            await self._hear_next(call)

    async def _write_all(self, call: Any, outbox: Outbox) -> None:
        while True:
            self._news.clear()
            if self._answers:
                found, self._answers = self._answers, []
                answers = feed_pb2.ConnectRequest(answers=feed_pb2.ImageAnswers(answers=found))
                await call.write(answers.SerializeToString())
            message = self._speaker.next_message(outbox)
            if message is not None:
                await call.write(message.SerializeToString())
                continue
            try:
                async with asyncio.timeout(outbox.patience(self._clock.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _hear_next(self, call: Any) -> None:
        data = await call.read()
        if data is _EOF:
            status = await call.code()
            raise StreamEnded(f"{status.name}: {await call.details()}")
        response = feed_pb2.ConnectResponse.FromString(data)
        kind = response.WhichOneof("message")
        if kind == "welcome":
            self.welcome = response.welcome
            if self._outbox is not None:
                self._outbox.heartbeat_seconds = _heartbeat_seconds(response.welcome)
        elif kind == "resync" and self._outbox is not None:
            self._outbox.resync()
            self.wake()
        self._speaker.hear(self, response)


def _heartbeat_seconds(welcome: feed_pb2.Welcome) -> float:
    return max(welcome.heartbeat_ms / 1000, MIN_HEARTBEAT_SECONDS)
