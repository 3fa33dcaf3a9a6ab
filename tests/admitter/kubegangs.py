"""Gangs on a real API server: pods, Jobs and Deployments that are held, and what became of them."""

import contextlib
from http import HTTPStatus

import lightkube
from lightkube.models import apps_v1, core_v1, meta_v1
from lightkube.models import batch_v1 as batch_models
from lightkube.resources import apps_v1 as apps
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core

from muster.model import labels
from tests.admitter.kubeagents import GPU, truthful
from tests.admitter.kubetown import until

NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")
GATE = labels.GANG.full


@contextlib.asynccontextmanager
async def gated(town, client, **settings):
    """An admitter that lets held pods go, and true agents; yields the admitter."""
    settings = {"gates": True, "replan_patience_seconds": 1.0, "lease_seconds": 15.0, **settings}
    async with town.kube_admitter(**settings) as (admitter, address), truthful(town, address, client, NODES):
        await until(lambda: town.holder() == "admitter-0", "a leader", seconds=180)
        yield admitter


def a_template(gpus=8, *, gates=(GATE,), marks=None, restart="Never", **annotations):
    """A pod that asks for GPUs and runs until it is deleted, unless the annotations say otherwise."""
    request = {GPU: str(gpus)} if gpus else {}
    container = core_v1.Container(
        name="main", image="none", resources=core_v1.ResourceRequirements(requests=request, limits=request)
    )
    spec = core_v1.PodSpec(
        containers=[container],
        schedulingGates=[core_v1.PodSchedulingGate(name=gate) for gate in gates],
        restartPolicy=restart,
    )
    annotations = {"fake.muster.dev/run-seconds": "600", **annotations}
    return core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(labels=marks or {}, annotations=annotations), spec=spec)


def create_gang(town, name, count, gpus=8, **annotations):
    """Bare pods of a labelled gang."""
    annotations = {labels.GANG_SIZE.full: str(count), **annotations}
    template = a_template(gpus, marks={labels.GANG.full: name}, **annotations)
    for index in range(count):
        metadata = meta_v1.ObjectMeta(
            name=f"{name}-{index}",
            namespace=town.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
        )
        town.kube.create(core.Pod(metadata=metadata, spec=template.spec))


def create_job(town, name, count, template, **spec):
    """An Indexed Job that is a gang."""
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": count, "backoffLimit": 0, **spec}
    metadata = meta_v1.ObjectMeta(name=name, namespace=town.namespace)
    return town.kube.create(batch_v1.Job(metadata=metadata, spec=batch_models.JobSpec(template=template, **spec)))


def create_deployment(town, name, replicas, template):
    """A Deployment that makes a new pod before it ends an old one."""
    strategy = apps_v1.DeploymentStrategy(
        type="RollingUpdate", rollingUpdate=apps_v1.RollingUpdateDeployment(maxSurge=1, maxUnavailable=0)
    )
    template.metadata.labels = {"app": name}
    spec = apps_v1.DeploymentSpec(
        replicas=replicas,
        selector=meta_v1.LabelSelector(matchLabels={"app": name}),
        strategy=strategy,
        template=template,
    )
    metadata = meta_v1.ObjectMeta(name=name, namespace=town.namespace)
    return town.kube.create(apps.Deployment(metadata=metadata, spec=spec))


def pods(town, prefix):
    """The pods of which the name begins so, by name."""
    return sorted(
        (pod for pod in town.kube.list(core.Pod, namespace=town.namespace) if pod.metadata.name.startswith(prefix)),
        key=lambda pod: pod.metadata.name,
    )


def running(town, prefix):
    """Those of them that run."""
    return [pod for pod in pods(town, prefix) if pod.status.phase == "Running"]


def held(town, prefix):
    """Those of them that still have our gate."""
    return [pod for pod in pods(town, prefix) if any(gate.name == GATE for gate in pod.spec.schedulingGates or ())]


def remove(town, prefix):
    """Delete the pods at once."""
    for pod in pods(town, prefix):
        try:
            town.kube.delete(core.Pod, pod.metadata.name, namespace=town.namespace, grace_period=0)
        except lightkube.ApiError as error:
            # What makes it may have deleted it meanwhile.
            if error.status.code != HTTPStatus.NOT_FOUND:
                raise


def notes(town, reason):
    """What Events of this reason say, in the namespace."""
    # Not by events.k8s.io: what controllers have written by the older API has no eventTime there.
    found = town.kube.list(core.Event, namespace=town.namespace)
    return [event.message or "" for event in found if event.reason == reason]
