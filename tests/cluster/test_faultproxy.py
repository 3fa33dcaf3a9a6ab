"""The ill API server does what it is told, and nothing else: against a small server on loopback with TLS."""

import asyncio
import contextlib
import json
import ssl

import httpx2
import pytest

from hack.cluster import pki
from hack.cluster.faultproxy import Fault, FaultProxy


class Upstream:
    """Answers `/x` with what it was asked, and a watch with a line whenever it is told."""

    def __init__(self):
        self.asked, self.lines = [], asyncio.Queue()

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError):
            while (line := await reader.readline()).strip():
                size = 0
                while head := (await reader.readline()).strip().lower():
                    if head.startswith(b"content-length:"):
                        size = int(head.partition(b":")[2])
                body = await reader.readexactly(size)
                target = line.split()[1].decode()
                self.asked.append(f"{line.split()[0].decode()} {target}")
                if "watch=true" not in target:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while (chunk := await self.lines.get()) is not None:
                    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                writer.write(b"0\r\n\r\n")
        writer.close()


@pytest.fixture
async def world(tmp_path):
    """A server behind the proxy, the proxy, and a client of it."""
    authority = pki.create(tmp_path / "pki", "ca")
    server, user = authority.issue_server("server"), authority.issue_client("user", "admin")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    upstream = Upstream()
    listening = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context)
    form = {
        "clusters": [
            {
                "cluster": {
                    "server": f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}",
                    "certificate-authority": str(authority.pair.certificate),
                }
            }
        ],
        "users": [{"user": {"client-certificate": str(user.certificate), "client-key": str(user.key)}}],
    }
    path = tmp_path / "admin.kubeconfig"
    path.write_text(json.dumps(form))
    async with FaultProxy(path, tmp_path) as proxy:
        url = json.loads(proxy.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            yield upstream, proxy, client
    listening.close()


PODS = "/api/v1/namespaces/a/pods/b"
WATCH = "/api/v1/pods?watch=true"


async def test_what_is_well_goes_through_as_it_came_and_is_counted(world):
    upstream, proxy, client = world
    for _ in range(3):
        assert (await client.patch(PODS, content=b"xyz")).content == b"xyz"
    assert (proxy.asked, upstream.asked) == ({"PATCH pods": 3}, [f"PATCH {PODS}"] * 3)


async def test_a_status_is_answered_without_asking_and_to_nobody_else(world):
    upstream, proxy, client = world
    proxy.inflict(Fault(method="PATCH", path="/pods/b$", status=429, headers={"Retry-After": "1"}))
    answer = await client.patch(PODS, content=b"x")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["code"]) == (429, "1", 429)
    assert (await client.post(PODS, content=b"x")).status_code == 200
    await proxy.heal()
    assert (await client.patch(PODS, content=b"x")).status_code == 200
    assert upstream.asked == [f"POST {PODS}", f"PATCH {PODS}"]


async def test_a_lost_answer_was_asked_for_and_a_cut_one_was_not(world):
    upstream, proxy, client = world
    for fault, asked in ((Fault(is_lost=True), 1), (Fault(is_cut=True), 1)):
        proxy.inflict(fault)
        with pytest.raises(httpx2.HTTPError):
            await client.patch(PODS, content=b"x")
        assert len(upstream.asked) == asked
        await proxy.heal(fault)


async def test_who_is_shut_out_cannot_connect_until_it_is_open_again(world):
    _, proxy, client = world
    await proxy.shut()
    with pytest.raises(httpx2.ConnectError):
        await client.get(PODS)
    await proxy.open()
    assert (await client.get(PODS)).status_code == 200


async def test_a_stream_that_stands_is_ended_or_silenced(world):
    upstream, proxy, client = world
    async with client.stream("GET", WATCH) as stream:
        lines = stream.aiter_bytes()
        await upstream.lines.put(b"one\n")
        assert await anext(lines) == b"one\n"
        fault = Fault(is_silent=True)
        proxy.inflict(fault)
        await upstream.lines.put(b"two\n")
        silence = asyncio.ensure_future(anext(lines))
        assert not (await asyncio.wait({silence}, timeout=0.2))[0]
        await proxy.heal(fault)
        with pytest.raises(httpx2.HTTPError):
            await silence
    async with client.stream("GET", WATCH) as stream:
        proxy.inflict(Fault(is_watch=True, is_expired=True))
        with pytest.raises(httpx2.HTTPError):
            await stream.aread()
    assert (await client.get(WATCH)).json()["object"]["code"] == 410
