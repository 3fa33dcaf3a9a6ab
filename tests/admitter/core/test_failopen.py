"""In a queue that fails open a whole gang goes without a lease while nobody can see; half of one is finished, and nothing else changes."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


ACTS = st.lists(
    st.one_of(
        st.sampled_from(["look", "leader", "answer", "lease", "replaced"]),
        st.tuples(st.sampled_from([SEES, WAITS, GOES])),
        st.sets(st.integers(0, 2), min_size=1),
    ),
    max_size=30,
)


class World:
    """Three pods of a Job, requests that land late or never, leaders that come and go."""

    job = a_job(parallelism=3, completions=3)

    def __init__(self):
        self.pods = [a_job_pod(index) for index in range(3)]
        self.hold, self.record, self.permit = Hold(), None, SEES
        self.sent, self.let_go, self.made = {}, [], 3

    def look(self):
        workloads = Workloads(jobs={self.job.uid: self.job})
        known = {"t1-1": self.record.gang.request_id} if self.record is not None and self.record.lease else {}
        scene = a_scene(self.pods, self.record, workloads=workloads, request_of=known)
        self.hold, intents = failopen.step(scene, self.hold, POLICY, self.permit)
        for intent in intents:
            match intent:
                case Open(gang=gang):
                    self.record = a_record(gang)
                case Withdraw():
                    self.record = None
                case Release(uid=uid):
                    self.sent[uid] = intent
                case LetGo():
                    self.let_go.append(frozenset(pod.uid for pod in self.pods))
        return kinds(intents)

    def lands(self, places):
        """The patches of these pods go through, if they were sent."""
        for place in places:
            release = self.sent.pop(self.pods[place].uid, None)
            if release is not None and self.pods[place].gates:
                marks = {labels.UNVERIFIED.full: release.unverified} if release.unverified else {}
                marks |= {labels.LEASE.full: release.lease_id} if release.lease_id else {}
                self.pods[place] = dataclasses.replace(self.pods[place], gates=(), annotations=marks)

    def does(self, act):
        match act:
            case "leader":
                self.hold, self.record, self.sent = Hold(), None, {}
            case "answer" if self.record is not None and self.record.lease is None:
                self.record = dataclasses.replace(self.record, why=WHY)
            case "lease" if self.record is not None and self.record.lease is None and self.record.gang.pods == 3:
                self.record = a_record(self.record.gang, nodes=("n1", "n2", "n3"))
            case "replaced":
                old, self.made = self.pods[2], self.made + 1
                self.pods[2] = dataclasses.replace(a_job_pod(2), uid=f"made-{self.made}", name=old.name)
            case (Permit() as permit,):
                self.permit = permit
            case set() as places:
                self.lands(places)


@settings(max_examples=300)
@given(ACTS)
def test_whatever_comes_between_a_gang_goes_once_and_whole(acts):
    world = World()
    for act in acts:
        world.does(act)
        marks = {pod.annotations.get(labels.UNVERIFIED.full) for pod in world.pods if not pod.gates and pod.annotations}
        asked = world.look()
        same = [uids for uids in world.let_go if uids == frozenset(pod.uid for pod in world.pods)]
        assert len(same) <= 1 or "leader" in acts
        if marks == {failopen._name(world.pods, POLICY)}:
            assert Open not in asked, "half of it holds what it got"
            assert not world.record
    # Whatever was begun is finished, as long as its queue fails open and its pods are the same.
    if world.let_go and world.let_go[-1] == frozenset(pod.uid for pod in world.pods) and world.hold.unverified:
        world.permit = SEES
        world.look()
        world.lands({0, 1, 2})
        assert not any(pod.gates for pod in world.pods)
    assert not any({labels.UNVERIFIED.full, labels.LEASE.full} <= pod.annotations.keys() for pod in world.pods)
