"""Ask the sockets of device plugins and DRA drivers who they are, and remember what they said.

Input: the sockets of a Listing. Output: for each, the last answer or that there is none: a plugin's options, a driver's name.

Invariant: only questions that change nothing: GetDevicePluginOptions and GetInfo. Never ListAndWatch: a plugin hands each change
of health to one of its streams, so a second one would take it from the kubelet (faults.md S16). A driver of another kind (CSI)
is asked once and left alone. Nothing here waits without a deadline, and nobody waits for it: the answers are a table.
Silent is only what nobody serves, or what let the deadline pass: it takes a driver's whole capacity (faults.md G3). What we may
not dial, and what answers anything else, is not.

Not here: which sockets there are (sockets.py), and what silence means (agent/core/rules/dra.py).
"""

import asyncio
import contextlib
import dataclasses
import errno
import logging
import os
import pathlib
import socket as unix
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from agent.reader import sockets, workers
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2 as plugin_pb2
from muster.pb.kubelet.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as plugin_rpc
from muster.pb.kubelet.pluginregistration.v1 import pluginregistration_pb2 as driver_pb2
from muster.pb.kubelet.pluginregistration.v1 import pluginregistration_pb2_grpc as driver_rpc

_log = logging.getLogger("muster.reader")

DEADLINE_SECONDS = 2.0
"""Of one question; a plugin that needs longer is asked again in the next round."""
_SOON_SECONDS = 1.0
"""Between two rounds at least."""
_MOST_BYTES = 64 * 1024
_LONGEST_PATH = 107
"""sun_path of unix(7): a longer path cannot be dialled, which says nothing about who serves it."""
_DRA = "DRAPlugin"
_NOT_ASKED = Unknown("NotAsked", "nobody has asked it yet")
_NAMELESS = Unknown("NameNotSaid", "somebody serves the socket and has never said its name")
_UNSERVED = (errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN)
"""What the kernel says of a socket that nobody serves: closed, gone, or a queue that nobody has emptied for long (unix(7))."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a socket said when it was asked last."""

    socket: sockets.Socket
    answering: Reading[bool]
    kind: str = ""
    """Of a driver; empty: it has never said."""
    name: str = ""
    has_preferred_allocation: Reading[bool] = _NOT_ASKED


