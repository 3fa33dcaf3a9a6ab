"""InspectService: look at what the admitter knows. Nothing here changes anything.

WatchCapacity is the merged feed for an admitter of somebody else's; Why and Status are for people. All of it is for
clients only, and for those that may (identity.py).

Invariants: only the leader answers, since a standby knows no leases. A caller sees no name of a gang that it may not list:
such gangs are counted, and their names in other gangs' explanations are replaced.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Set
from typing import Any, Protocol, TypeAlias

import grpc

from admitter.core import podwhy, redaction
from admitter.core.observe import Tally
from admitter.model.caller import User
from admitter.model.leadership import NotLeading
from admitter.model.record import GangRecord, GangState
from admitter.publish.capacity import CapacityBoard
from admitter.services import answers, identity
from admitter.services.identity import Door
from admitter.services.podanswers import PodAnswers
from muster.pb.muster.v1 import inspect_pb2, inspect_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Desk(Protocol):
    """Who knows the gangs."""

    @property
    def term(self) -> int: ...
    def leading(self) -> object: ...
    def records(self) -> tuple[GangRecord, ...]: ...


class InspectService(inspect_pb2_grpc.InspectServiceServicer):
    """Answers from the desk's records and the board's nodes."""

    def __init__(
        self,
        desk: Desk,
        board: CapacityBoard,
        monotonic: Callable[[], float],
        door: Door,
        *,
        name: str,
        version: str,
    ) -> None:
        self._desk = desk
        self._board = board
        self._monotonic = monotonic
        self._door = door
        self._name = name
        self._version = version
        self._pods: PodAnswers | None = None
        self._tally: Tally | None = None

    async def WatchCapacity(  # noqa: N802 -- gRPC's name
        self, request: inspect_pb2.WatchCapacityRequest, context: Context
    ) -> AsyncIterator[inspect_pb2.WatchCapacityResponse]:
        """Send the full state, then changes, for as long as the client listens."""
        user = await self._enter(context)
        await self._door.require(context, user, "watch", identity.CAPACITIES)
        async for response in self._board.watch(frozenset(request.nodes)):
            await self._lead(context)
            yield response

    async def Why(self, request: inspect_pb2.WhyRequest, context: Context) -> inspect_pb2.WhyResponse:  # noqa: N802
        """Say everything about one gang, or why one pod does not run."""
        user = await self._enter(context)
        kind = request.WhichOneof("target") or "gang"
        wanted = request.pod if kind == "pod" else request.gang
        if not wanted.namespace or not wanted.name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{kind}: namespace and name are required")
        await self._door.require(context, user, "get", identity.GANGS, wanted.namespace)
        shown = await self._shown(user, self._desk.records()) | {wanted.namespace}
        if kind == "pod":
            return inspect_pb2.WhyResponse(pod=await self._pod(wanted.namespace, wanted.name, shown, context))
        status = self._gang(wanted.namespace, wanted.name)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"gang {wanted.namespace}/{wanted.name} has not asked here")
            raise AssertionError("abort returned")
        answers.redact(status, shown)
        return inspect_pb2.WhyResponse(gang=status)

    def answer_pods(self, pods: PodAnswers) -> None:
        """Answer for pods too, from now on."""
        self._pods = pods

    def show_observed(self, tally: Tally) -> None:
        """Show in each status what was observed, from now on."""
        self._tally = tally

    def _gang(self, namespace: str, name: str) -> inspect_pb2.GangStatus | None:
        for record in self._desk.records():
            if (record.gang.namespace, record.gang.name) == (namespace, name):
                status = answers.status(record, self._monotonic())
                if record.state is GangState.WAITING and self._pods is not None and self._pods.is_held(namespace, name):
                    status.autoscaler = podwhy.NO_AUTOSCALER
                # Of one that has ended, what is held under its name now is news.
                if record.state is not GangState.ENDED:
                    return status
                return (self._pods.held(namespace, name) if self._pods is not None else None) or status
        return self._pods.held(namespace, name) if self._pods is not None else None

    async def _pod(self, namespace: str, name: str, shown: Set[str], context: Context) -> inspect_pb2.PodStatus:
        if self._pods is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "this admitter has no API server, and knows no pods"
            )
            raise AssertionError("abort returned")
        status = await self._pods.pod(namespace, name)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no pod {namespace}/{name}")
            raise AssertionError("abort returned")
        for cause in status.causes:
            cause.summary = redaction.redacted(cause.summary, shown)
        return status

    async def Status(self, _: inspect_pb2.StatusRequest, context: Context) -> inspect_pb2.StatusResponse:  # noqa: N802
        """Say who this is, what its nodes are in short, and every gang."""
        user = await self._enter(context)
        now = self._monotonic()
        nodes = self._board.all() if await self._door.may(user, "list", identity.CAPACITIES) else []
        for node in nodes:
            _shorten(node)
        records = sorted(self._desk.records(), key=lambda record: record.key)
        shown = await self._shown(user, records)
        gangs = [answers.status(record, now) for record in records if record.gang.namespace in shown]
        for gang in gangs:
            answers.redact(gang, shown)
        return inspect_pb2.StatusResponse(
            admitter=self._name,
            admitter_version=self._version,
            term=self._desk.term,
            version=self._board.version,
            nodes=nodes,
            gangs=gangs,
            hidden_gangs=len(records) - len(gangs),
            observation=await self._observation(user),
        )

    async def _observation(self, user: User) -> inspect_pb2.Observation | None:
        """Return what was observed: sums over all namespaces, for those who may look into each."""
        tally = self._tally
        if tally is None or not await self._door.may(user, "list", identity.GANGS):
            return None
        ends = [
            inspect_pb2.ObservedEnd(verdict=verdict.value, outcome=outcome.value, gangs=count)
            for (verdict, outcome), count in sorted(tally.ends.items())
        ]
        return inspect_pb2.Observation(held=tally.held, ends=ends)

    async def _enter(self, context: Context) -> User:
        """Return who asks, if this admitter may answer."""
        user = await self._door.client(context)
        await self._lead(context)
        return user

    async def _lead(self, context: Context) -> None:
        try:
            self._desk.leading()
        except NotLeading as elsewhere:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(elsewhere))

    async def _shown(self, user: User, records: Iterable[GangRecord]) -> frozenset[str]:
        """Return the namespaces whose gangs the caller may list."""
        if await self._door.may(user, "list", identity.GANGS):
            return frozenset(record.gang.namespace for record in records)
        namespaces = sorted({record.gang.namespace for record in records})
        return frozenset(
            [namespace for namespace in namespaces if await self._door.may(user, "list", identity.GANGS, namespace)]
        )


def _shorten(node: inspect_pb2.NodeCapacity) -> None:
    """Leave out what grows with the devices: one message must hold the fleet. WatchCapacity has it all."""
    node.ClearField("topology")
    node.ClearField("warmth")
    del node.report.devices[:]
    del node.report.pods[:]
    del node.report.unverified[:]
    for resource in node.report.resources.values():
        del resource.free_devices[:]
        del resource.counted[:]
        del resource.planes[:]
