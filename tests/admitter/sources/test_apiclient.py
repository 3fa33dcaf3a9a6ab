"""Connections to the API server, on real sockets."""

import asyncio

import httpx2
import pytest
from lightkube.config import kubeconfig
from lightkube.config.models import Cluster, User
from lightkube.resources import core_v1

from admitter.sources import apiclient

CLIENT_HELLO = b"\x16"


class Silent:
    """Accepts connections, hears a handshake begin and never answers."""

    def __init__(self):
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def serve(self, reader, writer):
        assert await reader.read(1) == CLIENT_HELLO
        self.begun.set()
        await reader.read()
        self.ended.set()
        writer.close()


async def silent_api():
    silent = Silent()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = kubeconfig.KubeConfig.from_one(cluster=Cluster(server=address, insecure=True), user=User()).get()
    return silent, server, apiclient.Api(config)


async def test_a_connection_that_is_cancelled_in_its_handshake_is_closed_at_once():
    """Every watch and write of an admitter that stops may be there; what is left open is the API server's load until we end."""
    silent, server, api = await silent_api()
    client = api.client()
    asking = asyncio.create_task(client.get(core_v1.Node, "n1"))
    async with asyncio.timeout(30):
        await silent.begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await silent.ended.wait()
    await client.close()
    server.close()


async def test_a_handshake_that_takes_too_long_is_closed_as_well():
    silent, server, api = await silent_api()
    client = api.client(seconds=0.2)
    with pytest.raises(httpx2.ConnectTimeout):
        await client.get(core_v1.Node, "n1")
    async with asyncio.timeout(30):
        await silent.ended.wait()
    await client.close()
    server.close()
