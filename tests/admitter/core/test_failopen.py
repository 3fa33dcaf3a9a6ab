"""In a queue that fails open a whole gang goes without a lease while nobody can see; half of one is finished, and nothing else changes."""

import dataclasses

import pytest

from admitter.core import deadlines, failopen, gates, groups
from admitter.core.deadlines import Maker
from admitter.core.outage import CLOSED, Permit
from admitter.model.cluster import Owner
from admitter.model.decision import Explanation
from admitter.model.group import Workloads
from admitter.model.hold import Hold, HoldReason, LetGo, Open, Pause, Release, Resume, Tell, Withdraw
from admitter.model.record import GangState
from muster.model import labels
from muster.model.vocabulary import WaitReason
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, kinds, opened, released, running
from tests.admitter.grouppods import a_job, a_job_pod

JOB = a_job(parallelism=2, completions=2)
JOBS = Workloads(jobs={JOB.uid: JOB})
SEES = Permit(is_open=True)
WAITS = Permit(is_open=True, words="0 of 3 nodes with devices can be seen")
GOES = dataclasses.replace(WAITS, is_turn=True)
WHY = Explanation(reason=WaitReason.NODES_STALE, summary="nobody is heard", position=1)


def the_pods(**changes):
    return [a_job_pod(index, **changes) for index in range(2)]


def a_step(pods, record, hold, permit, **more):
    return failopen.step(a_scene(pods, record, workloads=JOBS, **more), hold, POLICY, permit)


def waiting(pods):
    hold, gang = opened(pods, JOBS)
    return hold, a_record(gang, why=WHY)


def let_go(pods):
    hold, record = waiting(pods)
    hold, intents = a_step(pods, record, hold, GOES)
    return hold, dataclasses.replace(record, state=GangState.ENDED), [i for i in intents if isinstance(i, Release)]


def after(pod, release):
    return dataclasses.replace(
        pod, gates=(), annotations={**pod.annotations, labels.UNVERIFIED.full: release.unverified}
    )


def test_the_whole_gang_goes_without_a_pin_and_without_a_lease():
    pods = the_pods()
    hold, record = waiting(pods)
    hold, intents = a_step(pods, record, hold, GOES)
    assert kinds(intents) == [Withdraw, LetGo, Release, Release, Tell]
    releases = [intent for intent in intents if isinstance(intent, Release)]
    assert {release.uid for release in releases} == {pod.uid for pod in pods}
    assert {(release.nodes, release.lease_id) for release in releases} == {((), "")}
    assert len({release.unverified for release in releases}) == 1
    assert intents[1] == LetGo(pods=2, detail=GOES.words)
    assert hold.told == intents[-1].told
    assert (hold.told.reason, GOES.words in hold.told.summary) == (HoldReason.UNVERIFIED, True)


@pytest.mark.parametrize("permit", [CLOSED, SEES, WAITS], ids=["fails-closed", "sees", "another's-turn"])
def test_nothing_goes_otherwise(permit):
    pods = the_pods()
    hold, record = waiting(pods)
    assert a_step(pods, record, hold, permit) == gates.step(a_scene(pods, record, workloads=JOBS), hold, POLICY)


@pytest.mark.parametrize("permit", [CLOSED, GOES], ids=["closed", "open"])
def test_a_gang_that_has_a_lease_goes_by_it(permit):
    pods = the_pods()
    hold, gang = opened(pods, JOBS)
    hold, intents = a_step(pods, a_record(gang, nodes=("n1", "n2")), hold, permit)
    assert {intent.nodes for intent in intents if isinstance(intent, Release)} == {("n1",), ("n2",)}
    assert LetGo not in kinds(intents)


def test_one_that_is_not_whole_stays():
    pods = the_pods()
    hold, record = waiting(pods)
    hold, intents = a_step(pods[:1], record, hold, GOES)
    assert Release not in kinds(intents)


