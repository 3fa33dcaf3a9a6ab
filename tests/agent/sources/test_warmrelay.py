"""What the admitter wants of a node's images reaches the warmer, and what the warmer answers goes back."""

import asyncio
import contextlib
import datetime

import pytest

from agent.sources import warmrelay
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown
from muster.pb.muster.v1 import feed_pb2, warmth_pb2
from muster.pb.muster.warmer.v1 import warmer_pb2

DIGEST = "sha256:" + 64 * "a"


class FakeWarmer:
    """Remembers what it was told; answers every question with one digest."""

    def __init__(self):
        self.told, self.asked, self.away = [], [], ""

    async def tell(self, request):
        self.told.append(request)
        return self.away

    async def resolve(self, request):
        self.asked.append(request)
        return warmer_pb2.ResolveResponse(digest=DIGEST, bytes_total=7)


class Node:
    """The node's pods as the slice has them, and the time; both are set by the test."""

    def __init__(self):
        self.pods, self.now = NOT_COLLECTED, 1000.0

    def read(self):
        return self.pods

    def monotonic(self):
        return self.now


@contextlib.asynccontextmanager
async def relaying(node=None):
    warmer, answers, node = FakeWarmer(), [], node or Node()
    relay = warmrelay.WarmRelay(warmer, answers.append, node.read, node.monotonic)
    task = asyncio.create_task(relay.run())
    try:
        yield relay, warmer, answers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def pod(**fields):
    return kube.Pod(**{"namespace": "a", "name": "p", "uid": "1", "phase": kube.PodPhase.PENDING, **fields})


async def test_a_list_replaces_the_one_before():
    async with relaying() as (relay, warmer, _):
        wanted = feed_pb2.WarmList(term=1, images=[feed_pb2.WarmImage(reference=f"r/x@{DIGEST}")])
        relay.hear(wanted)
        await until(lambda: any(request.hints for request in warmer.told))
        relay.hear(feed_pb2.WarmList(term=1))
        await until(lambda: not warmer.told[-1].hints)


async def test_a_question_is_asked_once_and_again_in_another_term():
    async with relaying() as (relay, warmer, answers):
        for term in (1, 1, 2):
            questions = [feed_pb2.ImageQuestion(id=5, reference="r/x:v1")]
            questions[0].credential.username = "u"
            relay.hear(feed_pb2.WarmList(term=term, questions=questions))
            count = len(warmer.told)
            await until(lambda count=count: len(warmer.told) > count)
        await until(lambda: len(answers) == 2)
        assert [request.reference for request in warmer.asked] == ["r/x:v1", "r/x:v1"]
        assert {request.credential.username for request in warmer.asked} == {"u"}
        assert {(answer.id, answer.digest, answer.bytes_total) for answer in answers} == {(5, DIGEST, 7)}


async def test_a_credential_is_passed_on_once_and_not_kept():
    async with relaying() as (relay, warmer, _):
        opener = warmth_pb2.PullCredential(username="u", password="s3cret")
        image = feed_pb2.WarmImage(reference=f"r/x@{DIGEST}", secret="s/1", credential=opener)
        question = feed_pb2.ImageQuestion(id=5, reference="r/x:v1", credential=opener)
        relay.hear(feed_pb2.WarmList(term=1, images=[image], questions=[question]))
        await until(lambda: any(request.hints for request in warmer.told) and warmer.asked)
        assert "s3cret" not in str(relay._list)
        relay._news.set()
        await until(lambda: len([request for request in warmer.told if request.hints]) > 1)
        told = [request.hints[0] for request in warmer.told if request.hints]
        assert [hint.credential.password for hint in told] == ["s3cret", *["" for _ in told[1:]]]
        assert {hint.secret for hint in told} == {"s/1"}
        assert [request.credential.password for request in warmer.asked] == ["s3cret"]


