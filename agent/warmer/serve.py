"""The warmer's gRPC service: the agent watches the images, tells hints and starting pods, and asks what a reference is.

Invariants: one warmer serves a socket; a second one on it is refused by name. A watcher that is slow gets the newest
state, never a backlog. A change to the worse is told at once, others at most every `CALM_SECONDS`.
"""

import asyncio
import contextlib
import errno
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from agent import unixserver
from agent.core import warmref
from agent.model.warm import Failure, Refused, Wanted
from agent.warmer import engine
from agent.warmer.config import WarmerConfig
from agent.warmer.resolve import Resolution
from muster.model import pbform, warmth
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

CALM_SECONDS = 0.5
MAX_HINTS = 200


class WarmerService(warmer_pb2_grpc.WarmerServiceServicer):
    """Answers the agent."""

    def __init__(self, config: WarmerConfig, working: engine.Engine) -> None:
        self._config, self._engine = config, working

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        """Stream the newest state."""
        version, sent = 0, None
        while True:
            version, newest = await self._engine.newer(version)
            if not engine.has_fallen(sent, newest):
                await asyncio.sleep(CALM_SECONDS)
                newest = self._engine.warmth or newest
                version = self._engine.version
            sent = newest
            response = warmer_pb2.WatchResponse()
            pbform.fill(response.warmth, newest)
            yield response

    async def Tell(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Take hints and starting pods; a hint that may not be followed is left out, not an error.

        So are those beyond MAX_HINTS, the least likely ones: pulls stand back for starting pods whatever the list is like.
        """
        self._engine.busy.starting(request.starting_pods)
        wanted, shown = [], {}
        for hint in request.hints[:MAX_HINTS]:
            reference = warmref.parse(hint.reference)
            if isinstance(reference, Refused) or not reference.digest:
                continue
            if reference.host in self._config.hint_registries:
                wanted.append(Wanted(reference=reference, is_hint=True, secret=hint.secret))
                if hint.HasField("credential"):
                    shown[str(reference)] = (hint.credential.username, hint.credential.password)
        self._engine.hint(tuple(wanted), shown)
        return warmer_pb2.TellResponse()

    async def Resolve(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Ask a registry what a reference is now."""
        reference = warmref.parse(request.reference)
        if isinstance(reference, Refused):
            return warmer_pb2.ResolveResponse(reason=reference.reason.value, detail=reference.detail)
        shown = (request.credential.username, request.credential.password) if request.HasField("credential") else None
        match await self._engine.resolve(reference, shown):
            case Failure(reason=reason, detail=detail):
                return warmer_pb2.ResolveResponse(reason=reason.value, detail=detail)
            case resolution:
                return _answer(resolution)


def _answer(resolution: Resolution) -> Any:
    """Return what a reference is; an image that cannot be warmed has a digest all the same, and no layers."""
    answer, image = warmer_pb2.ResolveResponse(digest=resolution.root.digest), resolution.image
    if isinstance(image, Refused):
        answer.detail = f"{image.reason.value}: {image.detail}"
        return answer
    answer.bytes_total = sum(blob.size for blob in image.blobs)
    for layer in image.layers:
        answer.layers.add(prefix=warmth.layer_prefix(layer.chain_id), bytes=layer.blob.size)
    return answer


@contextlib.asynccontextmanager
async def serving(service: WarmerService, path: pathlib.Path) -> AsyncIterator[None]:
    """Serve on the socket until the block ends; OSError where another warmer does."""
    if unixserver.is_served(path):
        raise OSError(errno.EADDRINUSE, "another warmer answers there")
    server = grpc.aio.server()
    warmer_pb2_grpc.add_WarmerServiceServicer_to_server(service, server)
    await unixserver.start(server, path, 0o660)
    try:
        yield
    finally:
        await server.stop(grace=0.2)
