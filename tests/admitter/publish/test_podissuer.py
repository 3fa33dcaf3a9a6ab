"""What was wanted is asked for again as it is sent, and a suspension and a release of the same pods never go together."""

import asyncio
import dataclasses

from admitter.core import kin
from admitter.model.group import Workloads
from admitter.model.hold import Release, Replan
from admitter.model.record import GangState
from admitter.publish.nodes import Outcome
from admitter.publish.podissuer import PodIssuer
from admitter.publish.recheck import Recheck
from muster.model import labels
from tests.admitter.gatescenes import a_record as a_record_of
from tests.admitter.gatescenes import opened, running
from tests.admitter.grouppods import GATE, a_job, a_job_pod

JOB = a_job(parallelism=2, completions=2, resource_version="7")
PAIR = [a_job_pod(0), a_job_pod(1)]
OWNER = PAIR[0].controller


class Town:
    """Pods, a Job, a record and an API server that answers when it is let."""

    def __init__(self, pods):
        self.stored = {pod.uid: pod for pod in pods}
        self.workloads = Workloads(jobs={JOB.uid: JOB})
        self.record = None
        self.listed = "as the watch has them"
        self.sent, self.answers, self.gate, self.bodies = [], [], asyncio.Event(), []
        self.issuer = PodIssuer(self, self, GATE, self, self, self.read)
        self.recheck = Recheck(lambda _: self.record, self, lambda: self.workloads, GATE, self.issuer.is_busy)

    # -- the cluster, the marks of pods, the teller

    def pods(self):
        return self.stored

    def pod(self, uid):
        return self.stored.get(uid)

    def nodes(self):
        return {}

    async def mark(self, pod, term):
        return None

    async def run(self):
        await asyncio.Event().wait()

    # -- the API server

    async def read(self, namespace):
        return self.listed if self.listed != "as the watch has them" else self.stored.values()

    async def _answer(self, *request):
        self.sent.append(request)
        await self.gate.wait()
        return (self.answers.pop(0) if self.answers else Outcome.DONE), ""

    async def release(self, pod, body, term):
        self.bodies.append(body)
        return await self._answer("release", pod.name)

    async def suspend(self, owner, namespace, term, version):
        return await self._answer("suspend", owner.name, version)

    async def pause(self, owner, namespace, term, version):
        return await self._answer("pause", owner.name, version)

    async def send_back(self, pod, term):
        return await self._answer("back", pod.name)

    # -- what the loop asks for

    def wants_pause(self):
        fresh = self.recheck.pause("team-a/job.train", self.record.gang.request_id, OWNER, "team-a")
        self.issuer.pause(OWNER, "team-a", 1, fresh, lambda _: None)

    def wants_replan(self, **changes):
        replan = Replan(**{"owner": OWNER, "uids": tuple(self.stored), "detail": "", **changes})
        self.issuer.replan(replan, "team-a", 1, self.recheck.replan(replan, "team-a"))

    def wants_release(self, pod, lease_id="t1-1"):
        release = Release(uid=pod.uid, nodes=("n1",), lease_id=lease_id)
        still = self.recheck.lease("team-a/job.train", lease_id)
        self.issuer.release(release, 1, OWNER.uid, still, lambda *_: None)


async def played(town, *acts):
    """Run the acts one after the other, all requests waiting for the last one."""
    async with asyncio.TaskGroup() as group:
        town.issuer.begin(group)
        begun = set(asyncio.all_tasks()) - {asyncio.current_task()}
        for act in acts:
            act()
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        town.gate.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(town.issuer.is_busy(uid) for uid in (*town.stored, OWNER.uid))
        for task in begun:
            task.cancel()
    return town.sent


def a_town(pods=PAIR, nodes=()):
    town = Town(pods)
    town.record = a_record_of(opened(PAIR, town.workloads)[1], nodes=nodes)
    return town


async def test_a_pause_names_the_version_that_was_seen():
    town = a_town()
    assert await played(town, town.wants_pause) == [("pause", "train", "7")]


async def test_a_gang_that_was_leased_while_its_pause_stood_in_line_is_not_paused():
    town = a_town()

    def leased():
        town.record = a_record_of(town.record.gang, nodes=("n1", "n2"))

    assert await played(town, lambda: (town.wants_pause(), leased())) == []


async def test_nor_is_one_of_which_a_pod_beside_it_was_let_go():
    town = a_town([*PAIR, dataclasses.replace(a_job_pod(2), gates=())])
    assert await played(town, town.wants_pause) == []


