"""What one unit of a resource is where GPUs are shared: docs/units.md, row by row.

A unit is what a pod asks one of and what a lease holds one of: one advertised id.
"""

import pytest

from agent.model import planes
from muster.model import kube
from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_node, a_pod, a_process

SHARED = "nvidia.com/gpu.shared"
VGPU = "nvidia.com/GRID_A100D-8C"
FOUR = ("GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-0::3")
MPS = (builders.a_plugin(config={"sharing": "mps"}),)
SERVER = a_process(pid=7, name="nvidia-cuda-mps-server", cgroup="/system.slice")


def shared(name, *pods, listed=(), gpus=(), **changes):
    """Return a node of two GPUs, each offered four times."""
    ids = (*FOUR, *(text.replace("GPU-0", "GPU-1") for text in FOUR))
    node = a_node(
        2,
        **{
            "kubelet": builders.a_kubelet({name: ids}, listed),
            "node_object": builders.a_node_object({name: len(ids)}),
            "pods": Known(pods),
            **changes,
        },
    )
    return builders.with_gpus(node, *gpus)


def guest(*pods, licensed=True, listed=()):
    """Return a VM with one vGPU: to its driver a GPU like any other, under the plugin's own name."""
    node = a_node(
        1,
        kubelet=builders.a_kubelet({VGPU: ("GPU-0",)}, listed),
        node_object=builders.a_node_object({VGPU: 1}),
        pods=Known(pods),
    )
    return builders.with_gpus(node, a_gpu(0, licence=Known(planes.Licence(licensed=licensed))))


def holds(name, *texts, resource=SHARED):
    return a_listed_pod(name, *texts, resource=resource)


READY = Known(planes.Mps(daemon_alive=Known(True), ready=Known(True)))
STARTING = Known(planes.Mps(daemon_alive=Known(True), ready=Known(False)))

ROWS = {
    # Time-slicing: a replica is a unit. Free replicas of a held GPU are free; a pod beside them is no stranger.
    "time-slicing, nobody": (shared(SHARED), SHARED, ("OK", 8, 8, 0.0)),
    "time-slicing, one replica held": (
        shared(SHARED, a_pod("a", resource=SHARED), listed=(holds("a", FOUR[0]),)), SHARED, ("OK", 7, 7, 0.0),
    ),
    "time-slicing, two pods on one GPU": (
        shared(
            SHARED, a_pod("a", resource=SHARED), a_pod("b", resource=SHARED),
            listed=(holds("a", FOUR[0]), holds("b", FOUR[1])),
            gpus=[a_gpu(0, processes=Known((
                a_process(pid=1, cgroup=builders.pod_cgroup("uid-a")), a_process(pid=2, cgroup=builders.pod_cgroup("uid-b")),
            )))],
        ),
        SHARED, ("OK", 6, 6, 0.0),
    ),
    "time-slicing, two units asked for and not seen yet": (
        shared(SHARED, a_pod("a", resource=SHARED, units=2)), SHARED, ("OK", 6, 6, 0.0),
    ),
    # A stranger on the GPU takes all its free replicas: none of them may be handed out in good faith.
    "time-slicing, a stranger on one GPU": (
        shared(SHARED, gpus=[a_gpu(0, processes=Known((a_process(),)))]), SHARED, ("CONTENDED", 0, 4, 0.5),
    ),
    # MPS: as time-slicing; the server in front of the clients is no stranger, and nothing starts before it is ready.
    "MPS, its server runs": (
        shared(WHOLE, plugins=Known(MPS), mps=READY, gpus=[a_gpu(0, processes=Known((SERVER,)))]), WHOLE, ("OK", 8, 8, 0.0),
    ),
    "MPS, its daemon is not ready": (shared(WHOLE, plugins=Known(MPS), mps=STARTING), WHOLE, ("BLOCKED", 0, 0, 0.0)),
    # vGPU: the guest's GPU is a unit, whatever share of the card stands behind it; a licence throttles and takes nothing.
    "vGPU, free": (guest(), VGPU, ("OK", 1, 1, 0.0)),
    "vGPU, held": (
        guest(a_pod("a", resource=VGPU), listed=(holds("a", "GPU-0", resource=VGPU),)), VGPU, ("OK", 0, 0, 0.0),
    ),
    "vGPU, without licence": (guest(licensed=False), VGPU, ("OK", 1, 1, 0.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_units_of(name):
    observation, resource, expected = ROWS[name]
    report = builders.reports_of(observation, (0, 20, 40))[-1]
    assert builders.numbers_of(report)[resource] == expected


def test_the_forecast_of_a_lease_names_gpus_and_not_replicas():
    """Which replica the kubelet picks means nothing; which GPU does."""
    report = builders.reports_of(shared(SHARED, a_pod("a", resource=SHARED), listed=(holds("a", FOUR[0]),)), (0,))[-1]
    assert report.resources[SHARED].free_devices == ("GPU-0", "GPU-1")
    assert report.resources[SHARED].free == Known(7)


def test_a_pod_of_a_share_on_a_bad_gpu_is_named():
    node = shared(
        SHARED,
        a_pod("a", resource=SHARED, phase=kube.PodPhase.RUNNING),
        listed=(holds("a", FOUR[0]),),
        gpus=[builders.a_lost_gpu(0)],
    )
    (pod,) = builders.reports_of(node, (0,))[-1].pods
    assert (pod.pod, pod.state.value, pod.devices) == ("ml/a", "on_bad_device", ("GPU-0",))
