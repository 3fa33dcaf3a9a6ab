"""AdmissionService: one stream holds one gang.

In: open, then members and the end. Out: WAITING, LEASED, STARTED, ENDED (answers.py). The lease lives as long as the
stream and a grace; the same request_id on a new stream takes the gang over.

Invariant: a message that does not fit ends the call with INVALID_ARGUMENT and every problem in its words, and changes
nothing; the gang keeps what it has, as after any lost stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol, TypeAlias

import grpc

from admitter.core import request
from admitter.core.register import Conflict
from admitter.model.gang import Gang, Member
from admitter.model.leadership import NotLeading
from admitter.model.record import GangRecord, GangState
from admitter.services import identity
from admitter.services.answers import Teller
from admitter.services.identity import Door
from admitter.services.wordbudget import REST_SECONDS, WordBudget
from muster.model.vocabulary import EndReason
from muster.pb.muster.v1 import admission_pb2, admission_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Requests: TypeAlias = AsyncIterator[admission_pb2.AdmitRequest]

OPEN_SECONDS = 10.0
"""A client that connects says at once what it wants."""


class Attachment(Protocol):
    """A stream's hold on its gang."""

    is_lost: bool

    async def next(self) -> GangRecord | None: ...


class Desk(Protocol):
    """Who decides."""

    def open(self, gang: Gang, owner: str) -> Any: ...
    def join(self, attachment: Any, member: Member) -> None: ...
    def end(self, attachment: Any, detail: str) -> None: ...
    def close(self, attachment: Any) -> None: ...


class AdmissionService(admission_pb2_grpc.AdmissionServiceServicer):
    """Serves clients' streams from one desk."""

    def __init__(self, desk: Desk, monotonic: Callable[[], float], door: Door, levels: Collection[str] = ()) -> None:
        """`levels` are the names of the network's levels."""
        self._desk = desk
        self._levels = levels
        self._monotonic = monotonic
        self._door = door

    async def Admit(self, requests: Requests, context: Context) -> None:  # type: ignore[override]  # noqa: N802 -- gRPC's name
        """Hold a gang for as long as the client listens."""
        user = await self._door.client(context)
        gang = await self._read_open(requests, context)
        await self._door.require(context, user, "create", identity.GANGS, gang.namespace)
        if gang.priority > 0:
            # Pods have theirs from a PriorityClass, which an administrator made.
            await self._door.require(context, user, "prioritize", identity.GANGS, gang.namespace)
        try:
            attachment = self._desk.open(gang, user.owner)
        except NotLeading as elsewhere:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(elsewhere))
        except Conflict as conflict:
            await self._refuse(context, conflict)
            return
        try:
            await self._serve(requests, context, attachment, gang)
        finally:
            self._desk.close(attachment)

    async def _read_open(self, requests: Requests, context: Context) -> Gang:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                first = await anext(requests, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"open: none within {OPEN_SECONDS:g} s")
        if first is None or first.WhichOneof("message") != "open":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "open: must be the first message")
        try:
            return request.gang(first.open, self._levels)
        except request.InvalidRequest as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError("abort returned")

    async def _refuse(self, context: Context, conflict: Conflict) -> None:
        match conflict.reason:
            case None:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, conflict.detail)
            case EndReason.INVALID_REQUEST:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, conflict.detail)
            case reason:
                ended = admission_pb2.Ended(reason=reason.value, detail=conflict.detail)
                await context.write(admission_pb2.AdmitResponse(ended=ended))

    async def _serve(self, requests: Requests, context: Context, attachment: Attachment, gang: Gang) -> None:
        """Listen and tell side by side, until the gang ends or the stream does.

        Only this task writes, and it alone ends the call: gRPC has no status to send while a message is still on its way,
        and the client would wait for ever.
        """
        listening = asyncio.create_task(self._listen(requests, attachment, gang))
        fresh = asyncio.create_task(attachment.next())
        teller = Teller(gang.namespace)
        try:
            while True:
                if listening.done() and (problem := listening.result()):
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
                # A client that has said all it will say still listens.
                waits_for = {fresh} if listening.done() else {listening, fresh}
                await asyncio.wait(waits_for, return_when=asyncio.FIRST_COMPLETED)
                if not fresh.done():
                    continue
                record = fresh.result()
                if record is None:
                    if attachment.is_lost:
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "this admitter leads no more")
                    await context.abort(grpc.StatusCode.ABORTED, "a newer stream has this gang")
                    return
                for response in teller.news(record, self._monotonic()):
                    await context.write(response)
                if record.state is GangState.ENDED:
                    return
                fresh = asyncio.create_task(attachment.next())
        finally:
            listening.cancel()
            fresh.cancel()
            await asyncio.gather(listening, fresh, return_exceptions=True)

    async def _listen(self, requests: Requests, attachment: Attachment, gang: Gang) -> str:
        """Take the client's words until it has no more; return what was wrong with the last one, if anything."""
        budget = WordBudget(gang.pods)
        async for message in requests:
            match message.WhichOneof("message"):
                case "member":
                    try:
                        self._desk.join(attachment, request.member(message.member, gang))
                    except request.InvalidRequest as error:
                        return str(error)
                    if budget.spend(message.member.uid):
                        # What the client goes on to say waits in its own socket.
                        await asyncio.sleep(REST_SECONDS)
                case "end":
                    self._desk.end(attachment, message.end.reason[:200])
                case other:
                    return f"{other or 'message'}: not in mid-stream"
        return ""