async def test_no_pod_is_let_go_while_what_makes_it_is_being_suspended():
    town = a_town(nodes=("n1", "n2"))
    town.record = dataclasses.replace(town.record, state=GangState.WAITING)
    assert await played(town, town.wants_pause, lambda: town.wants_release(PAIR[0])) == [("pause", "train", "7")]


async def test_and_nothing_is_suspended_while_one_of_its_pods_is_being_let_go():
    town = a_town(nodes=("n1", "n2"))
    town.record = dataclasses.replace(town.record, state=GangState.WAITING)
    sent = await played(town, lambda: town.wants_release(PAIR[0]), town.wants_pause)
    assert sent == [("release", "train-0")]


async def test_what_goes_without_a_lease_carries_the_mark_and_no_pin():
    town = Town(PAIR)
    release = Release(uid=PAIR[0].uid, nodes=(), lease_id="", unverified="these")
    await played(town, lambda: town.issuer.release(release, 1, OWNER.uid, lambda: True, lambda *_: None))
    (body,) = town.bodies
    assert body["metadata"]["annotations"] == {labels.UNVERIFIED.full: "these"}
    assert body["spec"].keys() == {"schedulingGates"}


async def test_nothing_is_let_go_under_a_lease_that_was_given_up():
    town = a_town(nodes=("n1", "n2"))
    other = await played(town, lambda: town.wants_release(PAIR[0], "t1-0"), lambda: town.wants_release(PAIR[1]))
    assert other == [("release", "train-1")]


async def test_what_started_while_the_suspension_stood_in_line_goes_on():
    let_go = [dataclasses.replace(pod, gates=()) for pod in PAIR]
    town = a_town(let_go)

    def starts():
        town.stored[let_go[0].uid] = running(let_go[0], "n1")

    assert await played(town, lambda: (town.wants_replan(), starts())) == []
    town = a_town([let_go[0], dataclasses.replace(let_go[1], node="n2")])
    assert await played(town, town.wants_replan) == [], "bound: it may start at any moment"
    assert await played(town, lambda: town.wants_replan(is_bound=True)) == [("suspend", "train", "7")]


async def test_a_pod_that_started_or_was_bound_meanwhile_is_not_sent_back():
    town = a_town([running(PAIR[0], "n1"), dataclasses.replace(PAIR[1], gates=())])
    assert await played(town, lambda: town.wants_replan(owner=None)) == [("back", "train-1")]
    town = a_town([dataclasses.replace(PAIR[0], gates=(), node="n1"), dataclasses.replace(PAIR[1], gates=())])
    assert await played(town, lambda: town.wants_replan(owner=None)) == [("back", "train-1")]


async def test_a_suspension_that_somebody_came_before_looks_again(monkeypatch):
    monkeypatch.setattr("admitter.publish.podissuer.AGAIN_SECONDS", 0.0)
    town = a_town([dataclasses.replace(pod, gates=()) for pod in PAIR])
    town.answers = [Outcome.CONFLICT, Outcome.CONFLICT]
    assert await played(town, town.wants_replan) == [("suspend", "train", "7")] * 3


async def test_nothing_is_suspended_by_the_word_of_a_watch_that_is_behind():
    let_go = [dataclasses.replace(pod, gates=()) for pod in PAIR]
    town = a_town(let_go)
    town.listed = [running(let_go[0], "n1"), let_go[1]]
    assert await played(town, town.wants_replan) == []
    town = a_town()
    town.listed = [let_go[0], PAIR[1]]
    assert await played(town, town.wants_pause) == [], "somebody has stripped its gate"


async def test_nor_while_its_pods_cannot_be_listed():
    town = a_town([dataclasses.replace(pod, gates=()) for pod in PAIR])
    town.listed = None
    assert await played(town, town.wants_replan) == []


async def test_what_got_no_answer_rests_and_is_not_sent_with_every_look():
    town = a_town(nodes=("n1", "n2"))
    town.answers = [Outcome.BUSY] * 9
    looks = [lambda: town.wants_release(PAIR[0])] * 9
    town.gate.set()
    assert await played(town, *looks) == [("release", "train-0")]
    town = a_town(nodes=("n1", "n2"))
    town.answers = [Outcome.CONFLICT] * 9
    town.gate.set()
    assert await played(town, *looks) == [("release", "train-0")] * 2, (
        "the first conflict says that somebody was quicker"
    )


def test_one_that_is_not_there_or_over_has_no_version():
    over = dataclasses.replace(JOB, is_finished=True)
    assert kin.version(OWNER, "team-a", Workloads(jobs={JOB.uid: JOB})) == "7"
    assert kin.version(OWNER, "team-a", Workloads(jobs={JOB.uid: over})) is None
    assert kin.version(OWNER, "team-a", Workloads()) is None
