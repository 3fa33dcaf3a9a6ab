"""A watch against an API server that a test commands: expired versions, halves of lists, refusals, cut lines."""

import asyncio
import contextlib
import json

import pytest
from lightkube.config import kubeconfig
from lightkube.config.models import Cluster, User
from lightkube.resources import core_v1

from admitter.sources import apiclient, slimpod, watch
from admitter.sources.sharing import Shared
from tests.feedworld import until


def a_pod(name, version="5"):
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": version},
        "spec": {"containers": []},
    }


def an_event(kind, content):
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def gone():
    return an_event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


def a_list(*names, version="10", more=""):
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": [a_pod(name) for name in names]}


class ApiServer:
    """Answers lists and watches with what the test has put there; a watch stays open until the test says more."""

    def __init__(self):
        self.asked = []
        self.lists = []
        """Answers to the next lists; the last one is given again."""
        self.watches = asyncio.Queue()
        """One queue of chunks for each watch that is opened; None ends it."""

    async def serve(self, reader, writer):
        try:
            while (line := await reader.readline()).strip():
                while (await reader.readline()).strip():
                    continue
                path = line.split()[1].decode()
                self.asked.append(path)
                if "watch=true" not in path:
                    answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
                    code, content = answer if isinstance(answer, tuple) else (200, answer)
                    body = json.dumps(content).encode()
                    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    writer.write(head.encode() + body)
                    await writer.drain()
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
                await writer.drain()
                chunks = asyncio.Queue()
                await self.watches.put(chunks)
                while (chunk := await chunks.get()) is not None:
                    writer.write(chunk)
                    await writer.drain()
                return
        finally:
            writer.close()


class Pods:
    """What the watch has told."""

    def __init__(self):
        self.now, self.replacements = {}, []

    def replaced(self, found):
        self.replacements.append(sorted(pod.name for pod in found))
        self.now = {pod.name: pod for pod in found}

    def changed(self, pod, is_gone):
        self.now.pop(pod.name, None)
        if not is_gone:
            self.now[pod.name] = pod


