"""A bare pod that was sent back is made anew when its name is free, and nobody waits for that."""

import asyncio

import httpx2
import pytest
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.model.cluster import Owner
from admitter.publish import pods, remaking
from admitter.publish.nodes import Outcome
from muster.model import kube, labels
from tests.admitter.clusters import TAKEN
from tests.admitter.grouppods import a_pod


def refusal(code):
    response = httpx2.Response(code, json={"kind": "Status", "code": code}, request=httpx2.Request("POST", "http://a"))
    return exceptions.ApiError(response=response)


class Server:
    """An API server on which a name stays taken until it is let go."""

    def __init__(self):
        self.uids, self.created, self.asked, self.answers = {}, [], [], []
        self.patched, self.evicted, self.stays = [], [], False

    async def get(self, kind, name, *, namespace):
        metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, uid=self.uids.get(name, f"uid-{name}"))
        return core.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[], nodeName="n1"))

    async def create(self, item, name="", *, namespace="", dry_run=False):
        if type(item).__name__ == "PodEviction":
            self.evicted.append((name, item.deleteOptions.preconditions.resourceVersion))
            if self.stays:
                raise refusal(429)
            return
        if dry_run:
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

    async def patch(self, kind, name, body, *, namespace, patch_type):
        self.patched.append((name, body))
        return core.Pod(metadata=meta_v1.ObjectMeta(name=name, resourceVersion="marked"))

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


def a_sent_back(name="trainer-0", **changes):
    """Return a bare pod that a leader sent back, and that still goes."""
    marked = {labels.REPLAN.full: pods.REMADE}
    return a_pod(name, **{"node": "n1", "deletion_at": TAKEN, "annotations": marked, **changes})


async def test_the_next_leader_makes_what_the_last_one_did_not_live_to_make(server, writer):
    writer.go_on([a_sent_back(), a_pod("lives", node="n1")], 7)
    server.let_go("lives")
    await until(lambda: len(server.asked) > 5)
    assert (server.created, set(server.asked)) == ([], {"trainer-0"})
    server.let_go("trainer-0")
    await writer._remaker.wait()
    assert server.created == ["trainer-0"]


async def test_what_went_on_in_a_term_is_looked_for_once(server, writer):
    writer.go_on([], 7)
    writer.go_on([a_sent_back()], 7)
    await writer._remaker.wait()
    assert server.asked == []


async def test_a_leader_that_may_not_write_makes_nothing(server):
    writer = pods.PodWriter(server, lambda _: False, lambda: TAKEN, reporter="a")
    writer.go_on([a_sent_back()], 7)
    await writer._remaker.wait()
    assert server.asked == []


OWNER = Owner(kind="Job", name="train", uid="u", api_version="batch/v1", is_controller=True)


@pytest.mark.parametrize(
    "changes",
    [{"annotations": {}}, {"deletion_at": None}, {"phase": kube.PodPhase.RUNNING}, {"owners": (OWNER,)}],
    ids=["not sent back", "does not go", "has run", "somebody else makes it"],
)
def test_no_other_pod_that_goes_is_made_anew(changes):
    assert pods.is_unmade(a_sent_back())
    assert not pods.is_unmade(a_sent_back(**changes))


async def test_a_pod_of_another_uid_by_then_is_left_alone(server, writer):
    server.uids["trainer-0"] = "uid-of-somebody"
    writer.go_on([a_sent_back()], 7)
    await writer._remaker.wait()
    assert server.asked == []


async def test_the_one_that_goes_is_marked_as_it_was_seen_and_evicted_as_it_is_then(server, writer):
    await writer.send_back(a_pod(node="n1"), 1)
    ((name, body),) = server.patched
    assert name == "trainer-0"
    assert body["metadata"] == {
        "uid": "uid-trainer-0",
        "resourceVersion": "1",
        "annotations": {labels.REPLAN.full: pods.REMADE},
    }
    assert server.evicted == [("trainer-0", "marked")]
    server.let_go("trainer-0")
    await writer._remaker.wait()


async def test_one_that_is_not_let_go_loses_the_mark_and_is_not_made_anew(server, writer):
    server.stays = True
    outcome, _ = await writer.send_back(a_pod(node="n1"), 1)
    assert outcome is Outcome.BUSY
    marks = [body["metadata"]["annotations"][labels.REPLAN.full] for _, body in server.patched]
    assert marks == [pods.REMADE, None]
    await writer._remaker.wait()
    assert server.asked == []


def test_a_copy_has_nothing_of_ours_but_the_gate():
    ours = {labels.LEASE.full: "l", labels.REPLAN.full: pods.REMADE, "example.com/theirs": "kept"}
    metadata = meta_v1.ObjectMeta(name="a", namespace="team-a", annotations=ours)
    copy = pods.held_copy(core.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[])))
    assert copy.metadata.annotations == {"example.com/theirs": "kept"}
