"""The reader's session mode is the newest that was wanted, however calls cross on their way."""

import asyncio

import grpc.aio

from agent.sources.reader import ReaderClient
from muster.model.reading import Known
from muster.pb.muster.reader.v1 import reader_pb2, reader_pb2_grpc


class _Moded(reader_pb2_grpc.ReaderServiceServicer):
    """Takes a mode; the first word on its way is held up until somebody lets it go on."""

    def __init__(self, mode="open"):
        self.mode, self.heard, self.go_on = mode, asyncio.Event(), asyncio.Event()

    async def SetNvmlSession(self, request, context):  # noqa: N802
        if request.mode == "closed":
            self.heard.set()
            await self.go_on.wait()
        self.mode = request.mode
        return reader_pb2.SetNvmlSessionResponse(mode=self.mode)

    async def Read(self, request, context):  # noqa: N802
        response = reader_pb2.ReadResponse()
        if self.mode == "closed":
            response.error.error = "MAINTENANCE"
        else:
            response.nvml_system.device_count = 0
        return response


async def _with_reader(tmp_path, service, story):
    server = grpc.aio.server()
    reader_pb2_grpc.add_ReaderServiceServicer_to_server(service, server)
    socket = tmp_path / "r.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    client = ReaderClient(socket)
    try:
        await story(client)
    finally:
        await client.close()
        await server.stop(None)


async def test_a_mode_that_is_said_again_never_arrives_after_the_next_one(tmp_path):
    """A read says `closed` again while `open` is wanted already: the reader ends up open."""
    service = _Moded()

    async def story(client):
        closing = asyncio.create_task(client.set_session("closed", "work"))
        await service.heard.wait()
        opening = asyncio.create_task(client.set_session("open", ""))
        await asyncio.sleep(0)
        service.go_on.set()
        await asyncio.gather(closing, opening)
        assert service.mode == "open"

    await _with_reader(tmp_path, service, story)


async def test_a_reader_that_is_closed_for_no_reason_of_ours_is_told_to_open(tmp_path):
    """Whatever closed it: the next sample but one reads the driver again."""
    service = _Moded("closed")

    async def story(client):
        await client.read_nvml()
        assert isinstance(await client.read_nvml(), Known)

    await _with_reader(tmp_path, service, story)
