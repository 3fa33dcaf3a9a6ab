"""A real kubelet: what it says of devices, to the API server and on its own sockets. Needs root.

The questions are those that the fakes answer by faults.md section 1; where a kubelet answers otherwise the page is wrong.
"""

import contextlib
import datetime
import json
import socket

import grpc
import msgspec
import pytest
from lightkube.core import exceptions
from lightkube.models import batch_v1 as batch_models
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import CascadeType, PatchType

from admitter.core import notstarted
from admitter.model.cluster import KubePod
from admitter.publish import podconditions
from hack.cluster import deviceplugin, grants, image, parts, realnode, run
from hack.fakenode import sockets
from muster.model import kube, labels
from muster.pb.kubelet.podresources.v1 import podresources_pb2 as pb
from muster.pb.kubelet.podresources.v1 import podresources_pb2_grpc as rpc

RESOURCE = "nvidia.com/gpu"
DEVICES = 8


@pytest.fixture(scope="module")
def real(line, tmp_path_factory, request):
    """Return a cluster with one real node."""
    started = run.start(tmp_path_factory.mktemp("real"), line, real=True)
    yield started
    run.stop(run.read(started.folder), keep=bool(request.session.testsfailed))


@pytest.fixture
def admin(real):
    connection = grants.client(real.kubeconfig)
    yield connection
    connection.close()


def ask(real):
    """Return (allocatable ids, ids by pod) as the pod-resources socket gives them."""
    with grpc.insecure_channel(f"unix:{real.node.pod_resources}") as channel:
        stub = rpc.PodResourcesListerStub(channel)
        allocatable = stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=10).devices
        listed = stub.List(pb.ListPodResourcesRequest(), timeout=10).pod_resources
    ids = {each for device in allocatable if device.resource_name == RESOURCE for each in device.device_ids}
    held = {}
    for pod in listed:
        for container in pod.containers:
            for device in container.devices:
                held.setdefault(pod.name, set()).update(device.device_ids)
    return ids, held


def sizes(real):
    allocatable, held = ask(real)
    return len(allocatable), {name: len(ids) for name, ids in held.items()}


def numbers(admin):
    status = admin.get(core.Node, realnode.NAME).status
    return (status.capacity or {}).get(RESOURCE), (status.allocatable or {}).get(RESOURCE)


def started_at(admin, name):
    (status,) = admin.get(core.Pod, name, namespace="default").status.containerStatuses
    return status.restartCount, status.state.running.startedAt


def is_ready(admin):
    conditions = admin.get(core.Node, realnode.NAME).status.conditions
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def has_account(admin):
    """Return whether pods may be made in the default namespace yet: its account is made by a controller, in its own time."""
    return any(item.metadata.name == "default" for item in admin.list(core.ServiceAccount, namespace="default"))


def a_pod(name, gpus):
    resources = core_v1.ResourceRequirements(limits={RESOURCE: str(gpus)})
    container = core_v1.Container(name="main", image=image.NAME, resources=resources)
    spec = core_v1.PodSpec(containers=[container], hostNetwork=True, restartPolicy="Never")
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), spec=spec)


@pytest.fixture
def pod(admin, wait_for):
    """Start pods in `default`, wait for a phase, and end them with the test."""
    made = []

    def start(name, gpus, phase="Running"):
        wait_for(lambda: numbers(admin) == (str(DEVICES), str(DEVICES)), "the devices")
        wait_for(lambda: has_account(admin), "the namespace's account")
        admin.create(a_pod(name, gpus))
        made.append(name)
        wait_for(lambda: admin.get(core.Pod, name, namespace="default").status.phase == phase, f"{name} to be {phase}")

    def is_gone(name):
        try:
            admin.get(core.Pod, name, namespace="default")
        except exceptions.ApiError:
            return True
        return False

    yield start
    for name in made:
        admin.delete(core.Pod, name, namespace="default")
        wait_for(lambda name=name: is_gone(name), f"the end of {name}")


def test_the_node_is_ready_with_its_devices(admin, wait_for):
    wait_for(lambda: is_ready(admin), "the node")
    assert wait_for(lambda: numbers(admin) == (str(DEVICES), str(DEVICES)), "the devices")


def test_a_pod_gets_a_device_and_pod_resources_shows_it(real, pod):
    pod("one", 2)
    allocatable, held = ask(real)
    assert len(allocatable) == DEVICES
    assert len(held["one"]) == 2
    assert held["one"] <= allocatable, "S5: allocation does not lower what is allocatable"
    checkpoint = json.loads(real.node.checkpoint.read_text())["Data"]
    assert set(checkpoint["RegisteredDevices"][RESOURCE]) == allocatable
    assert {device for entry in checkpoint["PodDeviceEntries"] for ids in entry["DeviceIDs"].values() for device in ids}


def has_stream(real):
    """Return whether the kernel shows a stream of this kubelet's to its plugin, as agent/reader/sockets.py looks for one."""
    socket = str(real.node.plugins / deviceplugin.ENDPOINT)
    rows = [line.split() for line in sockets.kernel_table(real.node.folder).splitlines()]
    return any(row[5] == "03" and row[-1] == socket for row in rows if len(row) == 8)


def test_a_plugin_that_dies_leaves_capacity_and_takes_allocatable(real, admin, pod, wait_for):
    """S2: N/0 at once; the pod keeps its devices in List, and GetAllocatableResources is empty. The stream's end is seen."""
    pod("one", 1)
    now = run.read(real.folder)
    assert wait_for(lambda: has_stream(real), "the kubelet's stream")
    parts.stop(now.part("deviceplugin"))
    try:
        assert wait_for(lambda: numbers(admin) == (str(DEVICES), "0"), "N/0")
        assert not has_stream(real)
        allocatable, held = ask(real)
        assert (allocatable, len(held["one"])) == (set(), 1)
    finally:
        run.restart(now, "deviceplugin")


