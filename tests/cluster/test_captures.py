"""What a real kubelet was recorded saying reads as a capture, and says what docs/cluster.md says it does."""

import pathlib

import pytest

from agent.sources import capturefile
from muster.model.reading import Known

RESOURCE = "nvidia.com/gpu"
RECORDED = pathlib.Path(__file__).parent / "captures" / "kubelet-1.37.jsonl"


@pytest.fixture(scope="module")
def lines():
    return {line.notes.split(";")[0]: line for line in capturefile.read_capture(RECORDED).observations}


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
