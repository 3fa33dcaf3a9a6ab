"""The agent's own socket: what `muster-agent release` and `capture` ask of a running agent.

In: one JSON line a connection, `{"command": "release", "minutes": 10}` or `{"command": "capture", "lines": 3}`. Out: JSON
lines, then the end of the stream; `{"error": ...}` for what cannot be done.

Invariant: only who may open the socket may ask (mode 0600 in a directory of ours): it can close NVML, so it is not on
HTTP. A client that says nothing, too much, or nonsense is answered with an error within `REQUEST_SECONDS` and dropped.
"""

import asyncio
import contextlib
import errno
import json
import os
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog

from agent import unixserver

_LOG = structlog.get_logger(__name__)

REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 4096
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A capture line of a node with thousands of pods."""

Answer = Callable[[Mapping[str, Any]], AsyncIterator[Mapping[str, Any]]]


class BadRequest(ValueError):
    """The request is no request; the text goes back to the client."""


class ControlServer:
    """Serves commands until closed."""

    def __init__(self, path: pathlib.Path, commands: Mapping[str, Answer]) -> None:
        self._path = path
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._own: unixserver.File | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen; a socket left by an agent that is gone is replaced, one that answers is an OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if await _is_served(self._path):
            raise OSError(errno.EADDRINUSE, "another agent answers there")
        self._path.unlink(missing_ok=True)
        # The mode must be right from the first moment, so it comes from the umask and not from a later chmod.
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, path=str(self._path), limit=MAX_REQUEST_BYTES)
            self._own = unixserver.identity(self._path)
        finally:
            os.umask(before)

    async def close(self) -> None:
        """Stop, dropping whoever is still waiting."""
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            if unixserver.identity(self._path) == self._own:  # Else a successor's.
                self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in self._answers(reader):
                writer.write(json.dumps(line).encode() + b"\n")
                await writer.drain()
        except OSError as error:
            _LOG.debug("a control client left", error=str(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answers(self, reader: asyncio.StreamReader) -> AsyncIterator[Mapping[str, Any]]:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = _parse(await reader.readline())
            answer = self._commands.get(request["command"])
            if answer is None:
                raise BadRequest(f"{request['command']!r} is none of {', '.join(sorted(self._commands))}")
            async for line in answer(request):
                yield line
        except TimeoutError:
            yield {"error": f"no request within {REQUEST_SECONDS:.0f} s"}
        except ValueError as error:
            yield {"error": str(error)}


def _parse(line: bytes) -> Mapping[str, Any]:
    request = json.loads(line)
    if not isinstance(request, dict) or not isinstance(request.get("command"), str):
        raise BadRequest("expected an object with a command")
    return request


async def ask(path: pathlib.Path, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
    """Yield a running agent's answers; OSError if none listens."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_LINE_BYTES)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def talk(path: pathlib.Path, request: Mapping[str, Any], hear: Callable[[dict[str, Any]], None]) -> None:
    """Ask a running agent and hear its answers one by one; OSError if none listens."""

    async def converse() -> None:
        async for answer in ask(path, request):
            hear(dict(answer))

    asyncio.run(converse())


async def _is_served(path: pathlib.Path) -> bool:
    """True if somebody accepts connections at the path."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_unix_connection(str(path)), REQUEST_SECONDS)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
