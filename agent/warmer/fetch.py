"""Download blobs into containerd's content store ourselves, at a limited rate, from where the last try ended.

In: a blob, a registry, a lease. Out: the blob, committed under the lease, its digest checked by containerd.

Invariants: nothing that came is fetched again, whoever wrote it: the ingest has containerd's own name for the blob, so
that the kubelet's pull goes on where we stopped, and the other way round. Cancelling gives the ingest's lock up at once,
keeps its bytes, and parks the connection (parking.py). A blob that turns out wrong is thrown away whole, since nobody
knows which part is.

Why not containerd's pull: it has no bandwidth limit (images.md section 6.4c).
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from agent.model.warm import Descriptor, Reason, Reference
from agent.warmer import client, requests
from agent.warmer.parking import Parking, Source
from agent.warmer.registry import Blob, Credentials, Registry, RegistryFailed

CHUNK_BYTES = 1024 * 1024
"""containerd takes messages of up to 16 MiB; a smaller chunk yields sooner."""
LOCK_RETRY_SECONDS = 0.5

_PREFIXES = (("index", "index-"), ("manifest.list", "index-"), ("manifest", "manifest-"), ("layer", "layer-"))
_CONFIG_PREFIX = "config-"
_Opener = Callable[[int], Awaitable[Source]]


class Throttle:
    """A token bucket: so many bytes a second, None: as many as come."""

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate, self._monotonic, self._sleep = bytes_per_second, monotonic, sleep
        self._free_at = 0.0

    @property
    def bytes_per_second(self) -> float | None:
        return self._rate

    async def spend(self, size: int) -> None:
        """Wait until so many bytes may pass."""
        if self._rate is None:
            return
        now = self._monotonic()
        self._free_at = max(now, self._free_at) + size / self._rate
        await self._sleep(self._free_at - now)


def ref_of(blob: Descriptor) -> str:
    """Return containerd's name of a blob's ingest.

    >>> ref_of(Descriptor(digest="sha256:aa", size=1, kind="application/vnd.oci.image.layer.v1.tar+gzip"))
    'layer-sha256:aa'
    """
    kind = blob.kind
    is_layer = "rootfs" in kind
    prefix = "layer-" if is_layer else next((name for word, name in _PREFIXES if word in kind), _CONFIG_PREFIX)
    return prefix + blob.digest


class Fetcher:
    """Downloads for one pull."""

    def __init__(
        self, runtime: client.Client, registry: Registry, throttle: Throttle, parking: Parking, lease: str
    ) -> None:
        self._runtime, self._registry, self._throttle, self._lease = runtime, registry, throttle, lease
        self._parking = parking
        self.fetched_bytes = 0

    async def fetch(self, reference: Reference, blob: Descriptor, credentials: Credentials | None) -> None:
        """Have a blob in the store and under the lease; asks a second place once if the first serves wrong bytes."""
        try:
            await self._write(reference, blob, credentials, attempt=0)
        except client.CallFailed as error:
            if error.reason is not Reason.CORRUPT_BLOB:
                raise
            await self._runtime.abort(ref_of(blob))
            try:
                await self._write(reference, blob, credentials, attempt=1)
            except client.CallFailed as again:
                if again.reason is Reason.CORRUPT_BLOB:
                    await self._runtime.abort(ref_of(blob))
                raise
        await self._runtime.add_resource(self._lease, "content", blob.digest)

    async def put(self, blob: Descriptor, data: bytes) -> None:
        """Write a small blob that is at hand."""

        async def open_at(offset: int) -> Source:
            return Source(_Bytes(data[offset:]), offset)

        await self._stream(blob, open_at, Reference(host="", repository=""))
        await self._runtime.add_resource(self._lease, "content", blob.digest)

    async def _write(
        self, reference: Reference, blob: Descriptor, credentials: Credentials | None, *, attempt: int
    ) -> None:
        async def open_at(offset: int) -> Source:
            opening = asyncio.get_running_loop().run_in_executor(
                None,
                functools.partial(self._registry.open, reference, blob.digest, offset, credentials, attempt=attempt),
            )
            try:
                return Source(await asyncio.shield(opening), offset)
            except asyncio.CancelledError:
                # The thread goes on; what it opens waits for the next try like a connection that was begun.
                opening.add_done_callback(functools.partial(self._park_opened, blob.digest, offset))
                raise

        await self._stream(blob, open_at, reference)

    def _park_opened(self, digest: str, offset: int, opening: "asyncio.Future[Blob]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._parking.put(digest, Source(opening.result(), offset))

    async def _stream(self, blob: Descriptor, open_at: _Opener, reference: Reference) -> None:
        ref = ref_of(blob)
        while True:
            call = self._runtime.write_stream(self._lease)
            try:
                offset = await self._say(call, requests.write_stat(ref, blob))
                if offset is not None:
                    await self._copy(call, blob, offset, open_at, reference)
                return
            except client.CallFailed as error:
                if not _is_locked(error):
                    raise
                # Somebody else is writing this very blob; it is as good as ours when it is done.
                await asyncio.sleep(LOCK_RETRY_SECONDS)
            finally:
                call.cancel()

    async def _copy(self, call: Any, blob: Descriptor, offset: int, open_at: _Opener, reference: Reference) -> None:
        ref = ref_of(blob)
        source = await self._parking.take(blob.digest, offset) if offset < blob.size else Source(_Bytes(b""), offset)
        was_parked = source is not None
        source = source or await open_at(offset)
        try:
            while source.offset < blob.size:
                try:
                    data = await source.peek(min(CHUNK_BYTES, blob.size - source.offset))
                except RegistryFailed:
                    if not was_parked:
                        raise
                    # It was cut while it stood; that is no failure of the registry.
                    source.close()
                    source, was_parked = await open_at(source.offset), False
                    continue
                await self._throttle.spend(len(data))
                await self._say(call, requests.write_data(ref, source.offset, data))
                source.advance(len(data))
                self.fetched_bytes += len(data)
        except asyncio.CancelledError:
            self._parking.put(blob.digest, source)
            raise
        except BaseException:
            source.close()
            raise
        source.close()
        labels = {f"containerd.io/distribution.source.{reference.host}": reference.repository} if reference.host else {}
        await self._say(call, requests.write_commit(ref, blob, labels))

    async def _say(self, call: Any, request: Any) -> int | None:
        """Send one message of a write; return the offset, or None: the blob is there already."""
        try:
            await client.translated(call.write(request))
            answer = await client.translated(call.read())
            if answer is grpc.aio.EOF:  # type: ignore[attr-defined]
                await client.translated(_raised(call))
        except client.CallFailed as error:
            if error.code == "ALREADY_EXISTS":
                return None
            raise
        except asyncio.InvalidStateError:
            # The stream ended before our message; its status says why.
            await client.translated(_raised(call))
            raise
        return int(answer.offset)


class _Bytes:
    """What is at hand, as a body."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data

    def close(self) -> None:
        """Nothing is open."""


async def _raised(call: Any) -> None:
    """Raise what ended a stream."""
    code, detail = await call.code(), await call.details()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), detail, None)


def _is_locked(error: client.CallFailed) -> bool:
    return error.code == "UNAVAILABLE" and "locked" in error.detail
