"""The numbers, in the cases that counting alone gets wrong (design.md section 3, faults.md P3)."""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Mode, Policy
from muster.model import codec, kube
from muster.model.reading import Known, Unknown
from muster.model.report import CountedPod, Verdict
from tests import builders
from tests.builders import WHOLE

EIGHT = tuple(f"GPU-{number}" for number in range(8))


def judged(observation, *, policy=Policy(), api_server=True):  # noqa: B008 -- frozen
    return judge(History(), observation, policy, api_server=api_server)[1]


def whole(observation, **settings):
    return judged(observation, **settings).resources[WHOLE]


def admits(resource):
    return (resource.admit_strict, resource.admit_lenient, resource.pick_risk)


def with_pods(*bound, listed=(), **changes):
    return builders.a_node(kubelet=builders.a_kubelet({WHOLE: EIGHT}, listed), pods=Known(bound), **changes)


def test_a_healthy_idle_node_admits_everything():
    resource = whole(builders.a_node())
    assert admits(resource) == (Known(8), Known(8), Known(0.0))
    assert resource.free_devices == EIGHT
    assert resource.planes == ("kubelet.allocatable", "kubelet.pods", "node_object", "nvml", "pods")


def test_a_bound_pod_that_nobody_sees_yet_takes_a_device_that_still_looks_free():
    resource = whole(with_pods(builders.a_pod("a", units=2, phase=kube.PodPhase.PENDING)))
    assert (resource.free, resource.admit_lenient) == (Known(8), Known(6))
    assert resource.counted == (CountedPod(uid="uid-a", units=2),)


def test_a_pod_in_list_with_devices_is_counted_once():
    listed = (builders.a_listed_pod("a", "GPU-0", "GPU-1"),)
    resource = whole(with_pods(builders.a_pod("a", units=2), listed=listed))
    assert (resource.free, resource.admit_strict) == (Known(6), Known(6))
    assert resource.counted == (CountedPod(uid="uid-a", units=2),)


def test_a_pod_seen_only_by_its_process_does_not_wait_for_a_device_too():
    process = builders.a_process(cgroup=builders.pod_cgroup("uid-a"))
    node = builders.with_gpus(with_pods(builders.a_pod("a")), builders.a_gpu(0, processes=Known((process,))))
    resource = whole(node)
    assert (resource.free, resource.admit_strict, resource.verdict) == (Known(7), Known(7), Verdict.OK)


def test_a_finished_pod_holds_nothing():
    listed = (builders.a_listed_pod("a", "GPU-0"),)
    resource = whole(with_pods(builders.a_pod("a", phase=kube.PodPhase.SUCCEEDED), listed=listed))
    assert (resource.allocated, resource.admit_strict, resource.counted) == (Known(0), Known(8), ())


def test_requests_beyond_what_is_allocatable_are_clamped_and_not_wrapped():
    pods = tuple(builders.a_pod(name, units=8) for name in "ab")
    assert admits(whole(with_pods(*pods)))[:2] == (Known(0), Known(0))


def test_without_an_api_server_what_is_free_is_admitted():
    node = builders.a_node(
        api=False, kubelet=builders.a_kubelet({WHOLE: EIGHT}, (builders.a_listed_pod("a", "GPU-0"),))
    )
    resource = whole(node, api_server=False)
    assert admits(resource) == (Known(7), Known(7), Known(0.0))
    assert resource.planes == ("kubelet.allocatable", "kubelet.pods", "nvml")


def test_a_name_that_the_node_does_not_have_admits_nothing():
    resource = whole(builders.a_node(node_object=builders.a_node_object({})))
    assert (resource.allocatable, resource.admit_lenient) == (
        Unknown("KeyAbsent", resource.allocatable.detail),
        Known(0),
    )


def test_two_pods_of_one_name_both_count_when_nobody_tells_them_apart():
    twins = (builders.a_pod("a"), builders.a_pod("a", uid="uid-a2"))
    resource = whole(with_pods(*twins, listed=(builders.a_listed_pod("a", "GPU-0"),)))
    assert (resource.free, resource.admit_lenient) == (Known(7), Known(6))


