"""The agent hears how warm images are, and says so when the warmer is away."""

import asyncio
import dataclasses

import grpc

from agent.sources import warmer
from muster.model import pbform, warmth
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

STATE = dataclasses.replace(
    warmth.NOTHING, store=warmth.ImageStore(runtime_version="2.2.9", snapshotter="overlayfs"), layers=(1, 2**63)
)


class FakeWarmer(warmer_pb2_grpc.WarmerServiceServicer):
    """Tells one state and then nothing."""

    async def Watch(self, request, context):  # noqa: N802
        response = warmer_pb2.WatchResponse()
        pbform.fill(response.warmth, STATE)
        yield response
        await asyncio.Event().wait()


async def until(heard, condition):
    async with asyncio.timeout(30):
        while not any(condition(state) for state in heard):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_state_is_heard_and_a_warmer_that_is_gone_is_told_once(tmp_path):
    path, heard = tmp_path / "warmer.sock", []
    server = grpc.aio.server()
    warmer_pb2_grpc.add_WarmerServiceServicer_to_server(FakeWarmer(), server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    task = asyncio.create_task(warmer.WarmerClient(path, heard.append).run())
    await until(heard, lambda state: state == STATE)
    await server.stop(None)
    await until(heard, lambda state: state.store.problem.startswith(warmer.UNAVAILABLE))
    assert heard[-1].layers == STATE.layers, "what was known last is kept, and marked"
    await asyncio.sleep(1)
    assert len(heard) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_warmer_that_never_was_is_told_as_missing(tmp_path):
    heard = []
    task = asyncio.create_task(warmer.WarmerClient(tmp_path / "nobody.sock", heard.append).run())
    await until(heard, lambda state: state.store.problem.startswith(warmer.UNAVAILABLE))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard[0].images == ()
