"""An admitter that is away for long, while everything goes on without it; every setting that waits is short, for an hour."""

import asyncio
import contextlib

import pytest
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from hack.cluster.faultproxy import Fault, FaultProxy
from muster.model import labels
from tests.admitter.kubegangs import GATE, NODES, a_template, gated, held, pods, running
from tests.admitter.kubetown import KubeTown, until

HALF = Fault(method="PATCH", path="/pods/half-1$", status=503)
HOUR = {
    "lease_seconds": 3.0,
    "bind_patience_seconds": 2.0,
    "strike_seconds": 0.1,
    "lease_grace_seconds": 1.0,
    "place_kept_seconds": 1.0,
    "quarantine_seconds": 1.0,
}


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


@pytest.fixture
def scheduler(cluster):
    process = cluster.part("kube-scheduler").process()
    yield process
    process.resume()


def create(town, gang, index, size):
    """A held pod of half a node."""
    template = a_template(4, marks={labels.GANG.full: gang}, **{labels.GANG_SIZE.full: str(size)})
    metadata = meta_v1.ObjectMeta(
        name=f"{gang}-{index}",
        namespace=town.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    return town.kube.create(core.Pod(metadata=metadata, spec=template.spec))


def uid(town, name):
    return town.kube.get(core.Pod, name, namespace=town.namespace).metadata.uid


def bind_by_hand(town, name, node):
    """Strip its gate and put it on a node, as somebody would who is tired of waiting."""
    lift = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
    town.kube.patch(core.Pod, name, lift, namespace=town.namespace, patch_type=PatchType.STRATEGIC)
    target = core_v1.ObjectReference(apiVersion="v1", kind="Node", name=node)
    binding = core.PodBinding(metadata=meta_v1.ObjectMeta(name=name, namespace=town.namespace), target=target)
    # The API server answers with a Status, and the client takes it for a Binding.
    with contextlib.suppress(ValueError):
        town.kube.create(binding, name, namespace=town.namespace)


@contextlib.contextmanager
def leaving(town, node):
    """A node that goes, as far as anybody new is concerned, and is back for the next test."""
    town.kube.patch(core.Node, node, {"spec": {"unschedulable": True}}, patch_type=PatchType.MERGE)
    try:
        yield
    finally:
        town.kube.patch(core.Node, node, {"spec": {"unschedulable": None}}, patch_type=PatchType.MERGE)


async def test_after_a_long_absence_everything_that_was_begun_is_finished_and_nothing_was_ended(
    town, client, tmp_path, scheduler
):
    async with (
        FaultProxy(town.cluster.kubeconfig, tmp_path) as proxy,
        gated(town, client, kubeconfig=proxy.kubeconfig, **HOUR | {"bind_patience_seconds": 600.0}),
    ):
        for index in range(2):
            create(town, "runs", index, 2)
        await until(lambda: len(running(town, "runs")) == 2, "a gang that runs")
        create(town, "waits", 0, 2)
        proxy.inflict(HALF)
        scheduler.suspend()
        for index in range(2):
            create(town, "half", index, 2)
        await until(
            lambda: [pod.metadata.name for pod in held(town, "half")] == ["half-1"], "a gang that is half let go"
        )
    stays = {name: uid(town, name) for name in ("runs-0", "half-1", "waits-0")}
    (half,) = [pod for pod in pods(town, "half") if not pod.spec.schedulingGates]
    place = half.spec.nodeSelector["kubernetes.io/hostname"]
    # Nobody is there: not the admitter, and of the agents none that remembers a lease.
    with leaving(town, place):
        town.kube.delete(core.Pod, "runs-1", namespace=town.namespace, grace_period=0)
        await until(lambda: not [pod for pod in pods(town, "runs") if pod.metadata.name == "runs-1"], "its end")
        # Under another name: a kubelet that still ends the old one goes by the name.
        create(town, "runs", 2, 2)
        free = next(node for node in NODES if node not in {place, *(pod.spec.nodeName for pod in pods(town, ""))})
        bind_by_hand(town, "waits-0", free)
        scheduler.resume()
        create(town, "waits", 1, 2)
        await until(lambda: running(town, "waits"), "the pod that was bound by hand")
        await asyncio.sleep(4)
        async with gated(town, client, **HOUR):
            for name in ("runs", "waits", "half"):
                await until(lambda name=name: len(running(town, name)) == 2, f"all of {name}")
            found = {pod.metadata.name: pod for pod in pods(town, "")}
            assert {name: found[name].metadata.uid for name in stays} == stays, "nothing was ended"
            assert found["half-0"].metadata.uid != half.metadata.uid, "what nobody could bind was made anew, and held"
            assert place not in {pod.spec.nodeName for pod in pods(town, "half")}
            assert len({pod.metadata.annotations[labels.LEASE.full] for pod in pods(town, "half")}) == 1
            asked = [pod.spec.nodeName for pod in found.values()]
            assert all(asked.count(node) <= 2 for node in asked)
