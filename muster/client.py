"""Talk to an admitter: ask for gangs, watch what the nodes can serve.

For third parties: an admitter of one's own on top of the merged feed, or a job submitter that wants gangs. docs/client.md
has worked examples.

Invariant: a connection that breaks is dialled again, with the gang's own request_id and every member said so far, so a
state is missed at most, never invented. A refusal (bad request, wrong certificate, a newer stream) is raised, not retried.
"""

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import grpc

from muster import tls
from muster.model import admission
from muster.model.admission import CapacityChange, Ended, Gang, State
from muster.pb.muster.v1 import admission_pb2, admission_pb2_grpc, inspect_pb2, inspect_pb2_grpc

PAUSE_SECONDS = (0.2, 5.0)
"""First and longest pause before dialling again."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.NOT_FOUND,
    }
)
"""Trying again would get the same answer."""


class Refused(Exception):
    """The admitter said no to the call itself. `code` is gRPC's, `detail` the admitter's words."""

    def __init__(self, code: grpc.StatusCode, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code = code
        self.detail = detail


class Unreachable(Exception):
    """There was no answer."""


@contextlib.asynccontextmanager
async def connect(address: str, files: tls.Files) -> "AsyncIterator[Client]":
    """Connect to an admitter at host:port with a client's certificate."""
    options = (
        *tls.DIAL_OPTIONS,
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # gRPC's own pause between dials grows to two minutes; ours is what the caller waits for.
        ("grpc.initial_reconnect_backoff_ms", int(PAUSE_SECONDS[0] * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(PAUSE_SECONDS[1] * 1000)),
    )
    async with grpc.aio.secure_channel(address, tls.channel_credentials(files), options=options) as channel:
        yield Client(channel)


class Client:
    """One connection to one admitter."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._admission = admission_pb2_grpc.AdmissionServiceStub(channel)
        self._inspect = inspect_pb2_grpc.InspectServiceStub(channel)

    @contextlib.asynccontextmanager
    async def admit(self, gang: Gang) -> "AsyncIterator[GangStream]":
        """Ask for a gang and hold it; leaving the block without `end` gives it up after the admitter's grace."""
        stream = GangStream(self._admission, gang)
        task = asyncio.create_task(stream.run())
        try:
            yield stream
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def watch_capacity(self, nodes: Iterable[str] = ()) -> AsyncIterator[CapacityChange]:
        """Yield the full state, then changes, over reconnections too; `nodes` empty: of all nodes."""
        request = inspect_pb2.WatchCapacityRequest(nodes=tuple(nodes))
        known: set[str] = set()
        pauses = _Pauses()
        while True:
            listed: set[str] = set()
            is_synced = False
            try:
                async for message in self._inspect.WatchCapacity(request):
                    pauses.reset()
                    change = admission.change_of(message)
                    listed |= change.nodes.keys()
                    if change.synced and not is_synced:
                        # What went away while nobody listened is not in the new full state.
                        gone = known - listed - set(change.removed)
                        change = dataclasses.replace(change, removed=(*change.removed, *sorted(gone)))
                    is_synced = is_synced or change.synced
                    known = (known | change.nodes.keys()) - set(change.removed)
                    yield change
            except grpc.aio.AioRpcError as error:
                _raise_if_final(error)
            await pauses.wait()

    async def list_capacity(self, timeout_seconds: float) -> tuple[CapacityChange, ...]:
        """Return the full state as it is now; Unreachable if there is no answer in time."""
        changes = []
        with _answers():
            async for message in self._inspect.WatchCapacity(
                inspect_pb2.WatchCapacityRequest(), timeout=timeout_seconds
            ):
                changes.append(admission.change_of(message))
                if message.synced:
                    break
        return tuple(changes)

    async def status(self, timeout_seconds: float) -> inspect_pb2.StatusResponse:
        """Return who the admitter is, its nodes in short and every gang."""
        with _answers():
            return await self._inspect.Status(inspect_pb2.StatusRequest(), timeout=timeout_seconds)

    async def why(self, namespace: str, name: str, timeout_seconds: float) -> inspect_pb2.GangStatus:
        """Return everything about one gang; Refused with NOT_FOUND if it has not asked."""
        request = inspect_pb2.WhyRequest(gang=inspect_pb2.GangName(namespace=namespace, name=name))
        with _answers():
            return (await self._inspect.Why(request, timeout=timeout_seconds)).gang

    async def why_pod(self, namespace: str, name: str, timeout_seconds: float) -> inspect_pb2.PodStatus:
        """Return why a pod does not run, Muster's or not; Refused with NOT_FOUND if there is none."""
        request = inspect_pb2.WhyRequest(pod=inspect_pb2.PodName(namespace=namespace, name=name))
        with _answers():
            return (await self._inspect.Why(request, timeout=timeout_seconds)).pod


class GangStream:
    """One gang, held for as long as its block runs."""

    def __init__(self, stub: "admission_pb2_grpc.AdmissionServiceAsyncStub", gang: Gang) -> None:
        self._stub = stub
        opening = admission_pb2.AdmitRequest(open=admission.open_message(gang))
        self._words = [opening]
        """Everything said so far: a new connection says it all again."""
        self._more = asyncio.Event()
        self._heard: asyncio.Queue[State | Refused] = asyncio.Queue()
        self._over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._last: State | None = None

    async def states(self) -> AsyncIterator[State]:
        """Yield what the admitter says, the end included; Refused if it does not take the gang."""
        while True:
            heard = await self._heard.get()
            if isinstance(heard, Refused):
                raise heard
            yield heard
            if isinstance(heard, Ended):
                return

    def member(self, podset: str, uid: str, node: str) -> None:
        """Report a pod of the gang, as soon as it is there."""
        self._say(admission_pb2.AdmitRequest(member=admission_pb2.Member(podset=podset, uid=uid, node=node)))

    async def end(self, reason: str = "") -> Ended:
        """Say that the gang is over, and wait for the admitter's last word."""
        self._say(admission_pb2.AdmitRequest(end=admission_pb2.End(reason=reason)))
        return await asyncio.shield(self._over)

    async def run(self) -> None:
        """Keep a stream open until the gang has ended or is refused."""
        pauses = _Pauses()
        while not self._over.done():
            admit: Any = self._stub.Admit  # grpc-stubs knows requests as an iterator only.
            call = admit()
            # Not as an iterator of requests: gRPC leaves the task that waits for the next one behind when a stream breaks.
            speaking = asyncio.create_task(self._speak(call))
            try:
                async for message in call:
                    pauses.reset()
                    self._hear(message)
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    self._refuse(Refused(error.code(), error.details() or ""))
                    return
            finally:
                speaking.cancel()
                call.cancel()
                await asyncio.gather(speaking, return_exceptions=True)
            if not self._over.done():
                await pauses.wait()

    def _say(self, word: admission_pb2.AdmitRequest) -> None:
        self._words.append(word)
        self._more.set()

    async def _speak(self, call: Any) -> None:
        """Say everything from the start, until the call is over: who listens to it learns why."""
        said = 0
        while True:
            self._more.clear()
            while said < len(self._words):
                await call.write(self._words[said])
                said += 1
            await self._more.wait()

    def _hear(self, message: admission_pb2.AdmitResponse) -> None:
        state = admission.state_of(message)
        # A new connection is told where things stand; what was heard before is no news.
        if state is None or state == self._last:
            return
        self._last = state
        self._heard.put_nowait(state)
        if isinstance(state, Ended) and not self._over.done():
            self._over.set_result(state)

    def _refuse(self, refused: Refused) -> None:
        self._heard.put_nowait(refused)
        if not self._over.done():
            self._over.set_exception(refused)
            self._over.exception()  # Whoever waits in `end` still gets it; nobody else need hear of it twice.


class _Pauses:
    """Growing pauses with jitter, so that a fleet of clients does not come back at once."""

    def __init__(self) -> None:
        self._next = PAUSE_SECONDS[0]

    def reset(self) -> None:
        self._next = PAUSE_SECONDS[0]

    async def wait(self) -> None:
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter
        self._next = min(PAUSE_SECONDS[1], self._next * 2)


def _raise_if_final(error: grpc.aio.AioRpcError) -> None:
    if error.code() in _FINAL:
        raise Refused(error.code(), error.details() or "") from error


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """Tell a refusal from no answer."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        _raise_if_final(error)
        raise Unreachable(f"{error.code().name}: {error.details()}") from error
