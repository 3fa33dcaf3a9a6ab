"""What was refused is sent back only where nothing that has started, or may start, ends with it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import groups, strikes
from admitter.core.kin import Kin
from admitter.model.cluster import Owner
from admitter.model.group import JobSet, ReplicatedJob, Workloads
from admitter.model.hold import Hold, HoldReason, Replan, Seat, Strike
from muster.model import kube
from tests.admitter.gatescenes import POLICY, running
from tests.admitter.grouppods import a_group, a_job, a_job_pod

SET = Owner(kind="JobSet", name="run", uid="uid-run", api_version="jobset.x-k8s.io/v1alpha2", is_controller=True)
STUCK = (kube.Container(name="c", state=kube.ContainerState.WAITING, reason="ImagePullBackOff"),)


def a_world(*, in_order=True):
    """A JobSet of a driver and a worker, each a Job of one pod."""
    jobs = [a_job(name, owners=(SET,), parallelism=1, completions=1) for name in ("driver", "worker")]
    parts = (ReplicatedJob(name="driver"), ReplicatedJob(name="worker"))
    whole = JobSet(uid="uid-run", namespace="team-a", name="run", parts=parts, is_in_order=in_order)
    return Workloads(jobs={job.uid: job for job in jobs}, job_sets={"team-a/run": whole})


def a_part(name, index=0, **changes):
    marks = {groups.JOB_SET: "run", groups.JOB_SET_PART: name, groups.JOB_INDEX: str(index)}
    return a_job_pod(index, job=name, **{"labels": marks, "gates": (), **changes})


def judge(members, others, workloads, now=1000.0, hold=None):
    """Judge a group of which all members were seated at 0, and their pulls began to fail; others are there too."""
    seats = {pod.uid: Seat(node="n1", podset="main", lease_id="l", at=0.0) for pod in members if pod.requests}
    owners = {pod.uid: groups.owner(pod, workloads) for pod in members}
    kin = Kin(lambda: [*members, *others], workloads)
    hold = hold or Hold(request_id="r", seats=seats, unpulled=dict.fromkeys(seats, 0.0))
    return strikes.judge(a_group(members, workloads), hold, POLICY, now, owners, lambda owner: kin.of(owner, "team-a"))


def kinds(intents):
    return {type(intent) for intent in intents}


@pytest.mark.parametrize("is_known", [True, False], ids=["its Job is known", "its Job is not known yet"])
def test_a_driver_that_runs_in_another_part_keeps_its_job_set(is_known):
    workloads = a_world()
    if not is_known:
        workloads = dataclasses.replace(workloads, jobs={"uid-worker": workloads.jobs["uid-worker"]})
    worker = a_part("worker", node="n1", containers=STUCK)
    hold, intents = judge([worker], [running(a_part("driver"), "n2")], workloads)
    assert intents == ()
    assert hold.stays.reason == HoldReason.CANNOT_PULL
    assert "driver-0 would end with it" in hold.stays.summary
    assert kinds(judge([worker], [], workloads)[1]) == {Strike, Replan}


def test_a_driver_without_devices_in_the_same_group_keeps_it():
    driver = running(a_part("driver", requests={}), "n2")
    worker = a_part("worker", node="n1", containers=STUCK)
    assert judge([driver, worker], [], a_world(in_order=False))[1] == ()


@pytest.mark.parametrize("node", ["n2", ""])
def test_a_pod_beside_it_that_is_bound_may_start_at_any_moment(node):
    hold, intents = judge([a_part("worker")], [a_part("driver", node=node)], a_world())
    assert kinds(intents) == ({Strike} if node else {Strike, Replan})
    assert (hold.stays is not None) == bool(node)


def test_it_is_sent_back_once_that_one_is_done():
    worker, driver = a_part("worker"), running(a_part("driver"), "n2")
    hold, _ = judge([worker], [driver], a_world())
    again, intents = judge([worker], [driver], a_world(), hold=hold)
    assert (intents, again.stays) == ((), hold.stays), "it is counted once, and said as long as it is so"
    done = dataclasses.replace(driver, phase=kube.PodPhase.SUCCEEDED)
    _, intents = judge([worker], [done], a_world(), hold=hold)
    assert kinds(intents) == {Replan}


def test_a_pod_of_nobody_here_keeps_nothing():
    stranger = running(a_job_pod(0, job="other"), "n2")
    assert Replan in kinds(judge([a_part("worker")], [stranger], a_world())[1])


STATES = st.sampled_from(["held", "free", "bound", "stuck", "runs", "done", "ended"])


def in_state(pod, state):
    match state:
        case "held":
            return dataclasses.replace(pod, gates=("muster.dev/gang",))
        case "bound":
            return dataclasses.replace(pod, node="n")
        case "stuck":
            return dataclasses.replace(pod, node="n", containers=STUCK)
        case "runs":
            return running(pod, "n")
        case "done":
            return dataclasses.replace(running(pod, "n"), phase=kube.PodPhase.SUCCEEDED)
        case "ended":
            return dataclasses.replace(pod, node="n", phase=kube.PodPhase.FAILED, reason="UnexpectedAdmissionError")
    return pod


@given(
    members=st.lists(st.tuples(STATES, st.booleans()), min_size=1, max_size=4),
    others=st.lists(STATES, max_size=3),
    in_order=st.booleans(),
    now=st.sampled_from([1.0, 100.0, 1000.0]),
)
def test_nothing_that_has_started_ends_with_what_is_sent_back(members, others, in_order, now):
    workloads = a_world(in_order=in_order)
    mine = [
        in_state(a_part("worker", index, requests={"nvidia.com/gpu": 8} if needs else {}), state)
        for index, (state, needs) in enumerate(members)
    ]
    beside = [in_state(a_part("driver", index), state) for index, state in enumerate(others)]
    _, intents = judge(mine, beside, workloads, now)
    for replan in (intent for intent in intents if isinstance(intent, Replan)):
        live = [pod for pod in (*mine, *beside) if not pod.is_finished]
        assert replan.owner == SET
        assert not any(strikes.has_started(pod) for pod in live)
        assert replan.is_bound or not any(pod.node for pod in live)
        assert not strikes.ends_work(replan, live)