def test_one_that_waits_for_somebody_elses_gate_stays():
    pods = the_pods()
    hold, record = waiting(pods)
    pods[1] = dataclasses.replace(pods[1], gates=(*pods[1].gates, "example.com/quota"))
    _, intents = a_step(pods, record, hold, GOES)
    assert Release not in kinds(intents)


def test_one_that_waits_for_itself_or_is_on_strike_stays():
    pods = the_pods()
    hold, record = waiting(pods)
    assert LetGo not in kinds(a_step(pods, record, hold, GOES, self_block="its own old pods")[1])
    assert LetGo not in kinds(a_step(pods, record, dataclasses.replace(hold, not_before=NOW + 5), GOES)[1])


def test_pods_of_a_lease_that_nobody_knows_stay_held_back():
    pods, _, hold, record = released(the_pods(), ("n1", "n2"), JOBS)
    pods[1] = dataclasses.replace(the_pods()[1], annotations=pods[1].annotations)
    hold = dataclasses.replace(hold, seats={})
    record = dataclasses.replace(record, state=GangState.WAITING, lease=None, why=WHY)
    assert LetGo not in kinds(a_step(pods, record, hold, GOES)[1])


def test_until_all_are_seen_to_be_gone_nobody_is_asked_for():
    pods = the_pods()
    hold, record, releases = let_go(pods)
    again, intents = a_step(pods, record, hold, WAITS)
    assert [*intents] == releases
    assert again == hold


@pytest.mark.parametrize("permit", [SEES, WAITS], ids=["sees-again", "still-blind"])
def test_half_a_gang_is_finished_whoever_leads_and_whatever_is_seen(permit):
    pods = the_pods()
    hold, record, releases = let_go(pods)
    first, second = (next(r for r in releases if r.uid == pod.uid) for pod in pods)
    half = [after(pods[0], first), pods[1]]
    assert a_step(half, record, hold, permit)[1] == (second,)
    hold, intents = a_step(half, None, Hold(), permit)
    assert intents[0] == second
    assert kinds(intents[1:]) == [Tell]
    assert hold.told.reason == HoldReason.UNVERIFIED


def test_what_replaces_a_pod_after_the_outage_is_asked_for_like_any_other():
    pods = the_pods()
    hold, record, releases = let_go(pods)
    gone = [after(pod, release) for pod, release in zip(pods, releases, strict=True)]
    assert a_step([running(pod, "n1") for pod in gone], record, hold, SEES) == (hold, ())
    fresh = dataclasses.replace(pods[1], uid="another", name=f"{pods[1].name}x")
    for known in (hold, Hold()):
        _, intents = a_step([running(gone[0], "n1"), fresh], record, known, SEES)
        assert kinds(intents) == [Open]
        assert intents[0].gang.pods == 1


def test_a_mark_that_names_others_lets_nobody_go():
    pods = the_pods()
    forged = [dataclasses.replace(pods[0], gates=(), annotations={labels.UNVERIFIED.full: "f" * 32}), pods[1]]
    _, intents = a_step(forged, None, Hold(), SEES)
    assert Release not in kinds(intents)


def test_no_clock_is_stopped_while_its_queue_lets_go_and_what_was_stopped_goes_on():
    owner = Owner(kind="Job", name=JOB.name, uid=JOB.uid)
    pods = the_pods()
    hold, record = waiting(pods)
    hold = dataclasses.replace(hold, paused=owner)
    suspended = Maker(is_there=True, is_suspended=True)
    away = dataclasses.replace(
        a_scene(pods, record, workloads=JOBS, maker=suspended), group=groups.empty("team-a/job.train")
    )
    assert failopen.step(away, hold, POLICY, WAITS)[1] == (Resume(owner=owner),)
    assert Resume not in kinds(failopen.step(away, hold, POLICY, SEES)[1])
    running_out = deadlines.Deadline(seconds=60, gone_seconds=0.0, owner=owner)
    hold = dataclasses.replace(hold, paused=None)
    assert Pause in kinds(a_step(pods, record, hold, SEES, deadline=running_out)[1])
    assert Pause not in kinds(a_step(pods, record, hold, WAITS, deadline=running_out)[1])