@contextlib.asynccontextmanager
async def watched(server, **options):
    """A watch of pods on that server; yields it with what it has told."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    config = kubeconfig.KubeConfig.from_one(cluster=Cluster(server=f"http://127.0.0.1:{port}"), user=User()).get()
    pods, shared = Pods(), Shared()
    followed = watch.Watch(
        apiclient.Api(config),
        core_v1.Pod,
        slim=lambda item: slimpod.pod(item, shared),
        replaced=pods.replaced,
        changed=pods.changed,
        monotonic=asyncio.get_running_loop().time,
        **options,
    )
    task = asyncio.create_task(followed.run())
    try:
        yield followed, pods
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        listening.close()


@pytest.fixture
def server():
    return ApiServer()


async def test_events_follow_the_list_and_a_watch_resumes_from_the_last_version(server):
    server.lists = [a_list("a")]
    async with watched(server) as (followed, pods):
        chunks = await server.watches.get()
        await chunks.put(an_event("ADDED", a_pod("b", "11")) + an_event("DELETED", a_pod("a", "12")))
        await until(lambda: list(pods.now) == ["b"])
        empty = {"spec": {"containers": None}, "status": {}}
        await chunks.put(an_event("BOOKMARK", {"metadata": {"resourceVersion": "40"}, **empty}))
        await until(lambda: followed._version == "40")
        assert not followed.problem, "a bookmark is no pod, and breaks nothing"
        await chunks.put(None)
        await server.watches.get()
        assert "resourceVersion=40" in server.asked[-1]
        assert "allowWatchBookmarks=true" in server.asked[-1]
        assert "timeoutSeconds=" in server.asked[-1], "a kind that never changes says nothing for hours"
        await until(lambda: not followed.problem)
    assert pods.replacements == [["a"]]


async def test_an_expired_version_makes_a_new_list_and_nothing_is_lost(server):
    server.lists = [a_list("a", "b"), a_list("b", "c", version="90")]
    async with watched(server) as (followed, pods):
        chunks = await server.watches.get()
        await chunks.put(gone())
        await chunks.put(None)
        await until(lambda: followed.lists == 2)
        assert sorted(pods.now) == ["b", "c"]
        await server.watches.get()
        assert "resourceVersion=90" in server.asked[-1]


async def test_half_a_list_is_no_list(server):
    """The second page is refused: what the first one had is not taken, and the pages begin anew."""
    expired = (410, {"kind": "Status", "code": 410, "message": "continue token expired"})
    server.lists = [a_list("a", more="next"), expired, a_list("a", more="next"), a_list("b")]
    async with watched(server) as (followed, pods):
        await until(lambda: followed.lists)
        assert pods.replacements == [["a", "b"]]


async def test_a_line_that_was_cut_breaks_the_watch_and_nothing_else(server):
    server.lists = [a_list("a")]
    async with watched(server) as (followed, pods):
        chunks = await server.watches.get()
        await chunks.put(b'{"type": "ADDED", "obj')
        await chunks.put(None)
        await server.watches.get()
        assert "resourceVersion=10" in server.asked[-1]
        assert list(pods.now) == ["a"]
        await until(lambda: not followed.problem and followed.age() == 0)


async def test_a_refusal_names_verb_and_resource(server):
    server.lists = [(403, {"kind": "Status", "code": 403, "message": "no"}), a_list("a")]
    async with watched(server) as (followed, pods):
        await until(lambda: "grant verb `list` on resource `pods`" in followed.problem or followed.lists)
        await until(lambda: pods.now)


async def test_the_age_counts_while_nothing_stands(server):
    server.lists = [(503, {"kind": "Status", "code": 503, "message": "starting"})]
    async with watched(server) as (followed, _):
        await until(lambda: followed.age() > 0 and "503" in followed.problem)
        assert not followed.is_synced
        server.lists = [a_list("a")]
        await until(lambda: followed.is_synced and followed.age() == 0)


async def test_a_list_that_is_asked_for_is_made_after_the_asking(server):
    server.lists = [a_list("a"), a_list("b")]
    async with watched(server) as (followed, pods):
        await server.watches.get()
        async with asyncio.timeout(20):
            await followed.list_afresh()
        assert list(pods.now) == ["b"]


async def test_an_api_server_that_forgets_every_version_is_not_listed_in_a_loop(server, monkeypatch):
    """Each list is followed by a watch whose first word is that its version has expired."""
    pauses = []

    async def pause(_, failures, status):
        pauses.append(failures)
        await asyncio.sleep(0)

    monkeypatch.setattr(apiclient, "REOPEN_SECONDS", 0.0)
    monkeypatch.setattr(watch.Watch, "_pause", pause)
    server.lists = [a_list("a")]
    async with watched(server) as (followed, pods):
        for _ in range(9):
            chunks = await server.watches.get()
            await chunks.put(gone())
            await chunks.put(None)
        await until(lambda: followed.lists == 10)
        assert list(pods.now) == ["a"]
        assert pauses == list(range(9)), "the first one is listed at once, and each pause after that is longer"
        chunks = await server.watches.get()
        await chunks.put(an_event("ADDED", a_pod("b", "11")) + gone())
        await chunks.put(None)
        await until(lambda: followed.lists == 11)
        assert pauses[9:] == [0], "and so is one after which something was heard"


async def test_a_404_in_passing_costs_a_moment_and_not_the_time_of_a_kind_that_is_not_served(server):
    missing = (404, {"kind": "Status", "code": 404, "message": "not here"})
    server.lists = [missing, missing, a_list("a")]
    async with watched(server) as (followed, pods):
        await until(lambda: not followed.is_served)
        await until(lambda: pods.now and followed.is_served)


async def test_a_kind_that_is_served_no_more_has_no_objects_once_that_is_sure(server, monkeypatch):
    monkeypatch.setattr(apiclient, "REOPEN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "PAUSE_SECONDS", (0.0, 0.0))
    missing = (404, {"kind": "Status", "code": 404, "message": "not here"})
    server.lists = [a_list("a"), *[missing] * watch.RESUMES, a_list("b"), missing]
    async with watched(server, is_optional=True) as (followed, pods):
        for expected in (["a"], ["b"]):
            chunks = await server.watches.get()
            assert list(pods.now) == expected, "404 in passing takes nothing away"
            await chunks.put(gone())
            await chunks.put(None)
        await until(lambda: not pods.now)
        assert not followed.is_served


async def test_a_404_takes_no_object_of_a_kind_away_that_every_cluster_has(server, monkeypatch):
    monkeypatch.setattr(apiclient, "REOPEN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "PAUSE_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(watch, "ABSENT_SECONDS", 0.0)
    missing = (404, {"kind": "Status", "code": 404, "message": "not here"})
    server.lists = [a_list("a"), *[missing] * (3 * watch.RESUMES), a_list("b")]
    async with watched(server) as (_, pods):
        chunks = await server.watches.get()
        await chunks.put(gone())
        await chunks.put(None)
        await until(lambda: list(pods.now) == ["b"])
    assert pods.replacements == [["a"], ["b"]]
