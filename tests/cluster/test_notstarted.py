"""muster.dev/NotStarted from the release to the first container, on a real API server with stand-ins for the kubelet.

What a real kubelet makes of it is in test_realnode.py.
"""

import contextlib

import pytest
from lightkube.models import batch_v1 as batch_models
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core

from muster.model import labels
from tests.admitter.kubeagents import GPU, truthful
from tests.admitter.kubetown import KubeTown, until

NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


@contextlib.asynccontextmanager
async def gated(town, client, limit):
    settings = {"gates": True, "not_started_limit": limit, "replan_patience_seconds": 1.0}
    async with town.kube_admitter(**settings) as (_, address), truthful(town, address, client, NODES):
        await until(lambda: town.holder() == "admitter-0", "a leader")
        yield


def create_job(town, name, count):
    request = {GPU: "8"}
    container = core_v1.Container(
        name="main", image="none", resources=core_v1.ResourceRequirements(requests=request, limits=request)
    )
    spec = core_v1.PodSpec(
        containers=[container],
        schedulingGates=[core_v1.PodSchedulingGate(name=labels.GANG.full)],
        restartPolicy="Never",
    )
    template = core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(annotations={"fake.muster.dev/run-seconds": "600"}), spec=spec
    )
    job = batch_models.JobSpec(
        completionMode="Indexed", completions=count, parallelism=count, backoffLimit=0, template=template
    )
    town.kube.create(batch_v1.Job(metadata=meta_v1.ObjectMeta(name=name, namespace=town.namespace), spec=job))


def marks(town):
    """Each pod's phase and the condition, in short."""
    return [
        (
            pod.status.phase,
            *[f"{c.status} {c.reason}" for c in pod.status.conditions or () if c.type == "muster.dev/NotStarted"],
        )
        for pod in town.kube.list(core.Pod, namespace=town.namespace)
    ]


async def test_it_is_true_until_a_container_has_started(town, client, cluster):
    async with gated(town, client, limit=3):
        scheduler = cluster.part("kube-scheduler").process()
        scheduler.suspend()
        try:
            create_job(town, "train", 2)
            await until(
                lambda: marks(town) == [("Pending", "True Released")] * 2, "the condition, before anybody binds"
            )
        finally:
            scheduler.resume()
        await until(lambda: marks(town) == [("Running", "False ContainerStarted")] * 2, "its end")


async def test_nobody_has_it_who_was_not_asked(town, client):
    async with gated(town, client, limit=0):
        create_job(town, "train", 2)
        await until(lambda: [each[0] for each in marks(town)] == ["Running"] * 2, "the gang")
        assert marks(town) == [("Running",)] * 2
