"""Read the stream of one watch: what has changed, and how far we have heard.

In: a connection, one kind of the API, the version to go on from. Out: events, each with the version that it brings.

Invariants: a bookmark carries a version and nothing else. The API server sends it as an otherwise empty object, which
for Pods and Jobs is none that their types allow (`"containers": null`), so it is never decoded as one. A line ends at a
newline byte and nowhere else: text that a tenant writes into an annotation may hold whatever Unicode calls a line's end. A
stream ends within a minute, and goes on as another: by the end of each the API server has sent a bookmark, while a kind that
does not change may hear none for longer than anybody should have to wait for a sign of life (kube-apiserver 1.37).

Why not the client's own `watch`: lightkube 1.0 decodes bookmarks as objects, and splits lines as str.splitlines does.

Not here: what to do when the stream ends (watch.py).
"""

import dataclasses
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from lightkube.core import decoders, exceptions
from lightkube.core import resource as resources

STREAM_SECONDS = (40, 60)
"""How long one stream lasts, at random: two admitters and all their kinds do not come back in step."""
_BOOKMARK, _ERROR, _DELETED = "BOOKMARK", "ERROR", "DELETED"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a watch."""

    version: str
    """From which the watch can go on."""
    item: Any = None
    """The object; None: a bookmark."""
    is_gone: bool = False


async def follow(wire: httpx2.AsyncClient, resource: Any, version: str) -> AsyncIterator[Event]:
    """Yield what happens to all objects of a kind after `version`, until the API server ends the stream.

    ApiError if it says so in the stream, HTTPStatusError if it refuses the watch, ValueError for what cannot be read.
    """
    seconds = random.randint(*STREAM_SECONDS)  # noqa: S311 -- jitter
    parameters = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }
    # Silence is the caller's to judge.
    timeout = httpx2.Timeout(**{**wire.timeout.as_dict(), "read": None})
    async with wire.stream("GET", path_of(resource), params=parameters, timeout=timeout) as response:
        response.raise_for_status()
        async for line in _lines(response):
            yield _event(line, resource)


def path_of(resource: Any) -> str:
    """Return where all objects of a kind are, in all namespaces.

    >>> from lightkube.resources import batch_v1, core_v1
    >>> path_of(core_v1.Pod), path_of(batch_v1.Job)
    ('/api/v1/pods', '/apis/batch/v1/jobs')
    """
    info = resources.api_info(resource)
    group, version = info.resource.group, info.resource.version
    return f"/apis/{group}/{version}/{info.plural}" if group else f"/api/{version}/{info.plural}"


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest: list[bytes] = []
    async for chunk in response.aiter_bytes():
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest)
            rest = [other]
    if any(rest):
        # What the end of the stream cut off is told as what it is: no event.
        yield b"".join(rest)


def _event(line: bytes, resource: Any) -> Event:
    event = decoders.decode_watch_event(line)
    if event.type == _ERROR:
        raise exceptions.ApiError(status=decoders.decode_status(event.object))
    is_bookmark = event.type == _BOOKMARK
    item = decoders.decode_object(event.object, dict if is_bookmark else resource)
    try:
        version = item["metadata"]["resourceVersion"] if is_bookmark else item.metadata.resourceVersion
    except (KeyError, TypeError, AttributeError):
        version = None
    if not isinstance(version, str) or not version:
        raise ValueError(f"{event.type} without a resourceVersion")
    return Event(version=version, item=None if is_bookmark else item, is_gone=event.type == _DELETED)
