"""One agent's stream, from the admitter's end: what waits to be sent, and who may still speak on it.

In: whatever the hub wants the agent to know. Out: bytes on the wire, the newest of each kind only.

Invariant: a slow agent costs the admitter one pending message of each kind, never a queue; a newer one replaces it.

Why a task only while something waits: five thousand idle writers would cost more memory than what they guard.
"""

import asyncio
from typing import Any

import grpc

from admitter.core.feedstate import Refusal
from admitter.model.feedmessages import Hello
from muster.pb.muster.v1 import feed_pb2

BUDGET = 200
"""Messages of one stream between two ticks. A node changes a few times a second; the rest waits in its own socket."""
LAST_WRITE_SECONDS = 2.0
"""An agent that does not read for so long is cut off without a word."""


class FeedStream:
    """A connected agent. Used by the hub's event loop only."""

    def __init__(self, node: str, hello: Hello, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        self.node = node
        """The authenticated one."""
        self.hello = hello
        self.budget = BUDGET
        self.is_awaiting_snapshot = False
        """A Resync is on its way: what comes before the Snapshot is not looked at."""
        self.ended_by: Refusal | None = None
        self._context = context
        self._reader = asyncio.current_task()
        self._pending: dict[str, bytes] = {}
        self._writer: asyncio.Task[None] | None = None
        self._refilled: asyncio.Event | None = None

    def send(self, response: feed_pb2.ConnectResponse) -> None:
        """Have a message sent soon, in place of one of its kind that still waits."""
        kind = response.WhichOneof("message")
        assert kind is not None
        self._pending[kind] = response.SerializeToString()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    def resync(self, reason: str) -> None:
        """Ask for a Snapshot."""
        self.send(feed_pb2.ConnectResponse(resync=feed_pb2.Resync(reason=reason)))

    def end(self, refusal: Refusal) -> None:
        """Wake the reader, which then ends the stream with that refusal."""
        if self.ended_by is None and self._reader is not None:
            self.ended_by = refusal
            self._reader.cancel()

    def refill(self) -> None:
        """Let the agent speak again."""
        self.budget = BUDGET
        if self._refilled is not None:
            self._refilled.set()

    async def rest(self) -> None:
        """Wait for the next tick: an agent that floods is read no faster than it may speak."""
        self._refilled = asyncio.Event()
        await self._refilled.wait()
        self._refilled = None

    async def close(self) -> None:
        """Stop writing, once what is on its way has left: gRPC has no status to send beside a message."""
        self._pending.clear()
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=LAST_WRITE_SECONDS)
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while self._pending:
                kind = next(iter(self._pending))
                await self._context.write(self._pending.pop(kind))
        except grpc.aio.BaseError:
            # The agent is gone; the reader learns it too, and ends the stream.
            self._pending.clear()
        finally:
            self._writer = None
