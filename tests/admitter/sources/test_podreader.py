"""Pods are listed as they are now, or not at all."""

import asyncio
import json

from lightkube.config import kubeconfig
from lightkube.config.models import Cluster, User

from admitter.sources import apiclient
from admitter.sources.podreader import PodReader

POD = {
    "metadata": {"name": "a", "namespace": "team", "uid": "uid-a", "resourceVersion": "5"},
    "spec": {"containers": []},
    "status": {"phase": "Running"},
}


async def read(*answers):
    """Return what is read of a server that gives these answers, status and content, and then no more."""
    left = list(answers)

    async def serve(reader, writer):
        while (await reader.readline()).strip():
            continue
        if left:
            code, content = left.pop(0)
            body = json.dumps(content).encode()
            head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    client = apiclient.Api(kubeconfig.KubeConfig.from_one(cluster=Cluster(server=url), user=User()).get()).client()
    try:
        return await PodReader(client).pods("team")
    finally:
        await client.close()
        listening.close()


def a_list(*pods, more=""):
    return 200, {"metadata": {"resourceVersion": "9", "continue": more}, "items": pods}


async def test_every_page_is_read():
    second = {**POD, "metadata": {**POD["metadata"], "name": "b", "uid": "uid-b"}}
    assert [pod.name for pod in await read(a_list(POD, more="next"), a_list(second))] == ["a", "b"]


async def test_half_a_list_or_none_is_no_answer():
    refused = 503, {"kind": "Status", "code": 503, "message": "busy"}
    assert await read(refused) is None
    assert await read(a_list(POD, more="next"), refused) is None
    assert await read() is None
    assert await read(a_list()) == ()
