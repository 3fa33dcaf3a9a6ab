"""What a real kubelet was recorded saying reads as a capture, and says what docs/cluster.md says it does."""

import pathlib

import pytest

from agent.sources import capturefile
from muster.model.reading import Known

RESOURCE = "nvidia.com/gpu"
RECORDED = pathlib.Path(__file__).parent / "captures" / "kubelet-1.37.jsonl"


def by_state(path):
    return {line.notes.split(";")[0]: line for line in capturefile.read_capture(path).observations}


@pytest.fixture(scope="module")
def lines():
    return by_state(RECORDED)


@pytest.mark.parametrize(
    ("state", "allocatable", "listed", "numbers"),
    [
        ("two pods running", 8, 3, (8, 8)),
        ("one pod finished, the checkpoint not written since (S8, S11)", 8, 2, (8, 8)),
        ("a held device unhealthy", 7, 2, (8, 7)),
        ("plugin just killed, node.status not passed yet", 0, 2, (8, 8)),
        ("plugin down in grace (A1)", 0, 2, (8, 0)),
        ("plugin down after grace (A2)", 0, 2, (0, 0)),
        ("kubelet restarted with the plugin, first sight", 0, 0, (8, 8)),
    ],
)
def test_a_state_reads_as_recorded(lines, state, allocatable, listed, numbers):
    match lines[state]:
        case capturefile.planes.Observation(kubelet=Known(kubelet), node_object=Known(node)):
            assert sum(len(device.ids) for device in kubelet.allocatable.value) == allocatable
            held = [device for pod in kubelet.pods.value for box in pod.containers for device in box.devices]
            assert sum(len(device.ids) for device in held) == listed
            assert (node.capacity[RESOURCE], node.allocatable[RESOURCE]) == numbers
        case other:
            pytest.fail(f"not readable: {other}")


STARTS = sorted(RECORDED.parent.glob("kubelet-*-starts.jsonl"))


@pytest.fixture(params=STARTS, ids=lambda path: path.stem)
def starts(request):
    return [line.kubelet.value for line in capturefile.read_capture(request.param).observations]


def listed(kubelet, pod):
    """Return how many devices List names, by container."""
    found = [each for each in kubelet.pods.value if each.name == pod]
    return {box.name: sum(len(device.ids) for device in box.devices) for each in found for box in each.containers}


def test_an_ordinary_init_container_is_seen_in_the_checkpoint_only(starts):
    assert listed(starts[0], "starting") == {"main": 1}
    assert {entry.container: len(entry.ids) for entry in starts[0].checkpoint.value.pods} == {"first": 2, "main": 1}


def test_a_sidecar_is_listed_with_its_devices(starts):
    assert listed(starts[1], "accompanied") == {"first": 2, "main": 1}


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.stem)
def test_a_kubelet_that_starts_without_its_plugin_says_nothing_between_all_and_zero(path):
    last = capturefile.read_capture(path).observations[-1]
    assert "node.status since then: 0/0;" in last.notes


@pytest.fixture(scope="module")
def kills():
    return by_state(RECORDED.with_name("kubelet-1.37-kills.jsonl"))


def devices_of(kubelet, pod):
    found = [each for each in kubelet.pods.value if each.name == pod]
    return {one for each in found for box in each.containers for device in box.devices for one in device.ids}


def test_a_dead_kubelet_answers_nothing_and_leaves_everything_advertised(kills):
    line = kills["kubelet killed"]
    kubelet = line.kubelet.value
    assert [each.reason for each in (kubelet.allocatable, kubelet.pods)] == ["ConnectionRefused"] * 2
    assert (line.node_object.value.allocatable[RESOURCE], line.node_object.value.ready) == (8, Known(True))
    assert sum(len(entry.ids) for entry in kubelet.checkpoint.value.pods) == 2


def test_for_a_moment_after_its_start_a_kubelet_knows_of_no_pod(kills):
    kubelet = kills["kubelet killed and started, first sight"].kubelet.value
    assert (kubelet.allocatable.value, kubelet.pods.value) == ((), ())


def test_a_dead_containerd_is_seen_in_the_ready_condition_alone(kills):
    line = kills["containerd killed"]
    assert len(line.kubelet.value.allocatable.value) == 8
    assert len(devices_of(line.kubelet.value, "holder")) == 2
    assert (line.node_object.value.allocatable[RESOURCE], line.node_object.value.ready) == (8, Known(False))


def test_no_crash_starts_a_container_again_or_gives_a_device_twice(kills):
    starts = {pod.containers[0].since for line in kills.values() for pod in line.pods.value if pod.name == "holder"}
    assert len(starts) == 1
    last = [*kills.values()][-1].kubelet.value
    assert len(devices_of(last, "holder") | devices_of(last, "next")) == 8


@pytest.fixture(scope="module")
def zero():
    return by_state(RECORDED.with_name("kubelet-1.37-zero.jsonl"))


@pytest.mark.parametrize(
    ("state", "capacity", "pod", "ended"),
    [
        ("key removed within the grace (S2)", {RESOURCE: 8}, "", ""),
        ("key at zero, a pod bound directly (S2)", {RESOURCE: 0}, "refused", "OutOfnvidia.com/gpu"),
        ("key removed after the grace (S2)", {}, "", ""),
        ("no key, a pod bound directly (S2)", {}, "deviceless", ""),
        ("kubelet restarted without plugin and key (S2)", {}, "deviceless", ""),
        ("no key, a device held, a pod bound directly (S2)", {}, "unserved", "UnexpectedAdmissionError"),
    ],
)
def test_a_zero_key_rejects_and_a_removed_one_does_not(zero, state, capacity, pod, ended):
    line = zero[state]
    assert dict(line.node_object.value.capacity) == capacity
    assert {each.name: each.reason for each in line.pods.value}.get(pod, "") == ended


def test_a_pod_that_started_without_its_device_is_listed_without_one_for_as_long_as_it_runs(zero):
    line = zero["registered again, a pod without its device still runs (S2)"]
    assert len(line.kubelet.value.allocatable.value) == 8
    assert (listed(line.kubelet.value, "deviceless"), listed(line.kubelet.value, "waiting")) == (
        {"main": 0},
        {"main": 1},
    )
    assert next(pod.phase for pod in line.pods.value if pod.name == "deviceless") == "Running"
