"""Whoever observes decides as if the gates were on, judges each gang once, and has nothing to write with."""

import asyncio
import contextlib
import dataclasses

from admitter import observeloop
from admitter.core.observe import Outcome, Tally, Verdict
from admitter.model.cluster import Changes, Owner, PodChange
from admitter.model.decision import Policy
from admitter.model.group import Workloads
from muster.model import kube
from muster.model.reading import Known
from tests.admitter.clusters import GPU, NOW, TAKEN, a_node, a_resource, a_view
from tests.admitter.gatescenes import POLICY, running
from tests.admitter.grouppods import a_job, a_job_pod, a_pod, rejected

JOB = a_job(parallelism=2, completions=2)


class Town:
    """A cluster, its nodes as the agents tell them, the clock, the guard."""

    is_synced, term, leads = True, 1, True

    def __init__(self, *free):
        self.stored, self.now, self.events, self.tally = {}, NOW, [], Tally()
        self.sees(*free)

    def sees(self, *free):
        """So much is free on n1, n2, ..."""
        nodes = [
            a_node(f"n{number}", dataclasses.replace(a_resource(admit), usable=Known(8)))
            for number, admit in enumerate(free, start=1)
        ]
        self.view = a_view(*nodes)

    def listen(self, listener):
        self.tell = listener

    def pods(self):
        return self.stored

    def pod(self, uid):
        return self.stored.get(uid)

    def workloads(self):
        return Workloads(jobs={JOB.uid: JOB})

    def may_write(self, term):
        return self.leads

    def monotonic(self):
        return self.now

    def utc(self):
        return TAKEN

    def becomes(self, *pods):
        for pod in pods:
            before, self.stored[pod.uid] = self.stored.get(pod.uid), pod
            self.tell(Changes(pods=(PodChange(before=before, after=pod),)))

    def loses(self, *pods):
        for pod in pods:
            self.tell(Changes(pods=(PodChange(before=self.stored.pop(pod.uid), after=None),)))

    @property
    def kinds(self):
        return [(event.kind, event.gang) for event in self.events]


@contextlib.asynccontextmanager
async def observed(town, *namespaces):
    loop = observeloop.ObserveLoop(
        namespaces=frozenset(namespaces or ("*",)),
        cluster=town,
        objects=town,
        view=lambda: town.view,
        term=lambda: town.term,
        guard=town,
        clock=town,
        policy=Policy(),
        gates=POLICY,
        tally=town.tally,
        tell=town.events.append,
    )
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 -- what is waited for tells nobody
            await asyncio.sleep(0.01)


def the_pods():
    return [a_job_pod(index, gates=()) for index in range(2)]


async def test_a_gang_that_runs_where_it_would_have_been_let_go_has_one_line_and_counts_once():
    town, pods = Town(8, 8), the_pods()
    async with observed(town):
        town.becomes(*pods)
        await until(lambda: town.kinds == [("would-let-go", "team-a/job.train")])
        town.becomes(*(running(pod, f"n{number}") for number, pod in enumerate(pods, start=1)))
        await until(lambda: town.tally.ends[Verdict.GOES, Outcome.RAN] == 1)
        town.becomes(*(running(pod, f"n{number}") for number, pod in enumerate(pods, start=1)))
        town.loses(*pods)
        await asyncio.sleep(0.2)
    assert town.tally.ends.total() == 1
    assert len(town.events) == 1


async def test_one_that_would_be_held_is_shown_as_long_and_what_the_kubelet_refuses_was_foreseen():
    town, pods = Town(8, 0), the_pods()
    async with observed(town):
        town.becomes(*pods)
        await until(lambda: town.tally.held == {"NotEnoughUnits": 1})
        town.becomes(running(pods[0], "n1"), rejected(pods[1], "n2"))
        await until(lambda: town.tally.ends == {(Verdict.HELD, Outcome.FAILED): 1})
        assert town.tally.held == {}
    assert town.kinds == [("would-hold", "team-a/job.train"), ("failure-foreseen", "team-a/job.train")]
    assert "NotEnoughUnits" in town.events[-1].detail
    assert "n2" in town.events[-1].detail


async def test_what_the_scheduler_bound_before_we_looked_is_judged_without_what_it_took_itself():
    town = Town(8, 8)
    pods = [dataclasses.replace(pod, node=f"n{number}") for number, pod in enumerate(the_pods(), start=1)]
    taken = [
        a_node(pod.node, dataclasses.replace(a_resource(0, counted=((pod.uid, 8),)), usable=Known(8))) for pod in pods
    ]
    town.view = a_view(*taken)
    async with observed(town) as loop:
        await until(lambda: loop._term)
        town.becomes(*pods)
        await until(lambda: town.kinds == [("would-let-go", "team-a/job.train")])


