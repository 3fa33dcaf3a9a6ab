"""Two halves of a plugin, two passes over a GPU."""

import pytest

from agent.model import planes
from agent.sources import merge
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown

PROCESS = kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(True), socket_present=Known(True))
POD = kube.Plugin(resource_prefix="nvidia.com", pod="ns/p", pod_phase="Running", restarts=Known(1), message="m")


@pytest.mark.parametrize(
    ("process_half", "pod_half", "expected"),
    [
        (Known((PROCESS,)), Unknown("Gone"), Known((PROCESS,))),
        (Unknown("ReaderGone"), Known((POD,)), Known((POD,))),
        (Unknown("ReaderGone"), NOT_COLLECTED, Unknown("ReaderGone")),
        (Known(()), Known((POD,)), Known((POD,))),
    ],
    ids=["process alone", "pod alone", "neither", "pod without process"],
)
def test_one_half_alone_counts(process_half, pod_half, expected):
    """What one side knows is kept when the other is silent."""
    assert merge.plugins(process_half, pod_half) == expected


def test_halves_join_by_prefix():
    """Process facts and pod facts of one plugin become one value."""
    other = kube.Plugin(resource_prefix="example.com", pod="ns/q")
    match merge.plugins(Known((PROCESS,)), Known((POD, other))):
        case Known((first, second)):
            assert first == other
            assert (second.process_alive, second.restarts, second.pod) == (Known(True), Known(1), "ns/p")
        case wrong:
            pytest.fail(str(wrong))


def test_a_failed_field_is_not_papered_over():
    """Only what was not asked for comes from the last pass; a failure keeps its reason."""
    before = planes.Gpu(uuid="GPU-a", product=Known("H100"), processes=Known(()), mig=Unknown("NOT_SUPPORTED"))
    fresh = planes.Gpu(uuid="GPU-a", processes=Unknown("TIMEOUT"))
    carried = merge.carry(planes.Nvml(devices=(fresh,)), {"GPU-a": before}).devices[0]
    assert carried == planes.Gpu(uuid="GPU-a", product=Known("H100"), processes=Unknown("TIMEOUT"))


def test_another_device_at_the_same_place_takes_nothing_over():
    """Identity is the UUID: a swapped GPU starts without memory (D7)."""
    before = planes.Gpu(uuid="GPU-a", index=Known(0), product=Known("H100"))
    fresh = planes.Gpu(uuid="GPU-b", index=Known(0))
    assert merge.carry(planes.Nvml(devices=(fresh,)), {"GPU-a": before}).devices == (fresh,)