class SocketCalls:
    """Belongs to one event loop; `of` may be asked from any thread, since the table of answers is replaced whole."""

    def __init__(self, look: Callable[[], Awaitable[sockets.Listing]], period_seconds: float) -> None:
        self._look, self._period = look, period_seconds
        self._answers: dict[pathlib.Path, Answer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unasked = asyncio.Event()

    async def run(self) -> None:
        """Ask all of them, again and again, until cancelled; sooner once somebody wants to know of one that was not asked."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                self._unasked.clear()
                await self.ask_all()
                await asyncio.sleep(min(_SOON_SECONDS, self._period))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._period):
                        await self._unasked.wait()
        finally:
            self._loop = None

    async def ask_all(self) -> None:
        """Ask every socket that is there, once; never raises."""
        try:
            await self._ask_listed(await self._look())
        except (OSError, workers.Overdue) as error:
            _log.warning("the kubelet's folders could not be listed: %r", error)
        except Exception as error:  # noqa: BLE001 -- nobody watches this task, and answers that no round renews would stand for ever
            _log.exception("the sockets could not be asked")
            failed = Unknown(type(error).__name__, str(error)[:200])
            self._answers = {
                path: dataclasses.replace(answer, answering=failed, has_preferred_allocation=failed)
                for path, answer in self._answers.items()
            }

    async def _ask_listed(self, listing: sockets.Listing) -> None:
        plugins = (*sockets.known(listing.plugins), *listing.elsewhere)
        asked = [self._ask(socket, _ask_plugin) for socket in plugins]
        asked += [self._ask(socket, _ask_driver) for socket in sockets.known(listing.drivers)]
        self._answers = {answer.socket.path: answer for answer in await asyncio.gather(*asked)}

    def of(self, socket: sockets.Socket) -> Answer:
        """Return the last answer of this very socket; one that has none is asked soon: its driver has just started."""
        answer = self._last(socket)
        loop = self._loop
        if answer.answering == _NOT_ASKED and loop is not None:
            loop.call_soon_threadsafe(self._unasked.set)
        return answer

    def _last(self, socket: sockets.Socket) -> Answer:
        answer = self._answers.get(socket.path)
        return answer if answer is not None and answer.socket == socket else Answer(socket=socket, answering=_NOT_ASKED)

    async def _ask(self, socket: sockets.Socket, question: "Question") -> Answer:
        before = self._last(socket)
        if before.kind not in ("", _DRA):
            return before
        if len(bytes(socket.path)) > _LONGEST_PATH:
            return Answer(socket=socket, answering=Unknown("PathTooLong", str(socket.path)))
        options = (("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.use_local_subchannel_pool", 1))
        try:
            async with grpc.aio.insecure_channel(f"unix:{socket.path}", options=options) as channel:
                return await question(channel, socket)
        except grpc.aio.AioRpcError as error:
            return dataclasses.replace(before, answering=_heard(error.code(), socket.path))


Question = Callable[[grpc.aio.Channel, sockets.Socket], Awaitable[Answer]]


async def _ask_plugin(channel: grpc.aio.Channel, socket: sockets.Socket) -> Answer:
    said: Any = await plugin_rpc.DevicePluginStub(channel).GetDevicePluginOptions(
        plugin_pb2.Empty(), timeout=DEADLINE_SECONDS
    )
    return Answer(
        socket=socket,
        answering=Known(value=True),
        has_preferred_allocation=Known(bool(said.get_preferred_allocation_available)),
    )


async def _ask_driver(channel: grpc.aio.Channel, socket: sockets.Socket) -> Answer:
    said: Any = await driver_rpc.RegistrationStub(channel).GetInfo(driver_pb2.InfoRequest(), timeout=DEADLINE_SECONDS)
    return Answer(socket=socket, answering=Known(value=True), kind=said.type[:64], name=said.name[:253])


def _heard(status: grpc.StatusCode, path: pathlib.Path) -> Reading[bool]:
    """Return whether somebody answers there, from a call that failed."""
    match status:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Known(value=False)
        case grpc.StatusCode.UNAVAILABLE:
            return _dialled(path)
        case _:
            return Known(value=True)


def _dialled(path: pathlib.Path) -> Reading[bool]:
    """Dial the socket once without gRPC, which has no code for why it could not connect."""
    with unix.socket(unix.AF_UNIX, unix.SOCK_STREAM) as dialling:
        dialling.settimeout(0)
        failed = dialling.connect_ex(bytes(path))
    if failed in _UNSERVED:
        return Known(value=False)
    name = errno.errorcode.get(failed, str(failed))
    return (
        Unknown(name, os.strerror(failed)) if failed else Unknown("NoAnswer", "it is served, and the call was cut off")
    )


def drivers(listing: sockets.Listing, calls: SocketCalls) -> Reading[tuple[kube.DraDriver, ...]]:
    """Return the drivers whose registration sockets are there; one that has never said its name goes by its socket's.

    Such a one is never called answering: whose answer it is, nobody knows.
    """
    match listing.drivers:
        case Unknown() as unread:
            return unread
        case Known(found):
            answers = [calls.of(socket) for socket in found]
    return Known(
        tuple(
            kube.DraDriver(
                name=answer.name or name_of(answer.socket.path.name),
                registration_socket_present=Known(value=True),
                answering=_NAMELESS if not answer.name and answer.answering == Known(value=True) else answer.answering,
            )
            for answer in answers
            if answer.kind in ("", _DRA)
        )
    )


def name_of(file: str) -> str:
    """Return the driver whose registration socket has this name, as the helper of DRA drivers names it.

    >>> name_of("gpu.nvidia.com-reg.sock"), name_of("odd.sock")
    ('gpu.nvidia.com', 'odd')
    """
    return file.removesuffix(".sock").removesuffix("-reg")


def preferred_allocation(listing: sockets.Listing, calls: SocketCalls) -> str:
    """Return `true` or `false` as a plugin of ours says, or empty where none has said."""
    said = [calls.of(socket).has_preferred_allocation for socket in sockets.known(listing.plugins)]
    values = {reading.value for reading in said if isinstance(reading, Known)}
    return str(any(values)).lower() if values else ""


def elsewhere(listing: sockets.Listing, calls: SocketCalls) -> sockets.Socket | None:
    """Return a plugin that serves in a folder without a kubelet; one that nobody serves any more was left behind."""
    return next((socket for socket in listing.elsewhere if calls.of(socket).answering == Known(value=True)), None)
