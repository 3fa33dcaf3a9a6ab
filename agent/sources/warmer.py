"""The agent's side of the warmer: hear how warm the node's images are.

In: the warmer's unix socket. Out: each state it tells, through a callback.

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
                why = f"{error.code().name}: {error.details()}"
            except codec.Malformed as error:
                why = f"what it says has no meaning: {error}"
            self._lost(why)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _RETRY_SECONDS[1])

    async def _watch(self) -> AsyncIterator[NodeWarmth]:
        options = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.insecure_channel(self._target, options=options) as channel:
            stub: Any = warmer_pb2_grpc.WarmerServiceStub(channel)
            async for response in stub.Watch(warmer_pb2.WatchRequest()):
                yield pbform.from_pb(NodeWarmth, response.warmth)

    def _lost(self, why: str) -> None:
        before = self._newest or warmth.NOTHING
        problem = f"{UNAVAILABLE}: {why}"[: warmth.MAX_TEXT]
        if before.store.problem.startswith(UNAVAILABLE):
            return
        _LOG.warning("the warmer is away", why=why)
        self._newest = dataclasses.replace(before, store=dataclasses.replace(before.store, problem=problem))
        self._hear(self._newest)
