"""Gangs of held pods on a real API server and scheduler: all start or none, and no job is harmed by being managed."""

import asyncio
import functools

import pytest
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.publish import podissuer
from muster.model import labels
from tests.admitter.kubegangs import GATE, a_template, create_gang, create_job, gated, held, pods, running
from tests.admitter.kubetown import KubeTown, until


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


def told(town):
    """Reasons that stand on pods' Events."""
    return {event.reason for event in town.kube.list(core.Event, namespace=town.namespace)}


async def test_of_two_gangs_that_do_not_fit_together_one_runs_and_the_other_waits_whole(town, client):
    async with gated(town, client):
        create_gang(town, "first", 3)
        await until(lambda: len(running(town, "first")) == 3, "the first gang")
        create_gang(town, "second", 3)
        await until(lambda: "NotEnoughUnits" in told(town), "a word about the second gang")
        assert len(held(town, "second")) == 3, "not one of it was let go"
        first = running(town, "first")
        assert len({pod.spec.nodeName for pod in first}) == 3
        for pod in first:
            assert pod.metadata.annotations[labels.LEASE.full]
            assert pod.spec.nodeSelector == {"kubernetes.io/hostname": pod.spec.nodeName}
            town.kube.delete(core.Pod, pod.metadata.name, namespace=town.namespace, grace_period=0)
        await until(lambda: len(running(town, "second")) == 3, "the second gang, once the first is gone")


async def test_a_job_that_is_indexed_is_a_gang_without_labels_and_ends_well(town, client):
    async with gated(town, client):
        template = a_template(8, **{"fake.muster.dev/run-seconds": "1"})
        create_job(town, "train", 4, template)
        await until(
            lambda: town.kube.get(batch_v1.Job, "train", namespace=town.namespace).status.succeeded == 4, "its end"
        )
        create_gang(town, "next", 4)
        await until(lambda: len(running(town, "next")) == 4, "what it held is given back")


async def test_a_gang_is_asked_for_only_when_all_are_there(town, client):
    async with gated(town, client):
        create_gang(town, "short", 3)
        await until(lambda: len(running(town, "short")) == 3, "a gang")
        create_job(town, "late", 2, a_template(4, gates=(GATE, "example.com/quota")))
        await until(lambda: "ForeignGate" in told(town), "a word about the gate of somebody else")
        assert len(held(town, "late")) == 2
        for pod in pods(town, "late"):
            body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/quota"}]}}
            town.kube.patch(core.Pod, pod.metadata.name, body, namespace=town.namespace, patch_type=PatchType.STRATEGIC)
        await until(lambda: len(running(town, "late")) == 2, "the gang, once the other gate is lifted")


@pytest.fixture
def scheduler(cluster):
    """The scheduler's process, which goes on at the end of the test at the latest."""
    process = cluster.part("kube-scheduler").process()
    yield process
    process.resume()


def is_anew(town, prefix, seen):
    """Return whether there are pods that were not there before."""
    return bool({pod.metadata.uid for pod in pods(town, prefix)} - seen)


def set_finalizers(town, name, finalizers):
    body = {"metadata": {"finalizers": finalizers}}
    town.kube.patch(core.Pod, name, body, namespace=town.namespace, patch_type=PatchType.MERGE)


async def test_a_job_without_retries_survives_ten_replans(town, client, scheduler):
    """A scheduler that binds nothing: the Job is suspended and resumed each time, and never fails."""
    async with gated(town, client, bind_patience_seconds=1.0, strike_seconds=0.1):
        scheduler.suspend()
        create_job(town, "train", 2, a_template(8))
        seen = set()
        for turn in range(11):
            await until(functools.partial(is_anew, town, "train", seen), f"the pods of turn {turn}")
            seen = seen | {pod.metadata.uid for pod in pods(town, "train")}
        scheduler.resume()
        await until(lambda: len(running(town, "train")) == 2, "the gang")
        job = town.kube.get(batch_v1.Job, "train", namespace=town.namespace)
        assert not job.status.failed
        assert not job.spec.suspend
        assert labels.REPLAN.full not in (job.metadata.annotations or {})


async def test_a_bare_gang_that_is_not_bound_is_made_anew(town, client, scheduler):
    async with gated(town, client, bind_patience_seconds=1.0, strike_seconds=0.1):
        scheduler.suspend()
        create_gang(town, "bare", 2)
        before = {pod.metadata.uid for pod in pods(town, "bare")}

        def are_anew():
            found = pods(town, "bare")
            return len(found) == 2 and not before & {pod.metadata.uid for pod in found}

        await until(are_anew, "pods with the same names and other UIDs")
        scheduler.resume()
        await until(lambda: len(running(town, "bare")) == 2, "the gang")


async def sent_back(town, scheduler):
    """Have two bare pods sent back that somebody's finalizer keeps; return their UIDs."""
    scheduler.suspend()
    create_gang(town, "stuck", 2)
    before = {pod.metadata.uid for pod in pods(town, "stuck")}
    for name in ("stuck-0", "stuck-1"):
        set_finalizers(town, name, ["example.com/slow"])
    await until(lambda: all(pod.metadata.deletionTimestamp for pod in pods(town, "stuck")), "both to be sent back")
    return before


async def test_bare_pods_that_do_not_go_hold_up_no_other_gang(town, client, scheduler, monkeypatch):
    """As many of them as requests may be on their way; each has somebody's finalizer, and goes only when that is gone."""
    monkeypatch.setattr(podissuer, "AT_ONCE", 2)
    async with gated(town, client, bind_patience_seconds=5.0, strike_seconds=0.1):
        before = await sent_back(town, scheduler)
        scheduler.resume()
        create_gang(town, "other", 2)
        await until(lambda: len(running(town, "other")) == 2, "a gang of somebody else")
        assert {pod.metadata.uid for pod in pods(town, "stuck")} == before
        for name in ("stuck-0", "stuck-1"):
            set_finalizers(town, name, None)
        await until(lambda: len(running(town, "stuck")) == 2, "the pods made anew")
        assert not before & {pod.metadata.uid for pod in pods(town, "stuck")}


async def test_a_new_leader_makes_the_bare_pods_that_the_old_one_sent_back(town, client, scheduler):
    async with gated(town, client, bind_patience_seconds=5.0, strike_seconds=0.1):
        before = await sent_back(town, scheduler)
    scheduler.resume()
    async with gated(town, client):
        create_gang(town, "other", 2)
        await until(lambda: len(running(town, "other")) == 2, "a gang of the new term")
        assert {pod.metadata.uid for pod in pods(town, "stuck")} == before
        for name in ("stuck-0", "stuck-1"):
            set_finalizers(town, name, None)
        await until(lambda: len(running(town, "stuck")) == 2, "the pods made anew")
        assert not before & {pod.metadata.uid for pod in pods(town, "stuck")}


async def test_a_new_leader_goes_on_where_the_old_one_stopped(town, client):
    create_gang(town, "gang", 3)
    async with gated(town, client):
        await until(lambda: len(running(town, "gang")) == 3, "the gang")
        uids = {pod.metadata.uid for pod in pods(town, "gang")}
    async with gated(town, client):
        create_gang(town, "small", 1)
        await until(lambda: len(running(town, "small")) == 1, "what fits beside it")
        create_gang(town, "large", 2)
        await asyncio.sleep(1)
        assert len(held(town, "large")) == 2, "no room is made up"
        assert {pod.metadata.uid for pod in running(town, "gang")} == uids