def test_of_two_pods_of_one_name_the_checkpoint_s_holds():
    twins = (builders.a_pod("a"), builders.a_pod("a", uid="uid-a2"))
    entry = builders.planes.CheckpointPod(uid="uid-a2", resource=WHOLE, ids=("GPU-0",))
    checkpoint = Known(builders.planes.Checkpoint(registered=codec.EMPTY, pods=(entry,)))
    kubelet = builders.a_kubelet({WHOLE: EIGHT}, (builders.a_listed_pod("a", "GPU-0"),), checkpoint=checkpoint)
    report = judged(builders.a_node(kubelet=kubelet, pods=Known(twins)))
    assert report.resources[WHOLE].admit_lenient == Known(6)
    assert [item.pods for item in report.devices if item.uuid == "GPU-0"] == [("ml/a",)]


def test_one_bad_free_id_makes_strict_0_and_leaves_the_rest_to_the_lenient():
    node = builders.with_gpus(builders.a_node(), builders.a_lost_gpu(3))
    assert admits(whole(node)) == (Known(0), Known(7), Known(0.125))


def test_a_bad_id_that_is_held_cannot_be_picked():
    node = builders.with_gpus(
        with_pods(builders.a_pod("a"), listed=(builders.a_listed_pod("a", "GPU-3"),)), builders.a_lost_gpu(3)
    )
    resource = whole(node)
    assert admits(resource) == (Known(7), Known(7), Known(0.0))
    assert resource.verdict is Verdict.TRANSIENT
    assert judged(node).pods[0].state.value == "on_bad_device"


@pytest.mark.parametrize(
    ("mode", "strict", "verdict"),
    [(Mode.OBSERVE, 8, Verdict.OK), (Mode.OFF, 8, Verdict.OK), (Mode.ENFORCE, 0, Verdict.TRANSIENT)],
)
def test_a_rule_in_observe_is_reported_and_takes_nothing(mode, strict, verdict):
    node = builders.with_gpus(builders.a_node(), builders.a_gpu(0, processes=Known((builders.a_process(),))))
    resource = whole(node, policy=Policy(modes=codec.freeze({"E5": mode})))
    assert (resource.admit_strict, resource.verdict) == (Known(strict), verdict)


def test_a_process_that_cannot_be_attributed_accuses_nobody():
    process = builders.planes.Process(pid=1)
    node = builders.with_gpus(builders.a_node(), builders.a_gpu(0, processes=Known((process,))))
    report = judged(node)
    assert admits(report.resources[WHOLE]) == (Known(8), Known(8), Known(0.0))
    assert "processes: NotCollected (cgroup)" in report.unverified
    assert report.devices[0].holder.value == "unknown"


def test_blind_is_null_and_never_zero():
    resource = whole(builders.a_node(kubelet=Unknown("Unimplemented")))
    assert resource.verdict is Verdict.BLIND
    assert all(isinstance(number, Unknown) for number in (*admits(resource), resource.free, resource.advertised))


def test_blocked_and_blind_at_once_is_zero():
    unlisted = dataclasses.replace(builders.a_kubelet({WHOLE: EIGHT}).value, pods=Unknown("Unimplemented"))
    node = builders.a_node(nvml=Unknown("LIB_RM_VERSION_MISMATCH"), kubelet=Known(unlisted))
    resource = whole(node)
    assert resource.verdict is Verdict.BLOCKED
    assert admits(resource) == (Known(0), Known(0), Known(0.0))
    assert (resource.advertised, resource.present) == (Known(8), Unknown("LIB_RM_VERSION_MISMATCH"))


def test_closed_for_maintenance_is_transient_and_zero():
    resource = whole(builders.a_node(nvml=Unknown("MAINTENANCE")))
    assert resource.verdict is Verdict.TRANSIENT
    assert resource.deadline == builders.after(1800)
    assert admits(resource) == (Known(0), Known(0), Known(0.0))
