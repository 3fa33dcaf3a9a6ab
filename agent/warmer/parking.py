"""Downloads that were interrupted, connection and all, until they go on.

In: the rest of a blob as it comes. Out: the same, when the blob is asked for again from where it stood.

Invariants: a byte that reached the node is never thrown away while its connection is parked: a read that is interrupted
goes on by itself, and what it brings is kept until it is stored. Nobody reads a parked connection, so its window closes
and no more comes. What stands for longer than PARK_SECONDS is closed.

Why not close it at once: up to some MiB lie in the two kernels' buffers, and all of that would be fetched again.
"""

import asyncio
from typing import Protocol

from agent.model.warm import Reason
from agent.warmer.registry import RegistryFailed

PARK_SECONDS = 300.0
"""A registry gives up earlier; what it had sent by then is still here to be read."""


class Body(Protocol):
    """What can be read, in threads."""

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class Source:
    """The rest of a blob, from `offset` on."""

    def __init__(self, body: Body, offset: int) -> None:
        self._body, self.offset = body, offset
        self._reading: asyncio.Future[bytes] | None = None
        self._rest = b""

    async def peek(self, size: int) -> bytes:
        """Return what comes next, the same again until `advance` says that it is stored; RegistryFailed at the end."""
        if not self._rest:
            if self._reading is None:
                self._reading = asyncio.ensure_future(asyncio.to_thread(self._body.read, size))
            # A failure stays: this source is of no more use.
            self._rest = await asyncio.shield(self._reading)
            if not self._rest:
                raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"the connection was cut at {self.offset} bytes")
            self._reading = None
        return self._rest[:size]

    def advance(self, size: int) -> None:
        """Let go of so many bytes of what `peek` returned."""
        self._rest, self.offset = self._rest[size:], self.offset + size

    def close(self) -> None:
        """Give the connection up; a read that waits ends with it."""
        self._body.close()
        self._rest = b""
        if self._reading is not None:
            self._reading.add_done_callback(_forget)


class Parking:
    """What stands, by digest. Belongs to one event loop."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[Source, asyncio.TimerHandle]] = {}

    def put(self, digest: str, source: Source) -> None:
        """Keep a source until it is taken."""
        self.drop(digest)
        timer = asyncio.get_running_loop().call_later(PARK_SECONDS, self.drop, digest)
        self._parked[digest] = (source, timer)

    async def take(self, digest: str, offset: int) -> Source | None:
        """Return the source of a blob if it goes on at that offset; else it is closed and there is none."""
        if digest not in self._parked:
            return None
        source, timer = self._parked.pop(digest)
        timer.cancel()
        stored = offset - source.offset
        try:
            # What was under way when it was interrupted may have been stored, or not.
            if stored and 0 < stored <= len(await source.peek(stored)):
                source.advance(stored)
        except RegistryFailed:
            pass
        except asyncio.CancelledError:
            self.put(digest, source)
            raise
        if source.offset == offset:
            return source
        source.close()
        return None

    def close(self) -> None:
        """Give everything up."""
        for digest in tuple(self._parked):
            self.drop(digest)

    def drop(self, digest: str) -> None:
        """Give one up, if there is one."""
        source, timer = self._parked.pop(digest, (None, None))
        if source is not None and timer is not None:
            timer.cancel()
            source.close()


def _forget(reading: "asyncio.Future[bytes]") -> None:
    """Hear of a failure that concerns nobody any more."""
    if not reading.cancelled():
        reading.exception()
