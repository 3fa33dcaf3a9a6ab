"""Two halves of a plugin."""

import pytest

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


def test_a_plugin_with_neither_process_nor_pod_is_not_on_the_node():
    """The reader always answers for the plugin it looks for; alone it cannot tell a dead one from none (faults.md A12)."""
    dead = kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(False), socket_present=Known(False))
    assert merge.plugins(Known((dead,)), Known(())) == Known(())
    assert merge.plugins(Known((dead,)), NOT_COLLECTED) == Known((dead,))
    (joined,) = merge.plugins(Known((dead,)), Known((POD,))).value
    assert (joined.process_alive, joined.pod) == (Known(False), "ns/p")
    (living,) = merge.plugins(Known((PROCESS,)), Known(())).value
    assert living == PROCESS


def test_one_of_each_is_one_plugin():
    """The process table does not always tell the prefix; a node's only plugin is its only plugin."""
    nameless = kube.Plugin(process_alive=Known(True))
    match merge.plugins(Known((nameless,)), Known((POD,))):
        case Known((only,)):
            assert (only.resource_prefix, only.pod, only.process_alive) == ("nvidia.com", "ns/p", Known(True))
        case wrong:
            pytest.fail(str(wrong))
