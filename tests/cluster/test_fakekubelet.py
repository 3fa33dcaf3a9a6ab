"""What a fake kubelet decides, without an API server."""

import hypothesis
import pytest
from hypothesis import strategies
from lightkube.resources import core_v1

from hack.cluster import fakekubelet

RESOURCE = "nvidia.com/gpu"
NOW = "2026-01-02T03:04:05Z"


def a_pod(uid, *, wanted=1, policy="Never", **annotations):
    container = {"name": "main", "image": "none", "resources": {"limits": {RESOURCE: str(wanted)}}}
    metadata = {"uid": uid, "name": uid, "namespace": "n", "annotations": annotations}
    spec = {"nodeName": "a", "restartPolicy": policy, "containers": [container]}
    return fakekubelet.bound(core_v1.Pod.from_dict({"metadata": metadata, "spec": spec}), RESOURCE)


def test_a_pod_gets_the_first_free_devices():
    machine = fakekubelet.a_machine("a", 4)
    machine, rejection = fakekubelet.admit(machine, a_pod("one", wanted=2), RESOURCE)
    assert rejection is None
    assert machine.held == {"one": machine.devices[:2]}
    assert machine.free == machine.devices[2:]


def test_a_pod_that_asks_for_more_than_is_free_is_rejected_in_the_kubelets_words():
    machine, _ = fakekubelet.admit(fakekubelet.a_machine("a", 4), a_pod("one", wanted=3), RESOURCE)
    after, rejection = fakekubelet.admit(machine, a_pod("two", wanted=2), RESOURCE)
    assert after == machine
    assert fakekubelet.rejected(rejection) == {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
        "nvidia.com/gpu. Requested: 2, Available: 1, which is unexpected",
    }


def test_a_lost_device_is_not_given_out_and_its_holder_keeps_it():
    machine, _ = fakekubelet.admit(fakekubelet.a_machine("a", 2), a_pod("one"), RESOURCE)
    machine = fakekubelet.lose(machine, 1)
    assert machine.held == {"one": machine.devices[:1]}
    assert machine.free == machine.devices[1:]
    status = fakekubelet.node_status(machine, RESOURCE, NOW)
    assert (status["capacity"][RESOURCE], status["allocatable"][RESOURCE]) == ("2", "1")


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("Unknown", False), ("False", False)])
def test_whether_the_api_server_has_a_node_as_ready(status, expected):
    conditions = [{"type": "Ready", "status": status}, {"type": "DiskPressure", "status": "False"}]
    assert fakekubelet.is_ready(core_v1.Node.from_dict({"status": {"conditions": conditions}})) is expected
    assert not fakekubelet.is_ready(core_v1.Node.from_dict({}))


def test_how_long_a_pod_runs():
    assert a_pod("job").run_seconds == 0
    assert a_pod("server", policy="Always").run_seconds is None
    assert a_pod("slow", **{fakekubelet.RUN_SECONDS: "1.5"}).run_seconds == 1.5


def test_a_pod_whose_images_do_not_come_waits():
    assert not a_pod("one").is_unpullable
    pod = a_pod("two", **{fakekubelet.UNPULLABLE: "true"})
    assert pod.is_unpullable
    status = fakekubelet.unpulled(pod, NOW)
    (container,) = status["containerStatuses"]
    assert (status["phase"], container["state"]["waiting"]["reason"]) == ("Pending", "ImagePullBackOff")


def test_a_running_pod_shows_its_devices():
    machine, _ = fakekubelet.admit(fakekubelet.a_machine("a", 1), a_pod("one"), RESOURCE)
    container = fakekubelet.running(machine, a_pod("one"), RESOURCE, NOW)["containerStatuses"][0]
    assert container["allocatedResourcesStatus"] == [
        {"name": RESOURCE, "resources": [{"resourceID": machine.devices[0], "health": "Healthy"}]}
    ]


@hypothesis.given(
    steps=strategies.lists(
        strategies.one_of(
            strategies.tuples(strategies.just("admit"), strategies.integers(0, 9), strategies.integers(0, 5)),
            strategies.tuples(strategies.just("release"), strategies.integers(0, 9), strategies.just(0)),
            strategies.tuples(strategies.just("lose"), strategies.just(0), strategies.integers(0, 4)),
        )
    )
)
def test_a_device_has_one_holder_at_most_and_a_pod_all_or_nothing(steps):
    machine, wanted = fakekubelet.a_machine("a", 4), {}
    for step, uid, number in steps:
        if step == "lose":
            machine = fakekubelet.lose(machine, number)
        elif step == "release":
            machine = fakekubelet.release(machine, str(uid))
        else:
            before = machine
            machine, rejection = fakekubelet.admit(machine, a_pod(str(uid), wanted=number), RESOURCE)
            if rejection is None and str(uid) not in before.held:
                wanted[str(uid)] = number
                given = machine.held.get(str(uid), ())
                assert len(given) == number
                assert set(given) <= set(before.free)
    held = [device for devices in machine.held.values() for device in devices]
    assert len(held) == len(set(held))
    assert all(len(devices) == wanted[uid] for uid, devices in machine.held.items())
