"""Gangs beside launchers, kubelets that break promises, deadlines, rollouts and autoscalers, on a real API server and scheduler."""

import asyncio
import dataclasses
import functools
import json

import pytest
from click.testing import CliRunner
from lightkube.models import meta_v1
from lightkube.resources import apps_v1 as apps
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.cleanupcommand import command
from admitter.model.record import GangState
from hack.cluster import fakekubelet
from muster.model import keptnodes, labels
from muster.model.vocabulary import WaitReason
from tests.admitter import clusters, kubetown
from tests.admitter.kubegangs import (
    NODES,
    a_template,
    create_deployment,
    create_gang,
    create_job,
    gated,
    held,
    notes,
    pods,
    remove,
    running,
)
from tests.admitter.kubetown import KubeTown

until = functools.partial(kubetown.until, seconds=180)
"""A machine that runs everything else at once is slow; nothing here is about how long it takes."""


def bound(client):
    """Pods of all namespaces that still hold something of a node."""
    return [
        pod
        for pod in client.list(core.Pod, namespace="*")
        if pod.spec.nodeName and pod.status.phase not in ("Succeeded", "Failed")
    ]


@pytest.fixture
async def town(tmp_path, cluster, client, namespace):
    # The namespace of a test before this one goes by and by, and its pods with it.
    await until(lambda: not bound(client), "nodes that nobody uses")
    town = KubeTown(tmp_path, cluster, client, namespace)
    yield town
    # The nodes are shared: what a test leaves behind would hold the next one's GPUs until its namespace is gone.
    town.kube.deletecollection(apps.Deployment, namespace=namespace)
    town.kube.deletecollection(batch_v1.Job, namespace=namespace)
    remove(town, "")


def record(admitter, town, gang):
    return admitter._loop.record(f"{town.namespace}/{gang}")


@pytest.fixture
def liar(client):
    """A node whose kubelet has lost its devices, which neither node.status nor its agent says."""
    name = NODES[0]

    def annotate(lost):
        keys = {fakekubelet.LOST: lost, fakekubelet.UNNOTICED: None if lost is None else "true"}
        client.patch(core.Node, name, {"metadata": {"annotations": keys}}, patch_type=PatchType.MERGE)

    annotate("8")
    yield name
    annotate(None)


async def test_a_node_that_broke_a_promise_gets_nothing_new_and_the_log_outlives_the_pod(town, client, liar, tmp_path):
    log = tmp_path / "decisions.jsonl"
    async with gated(town, client, decision_log=log, strike_seconds=0.1):
        create_gang(town, "first", 1)
        await until(lambda: [pod for pod in pods(town, "first") if pod.status.phase == "Failed"], "the rejection")
        (pod,) = pods(town, "first")
        assert pod.spec.nodeName == liar
        lease = pod.metadata.annotations[labels.LEASE.full]
        remove(town, "first")
        create_gang(town, "others", 3)
        await until(lambda: len(running(town, "others")) == 3, "a gang on the other nodes")
        create_gang(town, "last", 1)
        await until(lambda: any("refused" in note for note in notes(town, "NotEnoughUnits")), "why the last one waits")
        assert len(held(town, "last")) == 1
        assert not [each for each in pods(town, "last") if each.spec.nodeName == liar]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (broken,) = [line for line in lines if line["kind"] == "broken-promise"]
    assert (broken["node"], broken["lease_id"]) == (liar, lease)
    assert broken["reason"] == "UnexpectedAdmissionError"
    assert broken["gang"] == f"{town.namespace}/first"
    assert "leased on snapshot" in broken["detail"]


async def test_the_next_leader_knows_of_a_promise_that_was_broken_under_the_last(town, client, liar):
    async with gated(town, client, strike_seconds=0.1):
        create_gang(town, "first", 1)
        await until(lambda: [pod for pod in pods(town, "first") if pod.status.phase == "Failed"], "the rejection")
    async with gated(town, client) as admitter:
        create_gang(town, "next", 1)
        await until(lambda: len(running(town, "next")) == 1, "a place elsewhere")
        assert running(town, "next")[0].spec.nodeName != liar
        assert liar in admitter._loop.book.trust.quarantined


