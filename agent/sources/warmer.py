"""The agent's side of the warmer: hear how warm the node's images are, tell it what is wanted, ask it what images are.

In: the warmer's unix socket. Out: each state it tells, through a callback; answers.

Invariant: the warmer can be missing, hang or die and costs the agent nothing: one stream in a task of its own, dialled
again after a pause. When it is away the last state is told with its problem, so that nobody takes it for current.
"""

import asyncio
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from muster.model import codec, pbform, warmth
from muster.model.warmth import NodeWarmth
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

_LOG = structlog.get_logger(__name__)

UNAVAILABLE = "WarmerUnavailable"
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_RETRY_SECONDS = (0.5, 10.0)
TELL_SECONDS = 5.0
RESOLVE_SECONDS = 30.0
"""A registry is asked up to three times, with and without credentials."""


class WarmerClient:
    """One warmer."""

    def __init__(self, socket: pathlib.Path, hear: Callable[[NodeWarmth], None]) -> None:
        self._target, self._hear = f"unix:{socket}", hear
        self._newest: NodeWarmth | None = None

    async def run(self) -> None:
        """Follow the warmer until cancelled."""
        pause = _RETRY_SECONDS[0]
        while True:
            try:
                async for state in self._watch():
                    pause = _RETRY_SECONDS[0]
                    self._newest = state
                    self._hear(state)
                why = "the stream ended"
            except grpc.aio.AioRpcError as error:
                why = _why(error)
            except codec.Malformed as error:
                why = f"what it says has no meaning: {error}"
            self._lost(why)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _RETRY_SECONDS[1])

    async def tell(self, request: warmer_pb2.TellRequest) -> str:
        """Say what is wanted and who is starting; return why the warmer did not hear it, empty if it did."""
        try:
            async with self._channel() as channel:
                await _stub(channel).Tell(request, timeout=TELL_SECONDS)
        except grpc.aio.AioRpcError as error:
            return _why(error)
        return ""

    async def resolve(self, request: warmer_pb2.ResolveRequest) -> warmer_pb2.ResolveResponse:
        """Ask what a reference is now; a warmer that does not answer is a reason of its own."""
        try:
            async with self._channel() as channel:
                answer: warmer_pb2.ResolveResponse = await _stub(channel).Resolve(request, timeout=RESOLVE_SECONDS)
                return answer
        except grpc.aio.AioRpcError as error:
            return warmer_pb2.ResolveResponse(reason=UNAVAILABLE, detail=_why(error))

    def _channel(self) -> grpc.aio.Channel:
        options = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.use_local_subchannel_pool", 1))
        return grpc.aio.insecure_channel(self._target, options=options)

    async def _watch(self) -> AsyncIterator[NodeWarmth]:
        async with self._channel() as channel:
            async for response in _stub(channel).Watch(warmer_pb2.WatchRequest()):
                yield pbform.from_pb(NodeWarmth, response.warmth)

    def _lost(self, why: str) -> None:
        before = self._newest or warmth.NOTHING
        problem = f"{UNAVAILABLE}: {why}"[: warmth.MAX_TEXT]
        if before.store.problem.startswith(UNAVAILABLE):
            return
        _LOG.warning("the warmer is away", why=why)
        self._newest = dataclasses.replace(before, store=dataclasses.replace(before.store, problem=problem))
        self._hear(self._newest)


def _stub(channel: grpc.aio.Channel) -> Any:
    return warmer_pb2_grpc.WarmerServiceStub(channel)


def _why(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
