"""Gangs that others' objects make, on a real control plane: found, held, let go whole, and planned anew through their owner."""

import functools

import pytest
from lightkube import generic_resource
from lightkube.models import core_v1, meta_v1
from lightkube.resources import apiextensions_v1
from lightkube.resources import core_v1 as core

from hack.cluster import grants
from tests.admitter.kubetown import KubeTown, until
from tests.cluster import test_gates as gates

JobSet = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
PodGroup = generic_resource.create_namespaced_resource("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups")
Coscheduling = generic_resource.create_namespaced_resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
LWS = "leaderworkerset.sigs.k8s.io"
NATIVE = {
    # Beta in 1.37 and off (pkg/features/kube_features.go); its API group version is beta, too.
    "kube-apiserver": ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"],
}


def a_town(tmp_path, cluster):
    """A town of its own on a cluster of its own."""
    client = grants.client(cluster.kubeconfig)
    client.create(core.Namespace(metadata=meta_v1.ObjectMeta(name="team")))
    return KubeTown(tmp_path / "town", cluster, client, "team"), client


async def account(town):
    await until(
        lambda: any(
            each.metadata.name == "default" for each in town.kube.list(core.ServiceAccount, namespace=town.namespace)
        ),
        "the namespace's account",
    )


def create_pod(town, name, template, **spec):
    metadata = template.metadata
    metadata = meta_v1.ObjectMeta(
        name=name, namespace=town.namespace, labels=metadata.labels, annotations=metadata.annotations
    )
    for key, value in spec.items():
        setattr(template.spec, key, value)
    town.kube.create(core.Pod(metadata=metadata, spec=template.spec))


def a_job_set(name, workers, namespace):
    """A driver without a device, and workers of a whole node each."""

    def part(name, count, gpus):
        spec = {
            "parallelism": count,
            "completions": count,
            "backoffLimit": 0,
            "template": gates.a_template(gpus).to_dict(),
        }
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    spec = {"replicatedJobs": [part("driver", 1, 0), part("workers", workers, 8)]}
    return JobSet(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace), spec=spec)


async def test_a_job_set_is_one_gang_and_is_planned_anew_as_a_whole(tmp_path, new_cluster):
    cluster = new_cluster(wanted=("jobset",), nodes=4)
    town, client = a_town(tmp_path, cluster)
    await account(town)
    scheduler = cluster.part("kube-scheduler").process()
    async with gates.gated(town, client, bind_patience_seconds=2.0, strike_seconds=0.1):
        scheduler.suspend()
        client.create(a_job_set("train", 3, town.namespace))
        await until(lambda: len(gates.pods(town, "train")) == 4, "its pods")
        seen = {pod.metadata.uid for pod in gates.pods(town, "train")}
        await until(functools.partial(gates.is_anew, town, "train", seen), "pods in their stead")
        scheduler.resume()
        await until(lambda: len(gates.running(town, "train")) == 4, "the JobSet")
        client.create(a_job_set("next", 2, town.namespace))
        await until(lambda: len(gates.held(town, "next")) == 3, "the other one, held whole")
        await until(lambda: "NotEnoughUnits" in gates.told(town), "a word about it")
        assert len(gates.held(town, "next")) == 3, "the driver without a device waits with its workers"
        assert not client.get(JobSet, "train", namespace=town.namespace).get("status", {}).get("terminalState")
        client.delete(JobSet, "train", namespace=town.namespace)
        await until(lambda: len(gates.running(town, "next")) == 3, "the other one, once the first is gone")
    client.close()


async def test_a_native_pod_group_is_a_gang(tmp_path, new_cluster):
    cluster = new_cluster(nodes=4, extra=NATIVE)
    town, client = a_town(tmp_path, cluster)
    await account(town)
    metadata = meta_v1.ObjectMeta(name="workers", namespace=town.namespace)
    client.create(PodGroup(metadata=metadata, spec={"schedulingPolicy": {"gang": {"minCount": 3}}}))
    async with gates.gated(town, client):
        group = core_v1.PodSchedulingGroup(podGroupName="workers")
        for index in range(2):
            create_pod(town, f"native-{index}", gates.a_template(8), schedulingGroup=group)
        await until(lambda: "IncompleteGang" in gates.told(town), "a word about the member that is missing")
        assert len(gates.held(town, "native")) == 2
        create_pod(town, "native-2", gates.a_template(8), schedulingGroup=group)
        await until(lambda: len(gates.running(town, "native")) == 3, "the gang, once it is whole")
    client.close()


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


async def test_each_group_of_a_leader_worker_set_is_a_gang(town, client):
    """Its controller is not here: the pods are as it makes them."""

    def create(group, worker):
        marks = {f"{LWS}/name": "serve", f"{LWS}/group-index": str(group), f"{LWS}/worker-index": str(worker)}
        template = gates.a_template(8, marks=marks, **{f"{LWS}/size": "3"})
        create_pod(town, f"serve-{group}-{worker}", template)

    async with gates.gated(town, client):
        for worker in range(3):
            create(0, worker)
        create(1, 0)
        create(1, 1)
        await until(lambda: len(gates.running(town, "serve-0")) == 3, "the first group")
        assert len(gates.held(town, "serve-1")) == 2, "the other one is not whole"
        create(1, 2)
        await until(lambda: "NotEnoughUnits" in gates.told(town), "a word about the other one")
        assert len(gates.held(town, "serve-1")) == 3


@pytest.fixture
def coscheduling(client, wait_for):
    """The kind that the coscheduling plugin's PodGroups are."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = "podgroups.scheduling.x-k8s.io"
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    made = apiextensions_v1.CustomResourceDefinition.from_dict(
        {
            "metadata": {"name": name, "annotations": approved},
            "spec": {
                "group": "scheduling.x-k8s.io",
                "names": {
                    "kind": "PodGroup",
                    "plural": "podgroups",
                    "singular": "podgroup",
                    "listKind": "PodGroupList",
                },
                "scope": "Namespaced",
                "versions": [
                    {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
                ],
            },
        }
    )
    client.create(made)

    def is_served():
        found = client.get(apiextensions_v1.CustomResourceDefinition, name)
        conditions = (found.status.conditions if found.status else None) or ()
        return any(each.type == "Established" and each.status == "True" for each in conditions)

    wait_for(is_served, name)
    yield
    client.delete(apiextensions_v1.CustomResourceDefinition, name)


async def test_a_pod_group_of_the_coscheduling_plugin_is_a_gang(town, client, coscheduling):
    metadata = meta_v1.ObjectMeta(name="mpi", namespace=town.namespace)
    client.create(Coscheduling(metadata=metadata, spec={"minMember": 2}))
    async with gates.gated(town, client):
        marks = {"scheduling.x-k8s.io/pod-group": "mpi"}
        create_pod(town, "mpi-0", gates.a_template(8, marks=marks))
        await until(lambda: "IncompleteGang" in gates.told(town), "a word about the member that is missing")
        assert len(gates.held(town, "mpi")) == 1
        create_pod(town, "mpi-1", gates.a_template(8, marks=marks))
        await until(lambda: len(gates.running(town, "mpi")) == 2, "the gang, once it is whole")
