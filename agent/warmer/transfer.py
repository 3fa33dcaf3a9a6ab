"""containerd's Transfer service: a pull that says how far it is, in bytes and layers, while it unpacks too.

In: a reference with all that a pull needs. Out: its progress, event by event; CallFailed.

Invariants: a password is only ever given for the registry's own host, never for a mirror, and only when containerd asks.
When the pull ends, however it ends, so do its side channels.

A transfer names the tag alone (images.md section 4, rule 9); whoever wants the runtime's other names pulls through CRI
afterwards, which finds everything there.

Not here: whether this containerd has the service (abilities.py), what progress adds up to (core/warmprogress.py).
"""

import asyncio
import dataclasses
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from agent.core.warmprogress import Progress
from agent.model.warm import Platform, Reference
from agent.warmer import client, requests
from muster.pb.containerd.v1 import transfertypes_pb2

LAST_WORDS_SECONDS = 2.0
_SAME_HOST = {"docker.io": "registry-1.docker.io"}
"""Where the registry of a name answers, if not at that name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One pull."""

    reference: Reference
    platform: Platform
    snapshotter: str
    hosts_folder: str
    """As containerd sees it; empty: as it is configured."""
    labels: Mapping[str, str]
    """On the image record, from its first moment."""
    credentials: requests.Credentials | None
    lease: str


async def pull(runtime: client.Client, wish: Wish, note: Callable[[Progress], None]) -> None:
    """Pull and unpack; cancelling it leaves what has come under the lease."""
    stream, auth = f"muster-{uuid.uuid4().hex}", ""
    progress = await _opened(runtime, stream)
    listening = [asyncio.create_task(_hear(progress, note))]
    calls = [progress]
    try:
        if wish.credentials is not None:
            auth = f"{stream}-auth"
            calls.append(await _opened(runtime, auth))
            listening.append(asyncio.create_task(_answer(calls[-1], wish)))
        request = requests.transfer(
            str(wish.reference),
            platform=wish.platform,
            snapshotter=wish.snapshotter,
            hosts_folder=wish.hosts_folder,
            labels=wish.labels,
            stream=stream,
            auth_stream=auth,
        )
        await runtime.transfer(request, lease=wish.lease)
        # What is still on its way; containerd closes the channel behind its last word.
        await asyncio.wait(listening[:1], timeout=LAST_WORDS_SECONDS)
    finally:
        for call in calls:
            call.cancel()
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def _opened(runtime: client.Client, stream: str) -> Any:
    """Open a side channel; its first answer says that it is known."""
    call = runtime.side_stream()
    try:
        await client.translated(call.write(requests.stream_init(stream)))
        await client.translated(call.read())
    except BaseException:
        call.cancel()
        raise
    return call


async def _hear(call: Any, note: Callable[[Progress], None]) -> None:
    while (said := await client.translated(call.read())) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        message = transfertypes_pb2.Progress.FromString(said.value)
        note(Progress(event=message.event, name=message.name, done=message.progress, total=message.total))


async def _answer(call: Any, wish: Wish) -> None:
    own = {wish.reference.host, _SAME_HOST.get(wish.reference.host, wish.reference.host)}
    while (said := await client.translated(call.read())) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        asked = transfertypes_pb2.AuthRequest.FromString(said.value)
        answer = requests.auth_response(wish.credentials if asked.host in own else None)
        await client.translated(call.write(answer))
