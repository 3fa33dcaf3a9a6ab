"""The bound of the condition NotStarted holds for pods that are let go together, and a standby remembers nothing."""

import asyncio
import dataclasses

import pytest

from admitter.model.cluster import Changes, Condition, PodChange
from admitter.publish import notstarted
from admitter.publish.nodes import Outcome
from muster.model import kube, labels
from tests.admitter.grouppods import a_job_pod, rejected

MARK = Condition(type=labels.NOT_STARTED.full, status="True")
RUNNING = (kube.Container(name="main", state=kube.ContainerState.RUNNING),)


class Town:
    """Pods, and an API server that answers in the next turn."""

    def __init__(self, *pods, outcome=Outcome.DONE):
        self.stored, self.outcome, self.sent, self.term = {pod.uid: pod for pod in pods}, outcome, [], 1

    def listen(self, listener):
        self.tell = listener

    def pods(self):
        return self.stored

    def pod(self, uid):
        return self.stored.get(uid)

    async def set(self, pod, key, status, reason, message, term):
        self.sent.append((pod.name, status))
        await asyncio.sleep(0)
        return self.outcome, ""

    def becomes(self, before, after):
        if after is not None:
            self.stored[after.uid] = after
        self.tell(Changes(pods=(PodChange(before=before, after=after),)))


def marked(pod, **changes):
    return dataclasses.replace(pod, conditions=(MARK,), **changes)


async def test_pods_that_are_let_go_together_count_before_the_first_has_failed():
    pods = [a_job_pod(index) for index in range(64)]
    town = Town(*pods)
    marks = notstarted.NotStarted(town, town, lambda: town.term, limit=3)
    marked_first = await asyncio.gather(*(marks.mark(pod, 1) for pod in pods))
    assert [outcome for outcome in marked_first if outcome is not None] == [Outcome.DONE] * 3
    town.becomes(pods[0], marked(pods[0]))
    town.becomes(marked(pods[0]), marked(rejected(pods[0], "n1")))
    town.becomes(pods[1], dataclasses.replace(pods[1], resource_version="2"))
    assert not await marks.mark(pods[5], 1), "a refused one counts as long as it is there, a late word changes nothing"
    town.becomes(marked(rejected(pods[0], "n1")), None)
    assert await marks.mark(pods[5], 1)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.BUSY])
async def test_a_mark_that_was_not_written_does_not_count(outcome):
    town = Town(outcome=outcome)
    marks = notstarted.NotStarted(town, town, lambda: town.term, limit=1)
    await marks.mark(a_job_pod(0), 1)
    town.outcome = Outcome.DONE
    assert await marks.mark(a_job_pod(1), 1)


async def test_a_standby_remembers_nothing_and_a_leader_ends_what_it_finds(monkeypatch):
    monkeypatch.setattr(notstarted, "LOOK_SECONDS", 0.0)
    started = [marked(a_job_pod(index), containers=RUNNING) for index in range(2)]
    town = Town()
    town.term = 0
    marks = notstarted.NotStarted(town, town, lambda: town.term, limit=3)
    running = asyncio.create_task(marks.run())
    for pod in started:
        town.becomes(None, pod)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (town.sent, marks._over) == ([], set())
    town.term = 2
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    assert sorted(town.sent) == [("train-0", "False"), ("train-1", "False")]
