"""What happens between the lease and the start: a node dies, a stranger takes the GPUs. On a real API server and scheduler."""

import functools
import threading

import pytest
from lightkube.models import meta_v1
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from muster.model import labels
from tests.admitter import kubetown
from tests.admitter.kubegangs import a_template, create_job, gated, held, notes, pods, remove, running
from tests.admitter.kubetown import KubeTown

until = functools.partial(kubetown.until, seconds=180)


def holders(client):
    """Pods of all namespaces that still hold something of a node."""
    found = client.list(core.Pod, namespace="*")
    return [pod for pod in found if pod.spec.nodeName and pod.status.phase not in ("Succeeded", "Failed")]


@pytest.fixture
async def town(tmp_path, cluster, client, namespace):
    await until(lambda: not holders(client), "nodes that nobody uses")
    town = KubeTown(tmp_path, cluster, client, namespace)
    yield town
    town.kube.deletecollection(batch_v1.Job, namespace=namespace)
    remove(town, "")


def is_well(client, name):
    node = client.get(core.Node, name)
    is_ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return is_ready and not node.spec.taints


@pytest.fixture
def dies(client, wait_for):
    """Has a node be not Ready until the end, whatever its kubelet says meanwhile."""
    ready = {"type": "Ready", "status": "False", "reason": "Died", "message": "no kubelet"}
    over = threading.Event()
    dead = []

    def say(name):
        while not over.wait(0.5):
            client.patch(core.NodeStatus, name, {"status": {"conditions": [ready]}}, patch_type=PatchType.STRATEGIC)

    def die(name):
        dead.append((name, threading.Thread(target=say, args=(name,))))
        dead[-1][1].start()

    yield die
    over.set()
    for name, saying in dead:
        saying.join()
        wait_for(lambda name=name: is_well(client, name), f"{name} to be well again")


def replanned(town):
    """Return whether the Job carries our mark."""
    job = town.kube.get(batch_v1.Job, "train", namespace=town.namespace)
    return labels.REPLAN.full in (job.metadata.annotations or {})


async def test_a_member_whose_node_died_runs_again_on_another_and_the_others_go_on(town, client, dies):
    async with gated(town, client, bind_patience_seconds=1.0) as admitter:
        create_job(town, "train", 2, a_template(8), backoffLimit=6)
        await until(lambda: len(running(town, "train")) == 2, "the gang")
        lost, kept = running(town, "train")
        dead = lost.spec.nodeName
        dies(dead)
        await until(lambda: not is_well(client, dead), "the word of its death")
        town.kube.delete(core.Pod, lost.metadata.name, namespace=town.namespace, grace_period=0)

        def again():
            found = {pod.metadata.uid: pod for pod in running(town, "train")}
            return len(found) == 2 and lost.metadata.uid not in found and found

        found = await until(again, "the member that came in its place")
        assert kept.metadata.uid in found, "what runs is left alone"
        (anew,) = (pod for uid, pod in found.items() if uid != kept.metadata.uid)
        assert anew.spec.nodeName not in (dead, kept.spec.nodeName)
        assert anew.metadata.annotations[labels.LEASE.full] != lost.metadata.annotations[labels.LEASE.full]
        assert not admitter._loop.record(f"{town.namespace}/job.train").standing.strikes, "nobody refused anything"
        assert any(dead in note for note in notes(town, "PlaceLost"))


async def test_a_gang_whose_gpus_a_stranger_took_before_it_was_bound_runs_elsewhere(town, cluster, client):
    scheduler = cluster.part("kube-scheduler").process()
    async with gated(town, client, bind_patience_seconds=1.0, strike_seconds=0.1):
        scheduler.suspend()
        try:
            # A scheduler that has not seen the strangers yet binds all the same, and the kubelet refuses.
            create_job(town, "train", 2, a_template(8), backoffLimit=6)
            await until(lambda: len(pods(town, "train")) == 2 and not held(town, "train"), "the decision")
            taken = {pod.spec.nodeSelector["kubernetes.io/hostname"] for pod in pods(town, "train")}
            for node in taken:
                stranger = a_template(8, gates=())
                stranger.spec.nodeName = node
                marks = stranger.metadata.annotations
                metadata = meta_v1.ObjectMeta(name=f"stranger-{node}", namespace=town.namespace, annotations=marks)
                town.kube.create(core.Pod(metadata=metadata, spec=stranger.spec))
            await until(lambda: len(running(town, "stranger")) == 2, "the strangers")
        finally:
            scheduler.resume()
        await until(lambda: len(running(town, "train")) == 2, "the gang")
        assert not taken & {pod.spec.nodeName for pod in running(town, "train")}
        assert {pod.spec.nodeName for pod in running(town, "stranger")} == taken, "and they are left alone"
        await until(lambda: not replanned(town), "its suspension to be over")
