"""Who belongs to a group, and how many there must be."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import groups
from admitter.model.cluster import Owner
from admitter.model.group import JobSet, PodGroup, ReplicatedJob, Source, Workloads
from muster.model import kube, labels
from muster.model.reading import Known, Unknown
from tests.admitter.grouppods import a_group, a_job, a_job_pod, a_pod

JOBS = Workloads(jobs={"uid-train": a_job()})
SET_LABELS = {groups.JOB_SET: "set", groups.JOB_SET_PART: "workers", groups.JOB_SET_JOB: "1", groups.JOB_INDEX: "2"}
LWS_LABELS = {groups.LWS: "serve", groups.LWS_GROUP: "3", groups.LWS_WORKER: "1"}


@pytest.mark.parametrize(
    ("pod", "workloads", "source", "name"),
    [
        (a_pod(), Workloads(), Source.LABEL, "trainer"),
        (a_job_pod(0, labels={labels.GANG.full: "trainer"}), JOBS, Source.LABEL, "trainer"),
        (a_pod(labels={}, scheduling_group="pg"), Workloads(), Source.POD_GROUP, "podgroup.pg"),
        (a_pod(labels=SET_LABELS), Workloads(), Source.JOB_SET, "jobset.set"),
        (a_pod(labels=LWS_LABELS), Workloads(), Source.LEADER_WORKER_SET, "lws.serve.3"),
        (a_job_pod(0), JOBS, Source.JOB, "job.train"),
        (a_pod(labels={groups.COSCHEDULING: "pg"}), Workloads(), Source.COSCHEDULING, "coscheduling.pg"),
        (a_pod(labels={}), Workloads(managed=frozenset({"team-a"})), Source.POD, "pod.trainer-0"),
    ],
    ids=lambda value: value.value if isinstance(value, Source) else "",
)
def test_the_first_marker_that_applies_names_the_group(pod, workloads, source, name):
    found = groups.place(pod, workloads)
    assert (found.source, found.name) == (source, name)


@pytest.mark.parametrize(
    "job",
    [a_job(is_indexed=False), a_job(parallelism=2), a_job(parallelism=1, completions=1)],
    ids=["not indexed", "fewer at once than in all", "one pod"],
)
def test_a_job_that_needs_no_gang_is_one_only_in_a_managed_namespace(job):
    pod = a_job_pod(0)
    assert groups.place(pod, Workloads(jobs={job.uid: job})) is None
    managed = Workloads(jobs={job.uid: job}, managed=frozenset({"team-a"}))
    assert groups.place(pod, managed).source is Source.JOB


def test_a_pod_without_any_marker_is_nobodys():
    assert groups.place(a_pod(labels={}), Workloads()) is None


def test_members_are_those_that_are_neither_finished_nor_going():
    done = a_pod("trainer-1", phase=kube.PodPhase.SUCCEEDED)
    going = a_pod("trainer-2", deletion_at=1)
    group = a_group([done, a_pod(), going])
    assert [member.pod.name for member in group.members] == ["trainer-0"]
    assert group.wanted == Known(1), "one of two is done"
    assert group.ended == (done,)


def test_a_failed_member_is_still_wanted():
    group = a_group([a_pod(), a_pod("trainer-1", phase=kube.PodPhase.FAILED)])
    assert (group.wanted, len(group.members)) == (Known(2), 1)


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((None, None), "muster.dev/gang-size: is required"),
        (("0", "0"), "muster.dev/gang-size: '0' is not a number in 1..100000"),
        (("1000000", "1000000"), "muster.dev/gang-size: '1000000' is not a number in 1..100000"),
        (("-3", "2"), "muster.dev/gang-size: '-3' is not a number in 1..100000"),
        (("²", "2"), "muster.dev/gang-size: '²' is not a number in 1..100000"),
        (("2", "3"), "muster.dev/gang-size: its pods say 2 and 3"),
        (("1", "1"), "2 pods, and 1 belong to it: two groups under one name?"),
    ],
)
def test_a_size_that_does_not_fit_is_said_once(sizes, problem):
    pods = [
        a_pod(f"trainer-{index}", annotations={} if size is None else {labels.GANG_SIZE.full: size})
        for index, size in enumerate(sizes)
    ]
    assert problem in a_group(pods).problems


def test_two_sources_under_one_name_are_a_problem():
    label = a_pod("x", labels={labels.GANG.full: "job.train"}, annotations={labels.GANG_SIZE.full: "1"})
    pods = [label, *(a_job_pod(index) for index in range(4))]
    assert "two groups have the name job.train: by job and by label" in a_group(pods, JOBS).problems


def test_a_job_says_how_many_are_left():
    workloads = Workloads(jobs={"uid-train": a_job(succeeded=1)})
    assert a_group([a_job_pod(0)], workloads).wanted == Known(3)
    queue = Workloads(jobs={"uid-train": a_job(completions=10, succeeded=8)}, managed=frozenset({"team-a"}))
    assert a_group([a_job_pod(0)], queue).wanted == Known(2)


def test_a_job_set_counts_all_its_parts_and_the_newest_attempt_only():
    parts = (ReplicatedJob(name="workers", replicas=2, pods_per_job=4), ReplicatedJob(name="leader"))
    workloads = Workloads(job_sets={"team-a/set": JobSet(uid="s", namespace="team-a", name="set", parts=parts)})
    old = a_pod("old", labels={**SET_LABELS, groups.JOB_SET_ATTEMPT: "1"})
    new = a_pod("new", labels={**SET_LABELS, groups.JOB_SET_ATTEMPT: "2"})
    group = a_group([old, new], workloads)
    assert group.wanted == Known(9)
    assert [member.pod.name for member in group.members] == ["new"]


def test_the_parts_of_a_job_set_that_starts_in_order_are_gangs_of_their_own():
    parts = (ReplicatedJob(name="workers", replicas=2, pods_per_job=4), ReplicatedJob(name="leader"))
    owner = JobSet(uid="s", namespace="team-a", name="set", parts=parts, is_in_order=True)
    group = a_group([a_pod(labels=SET_LABELS)], Workloads(job_sets={"team-a/set": owner}))
    assert (group.name, group.wanted) == ("jobset.set.workers", Known(8))


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod(labels=SET_LABELS), "its JobSet is not there"),
        (a_pod(labels={}, scheduling_group="pg"), "its PodGroup is not there"),
        (a_pod(labels={groups.COSCHEDULING: "pg"}), "its PodGroup is not there"),
    ],
)
def test_without_the_object_that_says_it_the_number_is_unknown(pod, reason):
    assert a_group([pod]).wanted == Unknown(reason)


def test_a_pod_group_says_the_least_number():
    workloads = Workloads(pod_groups={"team-a/pg": PodGroup(namespace="team-a", name="pg", min_count=1)})
    pods = [a_pod(f"p{index}", labels={}, scheduling_group="pg") for index in range(3)]
    group = a_group(pods, workloads)
    assert (group.wanted, group.problems, len(group.members)) == (Known(1), (), 3)


def test_a_leader_and_its_workers_have_podsets_and_a_size():
    pods = [
        a_pod(f"s-{worker}", labels={**LWS_LABELS, groups.LWS_WORKER: str(worker)}, annotations={groups.LWS_SIZE: "3"})
        for worker in range(3)
    ]
    group = a_group(pods)
    assert group.wanted == Known(3)
    assert [member.podset for member in group.members] == ["leader", "worker", "worker"]


def test_the_topmost_owner_is_the_job_set_of_a_job():
    above = Owner(kind="JobSet", name="set", uid="s", is_controller=True)
    pod = a_job_pod(0)
    assert groups.owner(pod, JOBS) == pod.owners[0]
    assert groups.owner(pod, Workloads(jobs={"uid-train": a_job(owners=(above,))})) == above
    assert groups.owner(a_pod(), JOBS) is None


@given(order=st.permutations(range(6)), others=st.integers(0, 3))
def test_the_order_of_pods_and_the_pods_of_others_do_not_matter(order, others):
    pods = [a_pod(f"trainer-{index}", annotations={labels.GANG_SIZE.full: "6"}) for index in range(6)]
    strangers = [a_pod(f"other-{index}", labels={labels.GANG.full: "other"}) for index in range(others)]
    shuffled = [pods[index] for index in order]
    assert groups.group(groups.place(pods[0], Workloads()), [*strangers, *shuffled], Workloads()) == a_group(pods)


@given(size=st.integers(1, 5), done=st.integers(0, 5), failed=st.integers(0, 3))
def test_members_that_must_be_there_and_those_that_are_done_make_the_size(size, done, failed):
    pods = [a_pod(f"t-{index}", phase=kube.PodPhase.SUCCEEDED) for index in range(done)]
    pods += [a_pod(f"f-{index}", phase=kube.PodPhase.FAILED) for index in range(failed)]
    pods = [dataclasses.replace(pod, annotations={labels.GANG_SIZE.full: str(size)}) for pod in pods] or [
        a_pod(annotations={labels.GANG_SIZE.full: str(size)})
    ]
    assert a_group(pods).wanted == Known(max(0, size - done))


def a_run(job, *phases, size=4, lease="", start=0):
    """Pods of a Job of the gang `nightly`."""
    owner = Owner(kind="Job", name=job, uid=f"uid-{job}", is_controller=True)
    marks = {labels.GANG_SIZE.full: str(size)} | ({labels.LEASE.full: lease} if lease else {})
    return [
        a_pod(
            f"{job}-{index}",
            phase=phase,
            labels={labels.GANG.full: "nightly"},
            annotations=marks,
            owners=(owner,) if job else (),
        )
        for index, phase in enumerate(phases, start)
    ]


DONE, FAILED, HELD, RUNS = (
    kube.PodPhase.SUCCEEDED,
    kube.PodPhase.FAILED,
    kube.PodPhase.PENDING,
    kube.PodPhase.RUNNING,
)
RUN_1 = a_run("run-1", *[DONE] * 4, lease="t1-a-1")
RUNS_AGAIN = {
    "the first run is over": (RUN_1, 0, 0),
    "all pods of two runs are kept": ([*RUN_1, *a_run("run-0", *[DONE] * 4)], 0, 0),
    "the second run is held": ([*RUN_1, *a_run("run-2", *[HELD] * 4)], 4, 4),
    "the second run is not all there": ([*RUN_1, *a_run("run-2", HELD)], 4, 1),
    "some pods of the first run were removed": ([*RUN_1[:2], *a_run("run-2", *[HELD] * 4)], 4, 4),
    "the second run has another size": ([*RUN_1, *a_run("run-2", *[HELD] * 8, size=8)], 8, 8),
    "the second run is partly done": ([*RUN_1, *a_run("run-2", DONE, RUNS, RUNS, RUNS, lease="t1-a-2")], 3, 3),
    "a Job each, under one lease": (
        [*a_run("head", DONE, lease="t1-a-3"), *a_run("rest", RUNS, RUNS, RUNS, lease="t1-a-3")],
        3,
        3,
    ),
    "a Job each, and one's pod is made anew": (
        [
            *a_run("head", DONE, DONE, DONE, lease="t1-a-3"),
            *a_run("rest", FAILED, lease="t1-a-3"),
            *a_run("rest", HELD, start=1),
        ],
        1,
        1,
    ),
    "bare pods under one lease": (a_run("", DONE, DONE, RUNS, RUNS, lease="t1-a-4"), 2, 2),
    "a bare pod is made anew": ([*a_run("", DONE, DONE, DONE, lease="t1-a-4"), *a_run("", HELD, start=3)], 1, 1),
    "bare pods once more": ([*a_run("", *[DONE] * 4, lease="t1-a-4"), *a_run("", *[HELD] * 4, start=4)], 4, 4),
    "bare pods once more, the first of them": (
        [*a_run("", *[DONE] * 4, lease="t1-a-4"), *a_run("", HELD, start=4)],
        4,
        1,
    ),
}


@pytest.mark.parametrize(("pods", "wanted", "members"), RUNS_AGAIN.values(), ids=RUNS_AGAIN)
def test_a_run_is_as_large_as_its_size_whatever_an_earlier_one_has_left(pods, wanted, members):
    for order in (pods, pods[::-1]):
        group = a_group(order)
        assert (group.wanted, len(group.members), group.problems) == (Known(wanted), members, ())


@pytest.mark.parametrize("source", ["label of coscheduling", "native"])
def test_a_least_number_is_not_met_by_an_earlier_run_either(source):
    marker = {"labels": {groups.COSCHEDULING: "pg"}} if source != "native" else {"labels": {}, "scheduling_group": "pg"}
    found = {"team-a/pg": PodGroup(namespace="team-a", name="pg", min_count=4)}
    workloads = Workloads(pod_groups=found, coscheduling=found)
    pods = [dataclasses.replace(pod, **marker) for pod in (*RUN_1, *a_run("run-2", HELD))]
    assert a_group(pods, workloads).wanted == Known(4)