async def test_a_launcher_that_recreates_what_does_not_start_keeps_its_place(town, client):
    async with gated(town, client) as admitter:
        create_gang(town, "runs", 3)
        await until(lambda: len(running(town, "runs")) == 3, "a gang that runs")
        create_gang(town, "big", 2)
        await until(lambda: record(admitter, town, "big"), "the big gang's question")
        first = record(admitter, town, "big").timeline.asked.at
        create_gang(town, "rival", 2)
        for turn in range(4):
            request = record(admitter, town, "big").gang.request_id
            remove(town, "big")
            await until(functools.partial(lambda gone: not pods(town, gone), "big"), f"no pods in turn {turn}")
            create_gang(town, "big", 2)

            def asks_anew(request=request):
                found = record(admitter, town, "big")
                return (
                    found is not None
                    and found.gang.request_id != request
                    and found.state is GangState.WAITING
                    and found.why is not None
                )

            await until(asks_anew, f"its question in turn {turn}")
        # Its own pods were made seconds later; how far two clocks are apart is read anew each time.
        assert record(admitter, town, "big").timeline.asked.at == pytest.approx(first, abs=0.1)
        assert record(admitter, town, "big").why.position < record(admitter, town, "rival").why.position
        assert len(admitter._loop.book.places) <= 1
        remove(town, "runs")
        await until(lambda: len(running(town, "big")) == 2, "the launcher's gang")


async def test_a_new_leader_does_not_let_the_later_gang_pass_the_older(town, client):
    """The older gang is named so that it comes last in every order but that of time."""
    async with gated(town, client):
        create_gang(town, "runs", 3)
        await until(lambda: len(running(town, "runs")) == 3, "a gang that runs")
        create_gang(town, "z-older", 2)
        await until(lambda: notes(town, "NotEnoughUnits"), "why it waits")
        # The API server's stamps are of whole seconds.
        moment = max(pod.metadata.creationTimestamp for pod in pods(town, "z-older"))
        probes = iter(range(10_000))

        def is_later():
            metadata = meta_v1.ObjectMeta(name=f"clock-{next(probes)}", namespace=town.namespace)
            return town.kube.create(core.ConfigMap(metadata=metadata)).metadata.creationTimestamp > moment

        await until(is_later, "the next second")
        create_gang(town, "a-later", 1)
    # A new term waits until the nodes have spoken, as it does by default: of one node alone nobody can say who goes first.
    async with gated(town, client, new_term_grace_seconds=8.0) as admitter:

        def is_answered(name):
            found = record(admitter, town, name)
            return found and found.why and found.why.reason is not WaitReason.NEW_TERM

        await until(lambda: is_answered("z-older") and is_answered("a-later"), "both gangs under the new leader")
        assert record(admitter, town, "z-older").why.position == 1
        assert len(held(town, "a-later")) == 1, "the one free node is kept for the older gang"
        remove(town, "runs")
        await until(lambda: len(running(town, "z-older")) == 2, "the older gang")


async def test_a_job_with_a_deadline_waits_suspended_and_does_not_run_into_it(town, client):
    """Held for longer than its deadline, it runs all the same."""
    async with gated(town, client):
        create_gang(town, "runs", 4)
        await until(lambda: len(running(town, "runs")) == 4, "a gang that runs")
        template = a_template(8, **{"fake.muster.dev/run-seconds": "0.5"})
        create_job(town, "train", 2, template, activeDeadlineSeconds=4)

        def job():
            return town.kube.get(batch_v1.Job, "train", namespace=town.namespace)

        await until(lambda: job().spec.suspend and not pods(town, "train"), "the Job's suspension")
        assert job().metadata.annotations[labels.REPLAN.full] == "held"
        begun = pods(town, "runs")[0].metadata.creationTimestamp
        probes = iter(range(10_000))

        def is_past_its_deadline():
            metadata = meta_v1.ObjectMeta(name=f"clock-{next(probes)}", namespace=town.namespace)
            now = town.kube.create(core.ConfigMap(metadata=metadata)).metadata.creationTimestamp
            return (now - begun).total_seconds() > 8

        await until(is_past_its_deadline, "more time than its deadline")
        remove(town, "runs")
        await until(lambda: job().status.succeeded == 2, "its end")
        assert not job().spec.suspend
        assert labels.REPLAN.full not in (job().metadata.annotations or {})
        assert not job().status.failed


async def test_a_job_that_waits_suspended_is_found_by_the_next_leader(town, client):
    async with gated(town, client):
        create_gang(town, "runs", 4)
        await until(lambda: len(running(town, "runs")) == 4, "a gang that runs")
        create_job(town, "train", 2, a_template(8), activeDeadlineSeconds=600)
        await until(
            lambda: town.kube.get(batch_v1.Job, "train", namespace=town.namespace).spec.suspend, "the Job's suspension"
        )
    remove(town, "runs")
    async with gated(town, client):
        await until(lambda: len(running(town, "train")) == 2, "the Job")


