"""What tenants ask costs nobody but themselves; real HTTP servers on loopback."""

import asyncio
import hashlib
import json
import socket
import threading

import pytest

from agent.core import warmref
from agent.model.warm import Failure, Image, Platform, Reason, StoreFacts, Wanted
from agent.warmer import questions
from agent.warmer.config import WarmerConfig
from agent.warmer.estate import MAX_HELD, Estate
from agent.warmer.survey import Survey
from hack.images import oci
from muster.clock import SystemClock
from tests.agent.warmer.webserver import Server, dripper, reply, trust

DATA = b"{}"
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
PLATFORM = Platform(os="linux", architecture="amd64")
CONTENT = oci.image([oci.of_files({"true": b"x"})])


class NoCredentials:
    async def credentials(self, reference):
        return None


class Store:
    """containerd's content."""

    async def read_blob(self, digest):
        return next(blob.data for blob in CONTENT.blobs if blob.digest == digest)


class World:
    def __init__(self, folder):
        self.now, self.folder, self.servers = 1000.0, folder, []
        self.survey = survey = Survey(Store(), PLATFORM, "overlayfs", None)
        self.known = Estate(WarmerConfig(), survey, PLATFORM, monotonic=self.monotonic, jitter=lambda: 0.0)
        self.asked = questions.Questions(folder, NoCredentials(), survey, PLATFORM, self.known, self)

    def monotonic(self):
        return self.now

    def utc(self):
        return SystemClock().utc()

    def host(self, answer):
        """Return the address of a registry that answers so."""
        self.servers.append(Server())
        self.servers[-1].routes["/v2/"] = answer
        trust(self.folder, self.servers[-1].address)
        return self.servers[-1].address

    async def ask(self, host, name="x:1", facts=None):
        return await self.asked.ask(warmref.parse(f"{host}/{name}"), None, facts or StoreFacts())

    async def reason(self, host):
        found = await self.ask(host)
        return found.reason if isinstance(found, Failure) else found.root.digest


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.asked.close()
    for server in made.servers:
        server.stop()


def saying(status, **headers):
    return lambda handler: reply(handler, status, **headers)


def manifest(handler):
    reply(handler, 200, DATA, Docker_Content_Digest=DIGEST)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (saying(404), Reason.NOT_FOUND),
        (saying(401), Reason.UNAUTHORIZED),
        (saying(503), Reason.REGISTRY_UNREACHABLE),
        (saying(418), Reason.PULL_FAILED),
    ],
)
async def test_nothing_of_a_question_is_kept(world, answer, reason):
    """Any tenant can ask, about any path: the operator's images at that host are pulled as before."""
    assert await world.reason(world.host(answer)) is reason
    assert (world.known.host_holds, world.known._failures, world.known._due) == ({}, {}, {})


@pytest.mark.parametrize("is_on_the_node", [False, True])
async def test_an_image_that_is_found_is_told_and_not_kept(world, is_on_the_node):
    """32 in a pod, each of megabytes, would fill the warmer; one on the node would have the size that a stranger says."""

    def answer(handler):
        blob = CONTENT.root if "manifests" in handler.path else CONTENT.blobs[0]
        reply(handler, 200, blob.data, Docker_Content_Digest=CONTENT.root.digest)

    blobs = {blob.digest: len(blob.data) for blob in CONTENT.blobs} if is_on_the_node else {}
    found = await world.ask(world.host(answer), facts=StoreFacts(blobs=blobs))
    assert isinstance(found.image, Image)
    assert world.survey._known == {}
    assert (world.known._resolutions, world.known._failures, world.known._due) == ({}, {}, {})


async def test_what_a_registry_hides_from_strangers_is_found_with_a_pods_secret(world):
    """It answers its own challenge for anybody, and says 404 to whoever may not see the repository."""
    challenge = 'Bearer realm="http://{}/token",service="reg",scope="repository:x:pull"'

    def token(handler):
        of = "owner" if handler.headers.get("Authorization") else "anybody"
        reply(handler, 200, json.dumps({"token": of}).encode())

    def hiding(handler):
        match handler.headers.get("Authorization"):
            case None:
                reply(handler, 401, WWW_Authenticate=challenge.format(world.servers[0].address))
            case "Bearer owner":
                manifest(handler)
            case _:
                reply(handler, 404)

    host = world.host(hiding)
    world.servers[0].routes["/token"] = token
    assert await world.reason(host) is Reason.NOT_FOUND
    shown = ("u", "p")
    found = await world.asked.ask(warmref.parse(f"{host}/x:1"), shown, StoreFacts())
    assert found.root.digest == DIGEST


