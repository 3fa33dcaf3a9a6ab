"""A deadline of a Job's own does not run while it waits for a place, or it is said that it does."""

import dataclasses
import datetime

import pytest

from admitter.core import deadlines, gates, gatescene
from admitter.core.kin import Kin
from admitter.model.cluster import Owner
from admitter.model.decision import Explanation
from admitter.model.group import JobSet, ReplicatedJob, Workloads
from admitter.model.hold import Hold, HoldReason, Pause, Release, Resume, Tell, Withdraw
from admitter.model.record import GangState
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import TAKEN
from tests.admitter.gatescenes import NOW, POLICY, a_look, a_record, kinds
from tests.admitter.grouppods import a_job, a_job_pod

WHY = Explanation(reason=WaitReason.NOT_ENOUGH_UNITS, summary="needs 16 GPUs", position=1)
JOB = a_job(parallelism=2, completions=2, active_deadline_seconds=600, started_at=TAKEN)
PAIR = [a_job_pod(0), a_job_pod(1)]
AWAY = dataclasses.replace(JOB, is_suspended=True)


def a_world(job=JOB):
    return Workloads(jobs={job.uid: job} if job else {})


def scene(pods, record, hold, job=JOB, now=NOW, gone=12, beside=()):
    look = a_look([*pods, *beside], a_world(job), TAKEN + datetime.timedelta(seconds=gone), now)
    return gatescene.assemble("team-a/job.train", pods, look, record=record, hold=hold, policy=POLICY)


def waiting():
    """A gang of two that has asked and waits; what is remembered, and its record."""
    hold, (opened,) = gates.step(scene(PAIR, None, Hold()), Hold(), POLICY)
    return hold, a_record(opened.gang, why=WHY)


def paused():
    hold, record = waiting()
    hold, intents = gates.step(scene(PAIR, record, hold), hold, POLICY)
    assert [intent for intent in intents if isinstance(intent, Pause)] == [Pause(owner=PAIR[0].owners[0])]
    return hold, record


def test_a_job_that_waits_is_suspended_and_its_question_stays():
    hold, record = paused()
    for pods in (PAIR, PAIR[:1], []):
        hold, intents = gates.step(scene(pods, record, hold, AWAY, now=NOW + 1), hold, POLICY)
        assert Withdraw not in kinds(intents)
        assert Pause not in kinds(intents)


def test_one_that_finds_its_place_at_once_is_not():
    hold, record = waiting()
    leased = a_record(record.gang, nodes=("n1", "n2"))
    _, intents = gates.step(scene(PAIR, leased, hold), hold, POLICY)
    assert Pause not in kinds(intents)
    assert kinds(intents).count(Release) == 2


def test_with_the_lease_it_goes_on_and_its_new_pods_take_the_places():
    hold, record = paused()
    leased = a_record(record.gang, nodes=("n1", "n2"))
    hold, intents = gates.step(scene([], leased, hold, AWAY), hold, POLICY)
    assert intents == (Resume(owner=PAIR[0].owners[0]),)
    hold, intents = gates.step(scene([], leased, hold, JOB), hold, POLICY)
    assert intents == ()
    anew = [a_job_pod(0, uid="a"), a_job_pod(1, uid="b")]
    hold, intents = gates.step(scene(anew[:1], leased, hold, JOB), hold, POLICY)
    assert [(i.uid, i.nodes) for i in intents if isinstance(i, Release)] == [("a", ("n1",))]
    hold, intents = gates.step(scene(anew, leased, hold, JOB), hold, POLICY)
    assert {i.uid: i.nodes[0] for i in intents if isinstance(i, Release)} == {"a": "n1", "b": "n2"}


def test_a_job_that_is_deleted_meanwhile_takes_its_question_back():
    hold, record = paused()
    hold, intents = gates.step(scene([], record, hold, job=None), hold, POLICY)
    assert kinds(intents) == [Withdraw]
    assert (hold.paused, hold.request_id) == (None, "")


def test_pods_that_do_not_come_back_give_the_lease_back():
    hold, record = paused()
    leased = a_record(record.gang, nodes=("n1", "n2"))
    leased = dataclasses.replace(
        leased, timeline=dataclasses.replace(leased.timeline, admitted=deadlines.lifecycle.Known(leased.timeline.asked))
    )
    late = NOW + POLICY.bind_patience_seconds
    assert gates.step(scene([], leased, hold, JOB, now=late), hold, POLICY)[1] == ()
    assert kinds(gates.step(scene([], leased, hold, JOB, now=late + 1), hold, POLICY)[1]) == [Withdraw]


