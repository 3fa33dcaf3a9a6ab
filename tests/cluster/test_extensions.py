"""Kueue and JobSet from their modules, with their webhooks, on fake nodes."""

import uuid

import pytest
import yaml
from lightkube import generic_resource, types
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1 as batch
from lightkube.resources import core_v1 as core

from hack.cluster import extensions, fakenodes, grants, run

JobSet = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
Flavor = generic_resource.create_global_resource("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors")
ClusterQueue = generic_resource.create_global_resource("kueue.x-k8s.io", "v1beta2", "ClusterQueue", "clusterqueues")
LocalQueue = generic_resource.create_namespaced_resource("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
Workload = generic_resource.create_namespaced_resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")

MODULE = """
kind: Namespace
metadata: {name: x-system}
---
kind: Deployment
metadata: {name: x-controller-manager}
---
kind: Service
metadata: {name: x-webhook-service}
spec: {ports: [{port: 443}]}
---
kind: Service
metadata: {name: x-metrics-service}
---
kind: MutatingWebhookConfiguration
metadata: {name: x}
webhooks: [{clientConfig: {service: {name: x-webhook-service, path: /mutate}}}]
---
kind: CustomResourceDefinition
metadata: {name: things.x}
spec: {conversion: {webhook: {clientConfig: {service: {name: x-webhook-service}}}}}
"""


def test_only_the_place_of_the_webhooks_is_changed():
    extension = extensions.Extension(name="x", configuration="x/v1", makes_certificates=False, options={})
    found = list(extensions.objects(MODULE, extension, 4711, "pem"))
    assert [each["kind"] for each in found] == [
        "Namespace",
        "Service",
        "MutatingWebhookConfiguration",
        "CustomResourceDefinition",
    ]
    assert found[1]["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    service = {"name": "x-webhook-service", "path": "/mutate", "port": 4711}
    assert found[2]["webhooks"] == [{"clientConfig": {"service": service, "caBundle": "cGVt"}}]
    assert found[3]["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 4711
    assert yaml.safe_dump_all(found)


@pytest.fixture(scope="module")
def queued(line, tmp_path_factory, request):
    """Return a cluster with Kueue, JobSet and fake nodes."""
    folder = tmp_path_factory.mktemp("queued")
    started = run.start(folder, line, wanted=tuple(extensions.EXTENSIONS), nodes=2)
    yield started
    run.stop(started, keep=bool(request.session.testsfailed))


@pytest.fixture
def admin(queued):
    connection = grants.client(queued.kubeconfig)
    yield connection
    connection.close()


@pytest.fixture
def space(admin):
    """Return the name of a fresh namespace with a queue `team` of 8 GPUs."""
    name = f"queued-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "namespace": name}
    admin.create(core.Namespace(metadata=meta_v1.ObjectMeta(name=name)))
    admin.create(Flavor({"metadata": {"name": name}}))
    quota = [{"name": resource, "nominalQuota": amount} for resource, amount in (("cpu", "100"), (GPU, "8"))]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": name, "resources": quota}]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    admin.create(ClusterQueue({"metadata": {"name": name}, "spec": queue}))
    admin.create(LocalQueue({"metadata": {**metadata, "name": "team"}, "spec": {"clusterQueue": name}}))
    yield name
    admin.delete(core.Namespace, name)
    admin.delete(ClusterQueue, name)
    admin.delete(Flavor, name)


GPU = fakenodes.RESOURCE


def a_template(gpus, annotations=None):
    resources = core_v1.ResourceRequirements(limits={GPU: str(gpus)}, requests={"cpu": "1"})
    container = core_v1.Container(name="main", image="none", resources=resources)
    spec = core_v1.PodSpec(containers=[container], restartPolicy="Never")
    return core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(annotations=annotations), spec=spec).to_dict()


def a_job(namespace, name, gpus, annotations=None):
    metadata = {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    return batch.Job.from_dict({"metadata": metadata, "spec": {"template": a_template(gpus, annotations)}})


def test_every_part_works(queued):
    assert run.faults(queued) == {}
    assert {"jobset", "kueue"} <= {part.name for part in queued.parts}


def test_a_jobset_runs_to_completion(admin, space, wait_for):
    jobs = [{"name": "workers", "replicas": 2, "template": {"spec": {"template": a_template(1), "completions": 2}}}]
    admin.create(JobSet({"metadata": {"name": "set", "namespace": space}, "spec": {"replicatedJobs": jobs}}))

    def is_completed():
        status = admin.get(JobSet, "set", namespace=space).status or {}
        return status.get("terminalState") == "Completed"

    assert wait_for(is_completed, "the job set's end")


def test_jobset_refuses_what_its_webhook_refuses(admin, space):
    jobs = [{"name": "x" * 60, "replicas": 1, "template": {"spec": {"template": a_template(1)}}}]
    with pytest.raises(exceptions.ApiError) as refused:
        admin.create(JobSet({"metadata": {"name": "set", "namespace": space}, "spec": {"replicatedJobs": jobs}}))
    assert "admission webhook" in str(refused.value)


def test_kueue_admits_a_job_and_it_runs(admin, space, wait_for):
    admin.create(a_job(space, "small", 4))
    assert wait_for(lambda: admin.get(batch.Job, "small", namespace=space).status.succeeded == 1, "the job's end")


def test_kueue_holds_what_exceeds_the_quota_until_there_is_room(admin, space, wait_for):
    forever = {"fake.muster.dev/run-seconds": "600"}
    admin.create(a_job(space, "first", 8, forever))
    wait_for(lambda: admin.get(batch.Job, "first", namespace=space).status.active == 1, "the first job")
    admin.create(a_job(space, "second", 8))
    wait_for(lambda: [*admin.list(Workload, namespace=space)][1:], "the second workload")
    assert admin.get(batch.Job, "second", namespace=space).spec.suspend
    # As kubectl does it: the API's own default for a Job orphans its pods, and its Workload keeps the quota.
    admin.delete(batch.Job, "first", namespace=space, cascade=types.CascadeType.BACKGROUND)
    assert wait_for(lambda: admin.get(batch.Job, "second", namespace=space).status.succeeded == 1, "the second job")


def test_an_invalid_queue_is_refused_by_kueue(admin, space):
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": space, "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
    ] * 2
    with pytest.raises(exceptions.ApiError) as refused:
        admin.create(ClusterQueue({"metadata": {"name": f"{space}-bad"}, "spec": {"resourceGroups": groups}}))
    assert "admission webhook" in str(refused.value)
