"""InspectService: look at what the admitter knows. Nothing here changes anything.

WatchCapacity is the merged feed for an admitter of somebody else's; Why and Status are for people. All of it is for
clients only (identity.py).
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeAlias

import grpc

from admitter.model.record import GangRecord
from admitter.publish.capacity import CapacityBoard
from admitter.services import answers, identity
from muster.pb.muster.v1 import inspect_pb2, inspect_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Desk(Protocol):
    """Who knows the gangs."""

    @property
    def term(self) -> int: ...
    def records(self) -> tuple[GangRecord, ...]: ...


class InspectService(inspect_pb2_grpc.InspectServiceServicer):
    """Answers from the desk's records and the board's nodes."""

    def __init__(
        self, desk: Desk, board: CapacityBoard, monotonic: Callable[[], float], *, name: str, version: str
    ) -> None:
        self._desk = desk
        self._board = board
        self._monotonic = monotonic
        self._name = name
        self._version = version

    async def WatchCapacity(  # noqa: N802 -- gRPC's name
        self, request: inspect_pb2.WatchCapacityRequest, context: Context
    ) -> AsyncIterator[inspect_pb2.WatchCapacityResponse]:
        """Send the full state, then changes, for as long as the client listens."""
        await identity.require_client(context)
        async for response in self._board.watch(frozenset(request.nodes)):
            yield response

    async def Why(self, request: inspect_pb2.WhyRequest, context: Context) -> inspect_pb2.WhyResponse:  # noqa: N802
        """Say everything about one gang."""
        await identity.require_client(context)
        wanted = request.gang
        if not wanted.namespace or not wanted.name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "gang: namespace and name are required")
        for record in self._desk.records():
            if (record.gang.namespace, record.gang.name) == (wanted.namespace, wanted.name):
                return inspect_pb2.WhyResponse(gang=answers.status(record, self._monotonic()))
        await context.abort(grpc.StatusCode.NOT_FOUND, f"gang {wanted.namespace}/{wanted.name} has not asked here")
        raise AssertionError("abort returned")

    async def Status(self, _: inspect_pb2.StatusRequest, context: Context) -> inspect_pb2.StatusResponse:  # noqa: N802
        """Say who this is, what its nodes are in short, and every gang."""
        await identity.require_client(context)
        now = self._monotonic()
        nodes = self._board.all()
        for node in nodes:
            _shorten(node)
        return inspect_pb2.StatusResponse(
            admitter=self._name,
            admitter_version=self._version,
            term=self._desk.term,
            version=self._board.version,
            nodes=nodes,
            gangs=[
                answers.status(record, now) for record in sorted(self._desk.records(), key=lambda record: record.key)
            ],
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
