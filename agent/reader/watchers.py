"""Tell every open Watch stream what happened.

Invariant: publishing never waits. A watcher that does not keep up is cut off, so that it dials again and scans: silently
dropping events from its middle would look like nothing had happened.
"""

import asyncio

from muster.pb.muster.reader.v1 import reader_pb2

_LONGEST_BACKLOG = 1000


class Watcher:
    """One stream's backlog."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[reader_pb2.WatchResponse | None] = asyncio.Queue()
        self._is_cut_off = False

    def offer(self, event: reader_pb2.WatchResponse | None) -> None:
        """Add an event, or the end of the stream."""
        self._is_cut_off = self._is_cut_off or self._events.qsize() >= _LONGEST_BACKLOG
        if not self._is_cut_off:
            self._events.put_nowait(event)

    async def next(self) -> reader_pb2.WatchResponse | None:
        """Return the next event, or None at the end."""
        return None if self._is_cut_off else await self._events.get()


class Watchers:
    """All streams."""

    def __init__(self) -> None:
        self._open: set[Watcher] = set()
        self._has_ended = False

    def subscribe(self) -> Watcher:
        """Return a new stream's backlog."""
        watcher = Watcher()
        if self._has_ended:
            watcher.offer(None)
        self._open.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        """Forget a stream."""
        self._open.discard(watcher)

    def publish(self, event: reader_pb2.WatchResponse) -> None:
        """Tell all streams."""
        for watcher in self._open:
            watcher.offer(event)

    def end(self) -> None:
        """End all streams, and every later one at once."""
        self._has_ended = True
        for watcher in self._open:
            watcher.offer(None)
