"""Fake nodes on a real control plane: the default scheduler places, Jobs end, devices run out."""

import pytest
from lightkube.models import batch_v1, core_v1, meta_v1
from lightkube.resources import batch_v1 as batch
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from hack.cluster import fakekubelet, fakenodes

GPUS = 8


def a_spec(gpus, **options):
    resources = core_v1.ResourceRequirements(limits={fakenodes.RESOURCE: str(gpus)})
    container = core_v1.Container(name="main", image="none", resources=resources)
    return core_v1.PodSpec(containers=[container], **options)


def a_pod(namespace, name, gpus, *, annotations=None, **options):
    metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, annotations=annotations)
    return core.Pod(metadata=metadata, spec=a_spec(gpus, **options))


@pytest.fixture
def phase_of(client, namespace):
    """Return the phase of one of the test's pods, `Gone` where there is none."""

    def phase(name):
        found = [pod for pod in client.list(core.Pod, namespace=namespace) if pod.metadata.name == name]
        return found[0].status.phase if found else "Gone"

    return phase


@pytest.fixture
def node(client, namespace, wait_for):
    """Give the test a node and put it back in order: no lost devices, no pods of the test."""
    name = "fake-0000"
    yield name
    _lose(client, name, None)
    client.deletecollection(core.Pod, namespace=namespace)
    wait_for(lambda: not [*client.list(core.Pod, namespace=namespace)], "the end of the test's pods")


def _lose(client, name, count):
    body = {"metadata": {"annotations": {fakekubelet.LOST: count}}}
    client.patch(core.Node, name, body, patch_type=PatchType.MERGE)


def test_nodes_are_ready_and_advertise_their_devices(client, wait_for):
    nodes = wait_for(lambda: [*client.list(core.Node, labels={"muster.dev/fake": "true"})], "the nodes")
    assert {node.status.allocatable[fakenodes.RESOURCE] for node in nodes} == {str(GPUS)}
    # The node controller takes this taint away from nodes that report ready; the scheduler waits for it.
    ready = lambda: all(not node.spec.taints for node in client.list(core.Node))  # noqa: E731 -- one line, used once
    assert wait_for(ready, "nodes without taints")


def test_a_node_that_was_called_lost_says_that_it_is_ready(client, wait_for):
    """What the node controller writes where a lease came late; a kubelet that is well denies it at its next status pass."""
    lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "no lease"}
    client.patch(core.NodeStatus, "fake-0001", {"status": {"conditions": [lost]}}, patch_type=PatchType.STRATEGIC)

    def said():
        conditions = client.get(core.Node, "fake-0001").status.conditions
        return [each.reason for each in conditions if each.type == "Ready"]

    assert said() == ["NodeStatusUnknown"]
    assert wait_for(lambda: said() == ["KubeletReady"], "the status period")


def test_a_job_runs_to_completion(client, namespace, wait_for):
    template = core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(annotations={fakekubelet.RUN_SECONDS: "0.2"}),
        spec=a_spec(4, restartPolicy="Never"),
    )
    spec = batch_v1.JobSpec(template=template, completions=10, parallelism=5, completionMode="Indexed")
    client.create(batch.Job(metadata=meta_v1.ObjectMeta(name="job", namespace=namespace), spec=spec))
    done = wait_for(lambda: client.get(batch.Job, "job", namespace=namespace).status.completionTime, "the job's end")
    assert done is not None
    assert client.get(batch.Job, "job", namespace=namespace).status.succeeded == 10


def test_a_failing_container_fails_its_pod(client, namespace, phase_of, wait_for):
    client.create(a_pod(namespace, "bad", 1, annotations={fakekubelet.EXIT_CODE: "3"}, restartPolicy="Never"))
    assert wait_for(lambda: phase_of("bad") == "Failed", "the pod's failure")
    pod = client.get(core.Pod, "bad", namespace=namespace)
    assert pod.status.containerStatuses[0].state.terminated.exitCode == 3


def test_more_devices_than_are_free_are_rejected_as_a_kubelet_does(client, namespace, node, phase_of, wait_for):
    """Pods bound past the scheduler find out at the kubelet, as with a scheduler that believes a stale count."""
    client.create(a_pod(namespace, "first", GPUS, nodeName=node))
    wait_for(lambda: phase_of("first") == "Running", "the first pod")
    client.create(a_pod(namespace, "second", 1, nodeName=node))
    wait_for(lambda: phase_of("second") == "Failed", "the rejection")
    status = client.get(core.Pod, "second", namespace=namespace).status
    assert status.reason == "UnexpectedAdmissionError"
    assert "Requested: 1, Available: 0" in status.message


def test_a_deleted_pod_gives_its_devices_back(client, namespace, node, phase_of, wait_for):
    client.create(a_pod(namespace, "first", GPUS, nodeName=node))
    wait_for(lambda: phase_of("first") == "Running", "the first pod")
    client.delete(core.Pod, "first", namespace=namespace)
    wait_for(lambda: phase_of("first") == "Gone", "the first pod's end")
    client.create(a_pod(namespace, "second", GPUS, nodeName=node))
    assert wait_for(lambda: phase_of("second") == "Running", "the second pod")


def test_a_lost_device_rejects_at_once_and_leaves_the_advertised_count_later(
    client, namespace, node, phase_of, wait_for
):
    _lose(client, node, "3")

    names = (f"pod-{index}" for index in range(100))

    def is_rejected():
        name = next(names)
        client.create(a_pod(namespace, name, GPUS, nodeName=node))
        if wait_for(lambda: phase_of(name) in {"Running", "Failed"} and phase_of(name), "the kubelet") == "Failed":
            return client.get(core.Pod, name, namespace=namespace).status.message
        # The kubelet has not heard of the loss yet.
        client.delete(core.Pod, name, namespace=namespace)
        wait_for(lambda: phase_of(name) == "Gone", "the pod's end")
        return None

    assert "Available: 5" in wait_for(is_rejected, "the rejection")
    lowered = lambda: client.get(core.Node, node).status.allocatable[fakenodes.RESOURCE] == "5"  # noqa: E731
    assert wait_for(lowered, "the status period")