async def test_gangs_that_wait_together_are_one_queue():
    town = Town(8)
    async with observed(town):
        first, second = a_pod("first", labels={}, gates=()), a_pod("second", labels={}, gates=())
        town.becomes(first, second)
        await until(lambda: len(town.events) == 2)
    assert town.kinds == [("would-let-go", "team-a/pod.first"), ("would-hold", "team-a/pod.second")]


async def test_the_next_try_of_a_gang_is_a_gang_of_its_own():
    town, pods = Town(8, 0), the_pods()
    async with observed(town):
        town.becomes(*pods)
        await until(lambda: town.tally.held)
        town.becomes(rejected(pods[0], "n2"))
        await until(lambda: town.tally.ends.total() == 1)
        town.sees(8, 8)
        town.loses(*pods)
        again = [dataclasses.replace(pod, uid=f"{pod.uid}-again") for pod in pods]
        town.becomes(*again)
        await until(lambda: town.kinds[-1][0] == "would-let-go")
        town.becomes(*(running(pod, f"n{number}") for number, pod in enumerate(again, start=1)))
        await until(lambda: town.tally.ends[Verdict.GOES, Outcome.RAN] == 1)


async def test_what_is_no_gang_of_ours_is_not_judged():
    town = Town(8)
    daemon = Owner(kind="DaemonSet", name="d", uid="d", is_controller=True)
    async with observed(town):
        town.becomes(
            a_pod("cpu", labels={}, gates=(), requests={"cpu": 1}),
            a_pod("daemon", labels={}, gates=(), owners=(daemon,)),
            a_pod("system", labels={}, gates=(), namespace="kube-system"),
            a_job_pod(0, gates=()),
            running(a_pod("fast", labels={}, gates=()), "n1"),
        )
        town.becomes(a_pod("mine", labels={}, gates=()))
        await until(lambda: ("would-let-go", "team-a/pod.mine") in town.kinds)
        await asyncio.sleep(0.2)
    assert town.kinds == [("would-let-go", "team-a/pod.mine")]


async def test_only_the_namespaces_that_are_named_and_only_by_a_leader():
    town = Town(8, 8)
    async with observed(town, "team-b"):
        town.leads = False
        town.becomes(a_pod("x", labels={}, gates=(), namespace="team-b"), a_pod("y", labels={}, gates=()))
        await asyncio.sleep(0.3)
        assert town.events == []
        town.leads = True
        await until(lambda: town.kinds == [("would-let-go", "team-b/pod.x")])


async def test_a_new_term_judges_nothing_that_was_bound_before_it():
    town, pods = Town(8, 8), [dataclasses.replace(pod, node="n1") for pod in the_pods()]
    town.stored = {pod.uid: pod for pod in pods}
    async with observed(town):
        town.becomes(a_pod("new", labels={}, gates=()))
        await until(lambda: town.kinds)
        town.becomes(*(running(pod, "n1") for pod in pods))
        await asyncio.sleep(0.2)
    assert town.kinds == [("would-let-go", "team-a/pod.new")]
    assert GPU in town.view.nodes["n1"].report.resources


async def test_a_kubelet_that_is_faster_than_we_are_keeps_no_gang_from_being_judged_and_none_counts_twice():
    town, pods = Town(8, 8, 8), the_pods()
    async with observed(town) as loop:
        await until(lambda: loop._term)
        ran = running(a_pod("fast", labels={}, gates=()), "n1")
        town.becomes(ran, running(pods[0], "n1"), rejected(pods[1], "n2"))
        await until(lambda: town.tally.ends.total() == 2)
        assert town.tally.ends == {(Verdict.GOES, Outcome.RAN): 1, (Verdict.GOES, Outcome.FAILED): 1}
        # The Job makes another one in its stead, which is judged for itself.
        again = dataclasses.replace(pods[1], uid="again")
        town.becomes(again)
        await until(lambda: loop._watched["team-a/job.train"].uids == {"again"})
        town.becomes(running(again, "n2"))
        await until(lambda: town.tally.ends.total() == 3)
        assert loop._watched["team-a/job.train"].earlier == {"uid-train-0", "uid-train-1"}
        over = running(a_pod("over", labels={}, gates=()), "n1")
        town.becomes(dataclasses.replace(over, phase=kube.PodPhase.SUCCEEDED))
        await asyncio.sleep(0.2)
    assert town.tally.ends.total() == 3