def test_one_whose_question_was_ended_comes_back_to_ask_again():
    hold, record = paused()
    ended = dataclasses.replace(record, state=GangState.ENDED)
    hold, intents = gates.step(scene([], ended, hold, AWAY), hold, POLICY)
    assert kinds(intents) == [Resume]
    assert hold.paused is None


def test_what_cannot_be_suspended_is_told_once_how_much_the_wait_eats():
    hold, record = waiting()
    hold = dataclasses.replace(hold, cannot_pause=True)
    hold, intents = gates.step(scene(PAIR, record, hold), hold, POLICY)
    told = [intent.told for intent in intents if isinstance(intent, Tell)]
    assert [each.reason for each in told] == [HoldReason.DEADLINE_RUNS, WHY.reason]
    assert "activeDeadlineSeconds 600" in told[0].summary
    assert "12 s are gone" in told[0].summary
    assert "588" in told[0].summary
    assert gates.step(scene(PAIR, record, hold), hold, POLICY)[1] == ()


SET = Owner(kind="JobSet", name="train", uid="uid-set", api_version="jobset.x-k8s.io/v1alpha2", is_controller=True)


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        (dataclasses.replace(JOB, parallelism=3), PAIR),
        (dataclasses.replace(JOB, owners=(SET,)), PAIR),
        (dataclasses.replace(JOB, is_finished=True), PAIR),
        (dataclasses.replace(JOB, is_managed=True), PAIR),
    ],
    ids=["pods of it are of another gang", "another controller's", "over", "Kueue's or another manager's"],
)
def test_only_what_makes_this_gang_and_nothing_else_is_suspended(job, pods):
    group = scene(pods, None, Hold(), job=JOB).group
    found = deadlines.deadline(group, pods[0].owners[0], a_world(job), TAKEN, Kin(lambda: pods, a_world(job)))
    assert found.owner is None


def test_a_job_set_is_suspended_whole_and_only_if_its_parts_start_together():
    job = dataclasses.replace(JOB, owners=(SET,))
    part = ReplicatedJob(name="main", replicas=1, pods_per_job=2)
    whole = JobSet(uid="uid-set", namespace="team-a", name="train", parts=(part,))
    pods = [dataclasses.replace(pod, labels={**pod.labels, gatescene.groups.JOB_SET: "train"}) for pod in PAIR]
    for in_order, expected in ((False, SET), (True, None)):
        workloads = Workloads(
            jobs={job.uid: job}, job_sets={"team-a/train": dataclasses.replace(whole, is_in_order=in_order)}
        )
        place = gatescene.groups.place(pods[0], workloads)
        group = gatescene.groups.group(place, pods, workloads)
        assert deadlines.deadline(group, SET, workloads, TAKEN, Kin(lambda: pods, workloads)).owner == expected


def test_without_a_deadline_nothing_is_touched():
    plain = dataclasses.replace(JOB, active_deadline_seconds=None)
    hold, record = waiting()
    _, intents = gates.step(scene(PAIR, record, hold, job=plain), hold, POLICY)
    assert Pause not in kinds(intents)


def test_who_resumes_it_again_is_not_fought_with():
    """A GitOps controller takes our word back at once: the pods would come and go for ever."""
    hold, record = waiting()
    pauses, now = 0, NOW
    for _ in range(10):
        hold, intents = gates.step(scene(PAIR, record, hold, now=now), hold, POLICY)
        pauses += kinds(intents).count(Pause)
        now += deadlines.AGAIN_SECONDS
    assert (pauses, hold.paused, hold.is_warned) == (deadlines.MAX_PAUSES, None, True)
    leased = a_record(record.gang, nodes=("n1", "n2"))
    assert gates.step(scene(PAIR, leased, hold), hold, POLICY)[0].pauses == 0


def test_a_pod_beside_the_gang_keeps_what_makes_them_going():
    driver = a_job_pod(2, labels={"muster.dev/gang": "driver"}, gates=(), node="n9")
    hold, record = waiting()
    _, intents = gates.step(scene(PAIR, record, hold, beside=[driver]), hold, POLICY)
    assert Pause not in kinds(intents)