def test_a_kubelet_that_restarts_without_the_plugin_says_zero_of_zero(real, admin, pod, wait_for):
    """S3: 0/0 directly, and the devices of running pods are remembered from the checkpoint."""
    pod("one", 1)
    now = run.read(real.folder)
    parts.stop(now.part("deviceplugin"))
    now = run.restart(now, "kubelet")
    try:
        assert wait_for(lambda: numbers(admin) == ("0", "0"), "0/0")
        # Until the kubelet has its pods from the API server again, List names none.
        assert wait_for(lambda: len(ask(real)[1].get("one", ())) == 1, "the pod in List")
    finally:
        run.restart(now, "deviceplugin")


def takes_calls(path):
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


@pytest.mark.parametrize("victims", [("kubelet",), ("containerd",), ("containerd", "kubelet")], ids="+".join)
def test_a_crash_on_the_node_neither_starts_a_container_again_nor_frees_its_devices(
    real, admin, pod, wait_for, victims
):
    pod("one", 2)
    before = started_at(admin, "one"), ask(real)[1]["one"]
    now = run.read(real.folder)
    for name in victims:
        parts.kill(now.part(name))
    if "kubelet" in victims:
        with pytest.raises(grpc.RpcError):
            ask(real)
    else:
        allocatable, held = ask(real)
        assert (len(allocatable), held["one"]) == (DEVICES, before[1]), "the kubelet answers without its containerd"
    for name in victims:
        now = run.restart(now, name)
        # A kubelet asks its containerd once and ends; on a node systemd starts it again, here nobody does.
        wait_for(lambda: takes_calls(real.folder / "node" / "containerd.sock"), "containerd")
    # Until the kubelet has its pods from the API server again, List names none; until the plugin is back, GA is empty.
    wait_for(lambda: sizes(real) == (DEVICES, {"one": 2}), "all as before")
    assert ask(real)[1]["one"] == before[1]
    assert wait_for(lambda: is_ready(admin), "the node")
    pod("two", DEVICES - 2)
    assert not ask(real)[1]["two"] & before[1]
    assert started_at(admin, "one") == before[0]


def a_job(name, gpus):
    """A Job without retries that ignores what failed before it started."""
    pattern = batch_models.PodFailurePolicyOnPodConditionsPattern(type=labels.NOT_STARTED.full, status="True")
    rule = batch_models.PodFailurePolicyRule(action="Ignore", onPodConditions=[pattern])
    pod = a_pod(name, gpus).spec
    pod.schedulingGates = [core_v1.PodSchedulingGate(name=labels.GANG.full)]
    spec = batch_models.JobSpec(
        backoffLimit=0,
        podFailurePolicy=batch_models.PodFailurePolicy(rules=[rule]),
        template=core_v1.PodTemplateSpec(spec=pod),
    )
    return batch_v1.Job(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), spec=spec)


def pods_of(admin, job):
    return list(admin.list(core.Pod, namespace="default", labels={"batch.kubernetes.io/job-name": job}))


def test_a_refusal_of_a_pod_that_is_marked_spends_no_retry(admin, pod, wait_for):
    """The kubelet leaves our condition on the pod that it refuses, and the Job's policy sees it: `backoffLimit: 0` survives."""
    pod("one", DEVICES)
    admin.create(a_job("careful", 1))
    try:
        (held,) = wait_for(lambda: pods_of(admin, "careful"), "the Job's pod")
        name, uid = held.metadata.name, held.metadata.uid
        seen = KubePod(uid=uid, namespace="default", name=name, resource_version="", phase=kube.PodPhase.PENDING)
        now = datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC)
        mark = podconditions.applied(seen, labels.NOT_STARTED, "True", notstarted.AWAITS, "", now)
        options = {"patch_type": PatchType.APPLY, "field_manager": "muster-pods-notstarted"}
        admin.patch(core.PodStatus, name, mark, namespace="default", **options)
        body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": labels.GANG.full}]}}
        admin.patch(core.Pod, name, body, namespace="default", patch_type=PatchType.STRATEGIC)
        # As a scheduler that believes in a device which the kubelet does not have.
        target = core_v1.ObjectReference(kind="Node", name=realnode.NAME)
        meta = meta_v1.ObjectMeta(name=name, namespace="default")
        with contextlib.suppress(msgspec.ValidationError):  # it is answered with a Status, which the client cannot read
            admin.create(core.PodBinding(metadata=meta, target=target), name, namespace="default")

        def refused():
            found = admin.get(core.Pod, name, namespace="default")
            return found if found.status.phase == "Failed" else None

        found = wait_for(refused, "the kubelet's refusal")
        assert found.status.reason in ("UnexpectedAdmissionError", f"OutOf{RESOURCE}")
        assert (labels.NOT_STARTED.full, "True") in {(each.type, each.status) for each in found.status.conditions}
        wait_for(lambda: {each.metadata.uid for each in pods_of(admin, "careful")} - {uid}, "another pod of the Job")
        job = admin.get(batch_v1.Job, "careful", namespace="default")
        assert not job.status.failed
        assert not [each for each in job.status.conditions or () if each.type == "Failed"]
    finally:
        admin.delete(batch_v1.Job, "careful", namespace="default", cascade=CascadeType.BACKGROUND)
        wait_for(lambda: not pods_of(admin, "careful"), "the end of its pods")