async def test_a_host_where_nobody_listens_is_not_held(world):
    gone = world.host(manifest)
    world.servers.pop().stop()
    assert await world.reason(gone) is Reason.REGISTRY_UNREACHABLE
    assert world.known.host_holds == {}


async def test_a_host_that_asks_to_be_left_alone_is_until_then(world):
    """It means the node, and so all that the node asks."""
    own = world.host(saying(429, Retry_After="90"))
    assert await world.reason(own) is Reason.TOO_MANY_REQUESTS
    assert world.known.host_holds == {own: 1090.0}
    assert await world.reason(own) is Reason.HOST_HELD
    assert len(world.servers[0].seen) == 1
    world.now = 1090.0
    world.servers[0].routes["/v2/"] = manifest
    assert await world.reason(own) == DIGEST


def test_hosts_that_are_held_are_not_without_number(world):
    for number in range(MAX_HELD + 5):
        world.known.hold(f"{number}.io", 1060.0)
    assert len(world.known.host_holds) == MAX_HELD
    world.now = 1060.0
    world.known.hold("a.io", 1070.0)
    assert world.known.host_holds == {"a.io": 1070.0}


async def test_what_is_not_wanted_any_more_is_forgotten(world):
    """Hints come and go with the gangs; a failure stays while it holds the next try back."""
    reference = warmref.parse("r.io/x:1")
    world.known.hinted = (Wanted(reference=reference, is_hint=True),)
    world.known.failed(reference, Reason.NOT_FOUND, "")
    await world.known.candidates(StoreFacts())
    assert len(world.known._failures) == 1
    world.known.hinted = ()
    await world.known.candidates(StoreFacts())
    assert len(world.known._failures) == 1
    world.now += 700
    await world.known.candidates(StoreFacts())
    assert world.known._failures == {}


async def test_a_few_are_asked_at_a_time_and_the_loops_own_threads_are_free(world):
    free, asking, most = threading.Event(), [0], [0]

    def slowly(handler):
        asking[0] += 1
        most[0] = max(most[0], asking[0])
        free.wait(60)
        asking[0] -= 1
        manifest(handler)

    own = world.host(slowly)
    asked = [asyncio.create_task(world.ask(own, f"x:{number}")) for number in range(12)]
    async with asyncio.timeout(60):
        while asking[0] < questions.AT_ONCE:  # noqa: ASYNC110 -- a thread of the server counts
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*(asyncio.to_thread(int, 7) for _ in range(40))) == [7] * 40
    free.set()
    assert [found.root.digest for found in await asyncio.gather(*asked)] == [DIGEST] * 12
    assert most[0] == questions.AT_ONCE


async def test_a_registry_that_drips_is_given_up_with_its_thread(world, monkeypatch):
    """A byte now and then is no silence: only the whole question's time ends it."""
    monkeypatch.setattr(questions, "QUESTION_SECONDS", 3.0)
    given_up = threading.Semaphore(0)
    drip = dripper(given_up)

    dripping, own = world.host(drip), world.host(manifest)
    answers = await asyncio.gather(*(world.reason(dripping) for _ in range(questions.AT_ONCE)))
    assert answers == [Reason.STALLED] * questions.AT_ONCE
    assert [await asyncio.to_thread(given_up.acquire, timeout=60) for _ in answers] == [True] * questions.AT_ONCE
    assert await world.reason(own) == DIGEST


async def test_a_host_that_says_nothing_at_all_is_given_up(world, monkeypatch):
    monkeypatch.setattr(questions, "SILENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        trust(world.folder, address)
        assert await world.reason(address) is Reason.STALLED
    assert world.known.host_holds == {}
