"""Names are free: what a pod or a process calls itself proves nothing about who holds a GPU."""

import pytest

from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE, a_gpu, a_process

IDS = tuple(f"GPU-{number}" for number in range(8))


def causes(report):
    return {finding.cause for finding in report.resources[WHOLE].findings}


def last(observation):
    return builders.reports_of(observation, (0, 20, 40))[-1]


@pytest.mark.parametrize(
    ("namespace", "name", "is_operators"),
    [
        ("gpu-operator", "nvidia-cuda-validator-x", True),
        ("gpu-operator", "train-0", False),
        ("team-a", "nvidia-cuda-validator-x", False),
    ],
)
def test_an_operators_pod_is_one_by_its_namespace_too(namespace, name, is_operators):
    listed = builders.a_listed_pod(name, "GPU-0", namespace=namespace)
    report = last(builders.a_node(kubelet=builders.a_kubelet({WHOLE: IDS}, (listed,))))
    assert ("OperatorPodOnGpu" in causes(report)) is is_operators


def on_gpu_3(cgroup):
    server = a_process(pid=7, name="nvidia-cuda-mps-server", cgroup=cgroup)
    return builders.with_gpus(builders.a_node(pods=Known(())), a_gpu(3, processes=Known((server,))))


def test_a_leftover_process_that_calls_itself_the_mps_server_still_takes_its_gpu():
    """faults.md E4: its pod is gone, and the kubelet would hand the GPU out."""
    report = last(on_gpu_3(builders.pod_cgroup("uid-gone")))
    assert "TerminatingPodOnGpu" in causes(report)
    assert report.resources[WHOLE].admit_strict == Known(0)


def test_the_hosts_own_mps_server_is_no_stranger():
    report = last(on_gpu_3("/system.slice"))
    assert causes(report) == set()
    assert report.resources[WHOLE].admit_strict == Known(8)


def test_a_pods_mps_server_in_front_of_shared_gpus_is_no_stranger():
    """faults.md F3: it hides its clients, and the plugin's daemon runs in a pod that holds nothing itself."""
    server = a_process(pid=7, name="nvidia-cuda-mps-server", cgroup=builders.pod_cgroup("uid-daemon"))
    replicas = tuple(f"GPU-0::{number}" for number in range(4))
    node = builders.a_node(
        gpus=1,
        kubelet=builders.a_kubelet({WHOLE: replicas}),
        node_object=builders.a_node_object({WHOLE: 4}),
        pods=Known(()),
    )
    report = last(builders.with_gpus(node, a_gpu(0, processes=Known((server,)))))
    assert "TerminatingPodOnGpu" not in causes(report)
    assert report.resources[WHOLE].admit_lenient == Known(4)


def used_by(pod, name="python"):
    """Return the report of a node where a pod that List does not name has a process on GPU 3."""
    process = a_process(pid=7, name=name, cgroup=builders.pod_cgroup(pod.uid))
    return last(builders.with_gpus(builders.a_node(pods=Known((pod,))), a_gpu(3, processes=Known((process,)))))


@pytest.mark.parametrize("asks", [{"units": 0}, {"resource": "example.com/share"}], ids=["for none", "by another name"])
def test_a_pod_that_uses_a_gpu_without_asking_for_it_takes_it(asks):
    """NVIDIA_VISIBLE_DEVICES=all, a privileged pod: the kubelet's ledger has the GPU free, and a pick may hit it."""
    report = used_by(builders.a_pod("sneaky", **asks))
    assert "PodUsesGpuUnasked" in causes(report)
    assert (report.resources[WHOLE].admit_strict, report.resources[WHOLE].admit_lenient) == (Known(0), Known(7))


def test_a_pod_that_asked_for_it_is_in_the_kubelets_ledger():
    report = used_by(builders.a_pod("init"))
    assert causes(report) == {"InitContainerHolder"}
    assert (report.resources[WHOLE].admit_strict, report.resources[WHOLE].admit_lenient) == (Known(7), Known(7))


def test_a_tool_in_a_pod_that_asks_for_nothing_is_a_tool():
    report = used_by(builders.a_pod("diag", units=0), name="dcgmproftester12")
    assert causes(report) == {"ManagementToolOnGpu"}
    assert report.resources[WHOLE].admit_strict == Known(0)
