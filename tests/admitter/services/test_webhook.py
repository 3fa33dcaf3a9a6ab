"""The webhook over real TLS: reviews, rubbish, and a certificate that is replaced under it."""

import asyncio
import json
import socket
import ssl

import httpx2
import pytest

from admitter.services.webhook import CONNECTION_SECONDS, CONNECTIONS, MAX_BYTES, Webhook
from hack import pki
from muster.model import labels

POD = {
    "metadata": {"labels": {labels.GANG.full: "train"}},
    "spec": {"containers": [{"name": "main"}]},
}
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1", "object": POD}}


@pytest.fixture
def files(tmp_path):
    return pki.create(tmp_path).issue_admitter()


@pytest.fixture
def now():
    """The webhook's clock, which stands still until somebody turns it."""
    return [0.0]


@pytest.fixture
def webhook(files, now):
    server = Webhook(("127.0.0.1", 0), files, lambda: now[0])
    server.start()
    yield server
    server.close()


def ask(webhook, ca, path="/gate/labelled", content=None, **headers):
    context = ssl.create_default_context(cafile=str(ca))
    body = json.dumps(REVIEW).encode() if content is None else content
    with httpx2.Client(verify=context, trust_env=False) as client:
        return client.post(f"https://127.0.0.1:{webhook.port}{path}", content=body, headers=headers)


async def asked(*arguments, **more):
    return await asyncio.to_thread(ask, *arguments, **more)


async def test_a_review_is_answered(webhook, files):
    answer = (await asked(webhook, files.ca)).json()
    assert answer["response"]["uid"] == "u1"
    assert "patch" in answer["response"]
    answer = (await asked(webhook, files.ca, "/gate/managed?timeout=2s")).json()
    assert "patch" not in answer["response"]


async def test_rubbish_is_refused_and_the_next_one_answered(webhook, files):
    assert (await asked(webhook, files.ca, content=b"{")).status_code == 400
    assert (await asked(webhook, files.ca, content=b"[" * 100_000)).status_code == 400
    assert (await asked(webhook, files.ca, "/other")).status_code == 404
    assert (await asked(webhook, files.ca, content=b" " * (MAX_BYTES + 1))).status_code == 413
    assert (await asked(webhook, files.ca, content=b"\xff\xfe")).status_code == 400
    assert (await asked(webhook, files.ca)).status_code == 200


async def test_who_says_nothing_holds_up_nobody(webhook, files):
    silent = [socket.create_connection(("127.0.0.1", webhook.port)) for _ in range(5)]
    try:
        assert (await asked(webhook, files.ca)).status_code == 200
    finally:
        for each in silent:
            each.close()


async def test_more_connections_than_there_are_places_are_closed_at_once(webhook, files):
    silent = [socket.create_connection(("127.0.0.1", webhook.port), timeout=10) for _ in range(CONNECTIONS)]
    try:
        # Sooner than what says nothing is given up.
        with socket.create_connection(("127.0.0.1", webhook.port), timeout=CONNECTION_SECONDS / 2) as late:
            assert await asyncio.to_thread(late.recv, 1) == b""
    finally:
        for each in silent:
            each.close()
    await until_answered(webhook, files)


async def until_answered(webhook, files):
    """The places are free once their threads have found out that nobody is there."""
    async with asyncio.timeout(20):
        while True:
            try:
                assert (await asked(webhook, files.ca)).status_code == 200
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("sent", [b"", b"POST /gate/labelled HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"])
async def test_a_connection_has_its_time_as_a_whole_however_slowly_it_sends(webhook, files, now, sent):
    context = ssl.create_default_context(cafile=str(files.ca))

    def dribble():
        raw = socket.create_connection(("127.0.0.1", webhook.port), timeout=10)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as secured:
            secured.sendall(sent)
            now[0] += CONNECTION_SECONDS
            for _ in range(200):
                secured.settimeout(0.05)
                try:
                    return secured.recv(1)
                except TimeoutError:
                    secured.sendall(b" ")
            return None

    try:
        closed = await asyncio.to_thread(dribble) == b""
    except (ssl.SSLError, ConnectionError):
        closed = True
    assert closed
    assert (await asked(webhook, files.ca)).status_code == 200


async def test_a_connection_is_for_one_review(webhook, files):
    assert (await asked(webhook, files.ca)).headers["Connection"] == "close"


async def test_a_renewed_certificate_is_used_at_the_next_connection(webhook, files, tmp_path):
    assert (await asked(webhook, files.ca)).status_code == 200
    renewed = pki.create(tmp_path / "new").issue_admitter()
    for name in ("key", "certificate"):
        getattr(files, name).write_bytes(getattr(renewed, name).read_bytes())
    assert (await asked(webhook, renewed.ca)).status_code == 200
    with pytest.raises(httpx2.ConnectError):
        await asked(webhook, files.ca)


async def test_a_pair_that_does_not_fit_leaves_the_former_one(webhook, files, tmp_path):
    assert (await asked(webhook, files.ca)).status_code == 200
    files.key.write_bytes(b"no key")
    assert (await asked(webhook, files.ca)).status_code == 200
