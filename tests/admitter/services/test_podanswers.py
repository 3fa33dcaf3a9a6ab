"""Questions about pods are answered beside the event loop, from values that stand still, and few at a time.

What an answer says: tests/admitter/core/test_podwhy.py; over gRPC and on a real API server: tests/cluster/test_why.py.
"""

import asyncio
import threading
import types

import pytest

from admitter.core import podwhy
from admitter.services import podanswers
from admitter.services.podanswers import PodAnswers
from tests.admitter.grouppods import a_pod


class Town:
    def __init__(self):
        self.live = {}

    def nodes(self):
        return types.MappingProxyType(self.live)

    def pods(self):
        pod = a_pod("p", gates=(), labels={}, annotations={})
        return {pod.uid: pod}

    def facts(self):
        return {}


class Causes:
    """What explains a pod, and takes as long as it is told to."""

    def __init__(self):
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.scenes = []

    def __call__(self, scene):
        with self.lock:
            self.scenes.append(scene)
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.release()
        self.go_on.wait(20)
        with self.lock:
            self.running -= 1
        return ()


@pytest.fixture
def causes(monkeypatch):
    causes = Causes()
    monkeypatch.setattr(podwhy, "causes", causes)
    yield causes
    causes.go_on.set()


@pytest.fixture
def town():
    return Town()


@pytest.fixture
def answers(town):
    return PodAnswers(town, lambda: types.SimpleNamespace(nodes={}), None)


async def begun(causes, count):
    for _ in range(count):
        assert await asyncio.to_thread(causes.begun.acquire, timeout=20)


async def test_the_loop_goes_on_and_a_change_of_the_cluster_is_not_seen_halfway(town, answers, causes):
    asked = asyncio.create_task(answers.pod("team-a", "p"))
    await begun(causes, 1)
    town.live["n1"] = None
    assert dict(causes.scenes[0].nodes) == {}
    assert not asked.done()
    causes.go_on.set()
    assert (await asked).name == "p"


async def test_few_are_explained_at_a_time_and_all_in_the_end(answers, causes):
    asked = [asyncio.create_task(answers.pod("team-a", "p")) for _ in range(3 * podanswers.AT_ONCE)]
    await begun(causes, podanswers.AT_ONCE)
    assert causes.running == podanswers.AT_ONCE
    causes.go_on.set()
    assert all([await each for each in asked])
    assert causes.most == podanswers.AT_ONCE


async def test_a_pod_that_is_not_there_is_nobodys(answers):
    assert await answers.pod("team-a", "other") is None