async def test_a_rollout_that_waits_for_itself_is_told_what_cures_it(town, client):
    body = {"metadata": {"labels": {labels.MANAGED.full: "true"}}}
    town.kube.patch(core.Namespace, town.namespace, body, patch_type=PatchType.MERGE)
    async with gated(town, client):
        create_deployment(town, "web", 4, a_template(8, restart="Always"))
        await until(lambda: len(running(town, "web")) == 4, "the Deployment")
        change = {"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}}
        town.kube.patch(apps.Deployment, "web", change, namespace=town.namespace, patch_type=PatchType.MERGE)
        await until(lambda: notes(town, "SelfBlocked"), "why the new pod waits")
        assert "Deployment web waits for 8" in notes(town, "SelfBlocked")[0]
        assert len(running(town, "web")) == 4, "nothing that runs is touched"
        cure = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
        town.kube.patch(apps.Deployment, "web", cure, namespace=town.namespace, patch_type=PatchType.MERGE)
        await until(
            lambda: len([pod for pod in running(town, "web") if "revision" in pod.metadata.annotations]) == 4,
            "the new revision, after the cure that was named",
        )


async def test_members_that_finish_give_back_what_others_can_use(town, client):
    async with gated(town, client):
        create_gang(town, "long", 2)
        create_gang(town, "pair", 2, **{"fake.muster.dev/run-seconds": "1"})
        await until(lambda: len(running(town, "long")) == 2, "a gang that stays")
        await until(lambda: len(pods(town, "pair")) == 2 and not held(town, "pair"), "a gang that ends")
        create_gang(town, "next", 2)
        await until(lambda: len(running(town, "next")) == 2, "the units of those that are done")
        assert len(running(town, "long")) == 2


async def test_a_gang_on_a_name_that_is_taken_is_told_so_and_has_it_once_it_is_free(town, client):
    async with gated(town, client) as admitter:
        taken = clusters.a_gang(name="twice", gpus=8, count=5)
        taken = dataclasses.replace(taken, namespace=town.namespace)
        attachment = admitter._loop.open(taken, "client:somebody")
        create_gang(town, "twice", 1)
        await until(lambda: notes(town, "NameTaken"), "a word about the name")
        assert len(held(town, "twice")) == 1
        admitter._loop.end(attachment, "done")
        admitter._loop.close(attachment)
        await until(lambda: len(running(town, "twice")) == 1, "the gang under its name")


@pytest.fixture
def pool(client):
    """A pool of all nodes, one of which a person has already told the autoscaler to leave."""
    theirs = dict.fromkeys(keptnodes.ANNOTATIONS, None) | {next(iter(keptnodes.ANNOTATIONS)): "true"}
    for name in NODES:
        body = {"metadata": {"labels": {"pool": "gpu"}, "annotations": theirs if name == NODES[0] else {}}}
        client.patch(core.Node, name, body, patch_type=PatchType.MERGE)
    yield "pool=gpu"
    ours = dict.fromkeys((*keptnodes.ANNOTATIONS, labels.KEPT.full), None)
    for name in NODES:
        body = {"metadata": {"labels": {"pool": None}, "annotations": ours}}
        client.patch(core.Node, name, body, patch_type=PatchType.MERGE)


def kept(client):
    """The nodes that have an annotation of ours, and what autoscalers read on each node."""
    found = {node.metadata.name: node.metadata.annotations or {} for node in client.list(core.Node)}
    ours = {name for name, annotations in found.items() if labels.KEPT.full in annotations}
    return ours, {name: set(keptnodes.ANNOTATIONS) & set(found[name]) for name in NODES}


async def test_leased_nodes_are_kept_from_autoscalers_for_the_life_of_the_lease(town, cluster, client, pool):
    first, second = keptnodes.ANNOTATIONS
    async with gated(town, client, keep_pools=(pool,)):
        create_gang(town, "gang", 2)
        await until(lambda: len(running(town, "gang")) == 2, "the gang")
        nodes = {pod.spec.nodeName for pod in running(town, "gang")}
        await until(lambda: kept(client)[0] == nodes, "the annotations")
        assert all(kept(client)[1][name] == {first, second} for name in nodes)
        remove(town, "gang")
        await until(lambda: kept(client)[0] == set(), "none of them, once the lease is over")
        assert kept(client)[1] == {name: {first} if name == NODES[0] else set() for name in NODES}
        create_gang(town, "again", 4)
        await until(lambda: kept(client)[0] == set(NODES), "the annotations of a gang that outlives its admitter")
    arguments = ["--kubeconfig", str(cluster.kubeconfig)]
    done = await asyncio.to_thread(CliRunner().invoke, command, arguments)
    assert "annotations" in done.stdout
    assert kept(client) == (set(), {name: {first} if name == NODES[0] else set() for name in NODES})