async def test_a_question_beyond_the_bound_is_answered_and_not_asked_later_without_its_secret(monkeypatch):
    monkeypatch.setattr(warmrelay, "MAX_ASKED", 2)
    async with relaying() as (relay, warmer, answers):
        questions = [feed_pb2.ImageQuestion(id=number, reference="r/x:v1") for number in range(5)]
        relay.hear(feed_pb2.WarmList(term=1, questions=questions))
        await until(lambda: len(answers) == 5)
        assert sorted(answer.id for answer in answers if answer.reason == "WarmerUnavailable") == [2, 3, 4]
        relay._news.set()
        count = len(warmer.told)
        await until(lambda: len(warmer.told) > count)
        assert len(warmer.asked) == 2


async def test_pods_that_are_starting_are_counted_and_told():
    node = Node()
    async with relaying(node) as (relay, warmer, _):
        node.pods = Known((pod(), pod(uid="2", phase=kube.PodPhase.RUNNING)))
        relay.look()
        await until(lambda: warmer.told and warmer.told[-1].starting_pods == 1)
        node.pods = Known((pod(phase=kube.PodPhase.RUNNING),))
        relay.look()
        await until(lambda: warmer.told[-1].starting_pods == 0)
        assert warmer.asked == []


@pytest.mark.parametrize("gone", [NOT_COLLECTED, Unknown("AdmitterGone"), Unknown("ApiServerGone")])
async def test_pods_that_nobody_tells_of_any_more_hold_nothing_back(gone):
    node = Node()
    node.pods = Known((pod(),))
    async with relaying(node) as (relay, warmer, _):
        await until(lambda: warmer.told and warmer.told[-1].starting_pods == 1)
        node.pods = gone
        relay.look()
        await until(lambda: warmer.told[-1].starting_pods == 0)
        assert warmer.asked == []


async def test_a_pod_that_does_not_start_holds_nothing_back_for_ever():
    """A volume is missing for days: seen by our own clock, since the pod may be older than its place here."""
    node = Node()
    node.pods = Known((pod(created_at=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),))
    async with relaying(node) as (relay, warmer, _):
        await until(lambda: warmer.told and warmer.told[-1].starting_pods == 1)
        node.now += warmrelay.LONGEST_START_SECONDS - 1
        node.pods = Known((*node.pods.value, pod(uid="2")))
        relay.look()
        await until(lambda: warmer.told[-1].starting_pods == 2)
        node.now += 1
        relay.look()
        await until(lambda: warmer.told[-1].starting_pods == 1)
        assert warmer.asked == []


async def test_what_nobody_announces_is_seen_at_the_next_word(monkeypatch):
    """A slice that ages makes no event."""
    monkeypatch.setattr(warmrelay, "REPEAT_SECONDS", 0.01)
    node = Node()
    node.pods = Known((pod(),))
    async with relaying(node) as (_, warmer, _):
        await until(lambda: warmer.told and warmer.told[-1].starting_pods == 1)
        node.pods = Unknown("AdmitterGone")
        await until(lambda: warmer.told[-1].starting_pods == 0)
        assert warmer.asked == []


def waiting(reason):
    return kube.Container(name="c", state=kube.ContainerState.WAITING, reason=reason)


WAITS = [
    ("PodInitializing", True),
    ("ImagePullBackOff", False),
    ("ErrImagePull", False),
    ("CreateContainerConfigError", False),
    ("CrashLoopBackOff", False),
]


@pytest.mark.parametrize(
    ("fields", "starts"),
    [
        ({}, True),
        ({"phase": kube.PodPhase.SUCCEEDED}, False),
        ({"containers": (kube.Container(name="c", state=kube.ContainerState.WAITING),)}, True),
        ({"containers": (kube.Container(name="c", state=kube.ContainerState.RUNNING),)}, False),
        *(({"containers": (waiting(reason), waiting("ContainerCreating"))}, starts) for reason, starts in WAITS),
    ],
)
def test_who_is_starting(fields, starts):
    assert warmrelay.is_starting(pod(**fields)) is starts
