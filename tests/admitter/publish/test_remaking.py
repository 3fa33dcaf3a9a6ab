"""A bare pod that was sent back is made anew when its name is free, and nobody waits for that."""

import asyncio

import httpx2
import pytest
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.publish import pods, remaking
from admitter.publish.nodes import Outcome
from tests.admitter.clusters import TAKEN
from tests.admitter.grouppods import a_pod


def refusal(code):
    response = httpx2.Response(code, json={"kind": "Status", "code": code}, request=httpx2.Request("POST", "http://a"))
    return exceptions.ApiError(response=response)


class Server:
    """An API server on which a name stays taken until it is let go."""

    def __init__(self):
        self.uids, self.created, self.asked, self.answers = {}, [], [], []

    async def get(self, kind, name, *, namespace):
        metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, uid=self.uids.get(name, f"uid-{name}"))
        return core.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[], nodeName="n1"))

    async def create(self, item, name="", *, namespace="", dry_run=False):
        if type(item).__name__ == "PodEviction" or dry_run:
            return
        await asyncio.sleep(0)
        name = item.metadata.name
        self.asked.append(name)
        if self.answers:
            raise self.answers.pop(0)
        if self.uids.get(name) != "":
            raise refusal(409)
        self.uids[name] = f"uid-{name}-anew"
        self.created.append(name)

    def let_go(self, name):
        self.uids[name] = ""


@pytest.fixture
def quick(monkeypatch):
    """No pauses between tries."""
    monkeypatch.setattr(remaking, "MOST_SECONDS", 0.0)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def writer(server, quick):
    return pods.PodWriter(server, lambda _: True, lambda: TAKEN, reporter="a")


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- what it waits for has no event
            await asyncio.sleep(0)


async def test_who_sends_a_pod_back_does_not_wait_until_it_is_gone(server, writer):
    assert await writer.send_back(a_pod(node="n1"), 1) == (Outcome.DONE, "")
    await until(lambda: len(server.asked) > 200)
    assert server.created == []
    server.let_go("trainer-0")
    await until(lambda: server.created == ["trainer-0"])
    await writer._remaker.wait()
    assert not writer._remaker.is_waiting("uid-trainer-0")


async def test_no_more_pods_of_a_namespace_are_sent_back_than_may_wait_and_others_are_not_kept_up(server, writer):
    for index in range(remaking.EACH):
        assert (await writer.send_back(a_pod(f"t-{index}", node="n1"), 1))[0] is Outcome.DONE
    outcome, words = await writer.send_back(a_pod("one-more", node="n1"), 1)
    assert (outcome, "still to go" in words) == (Outcome.CONFLICT, True)
    assert (await writer.send_back(a_pod("other", namespace="team-b", node="n1"), 1))[0] is Outcome.DONE
    for index in range(remaking.EACH):
        server.let_go(f"t-{index}")
    await until(lambda: len(server.created) == remaking.EACH)
    await until(lambda: writer._remaker.has_room("team-a"))
    assert (await writer.send_back(a_pod("one-more", node="n1"), 1))[0] is Outcome.DONE


async def test_a_pod_that_is_wanted_back_twice_is_made_once(server, writer):
    for _ in range(2):
        assert (await writer.send_back(a_pod(node="n1"), 1))[0] is Outcome.DONE
    server.let_go("trainer-0")
    await writer._remaker.wait()
    assert server.created == ["trainer-0"]


async def test_an_outage_is_waited_for_and_a_refusal_is_not(server, writer):
    server.answers = [OSError("no answer")] * 50
    await writer.send_back(a_pod(node="n1"), 1)
    server.let_go("trainer-0")
    await writer._remaker.wait()
    assert server.created == ["trainer-0"]
    server.answers = [refusal(403)]
    await writer.send_back(a_pod("other"), 1)
    await writer._remaker.wait()
    assert server.created == ["trainer-0"]


async def test_a_fault_of_one_leaves_room_for_others(server, writer):
    server.answers = [ZeroDivisionError()]
    await writer.send_back(a_pod("odd"), 1)
    await writer._remaker.wait()
    assert writer._remaker._each == {}
    await writer.send_back(a_pod(), 1)
    server.let_go("trainer-0")
    await writer._remaker.wait()
    assert server.created == ["trainer-0"]
