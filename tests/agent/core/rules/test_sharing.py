"""Whole GPUs and replicas of them under one name, while a plugin goes from one to the other (faults.md F1, F2)."""

import pytest

from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE


def row(offered, held):
    """Return what may be admitted of two GPUs, one pod holding an id that the plugin gave it earlier."""
    observation = builders.a_node(
        2,
        kubelet=builders.a_kubelet({WHOLE: offered}, (builders.a_listed_pod("a", held),)),
        node_object=builders.a_node_object({WHOLE: len(offered)}),
        pods=Known((builders.a_pod("a"),)),
    )
    report = builders.reports_of(observation, (0, 400))[-1].resources[WHOLE]
    return (*builders.row_of(report)[:3], [finding.cause for finding in report.findings])


REPLICAS = ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")


@pytest.mark.parametrize(
    ("offered", "held", "expected"),
    [
        (("GPU-0", "GPU-1"), "GPU-0::1", ("OVER", 0, 1, ["SharedRenameMismatch", "UnhealthyButHeld"])),
        (REPLICAS, "GPU-0", ("OVER", 0, 2, ["SharedRenameMismatch", "UnhealthyButHeld"])),
        (REPLICAS, "GPU-0::1", ("OK", 3, 3, [])),
        (("GPU-0", "GPU-1"), "GPU-0", ("OK", 1, 1, [])),
    ],
    ids=["a replica is held of a GPU that is whole now", "a GPU is held that is shared now", "replicas", "whole"],
)
def test_a_gpu_is_free_in_no_form_while_another_form_of_it_is_held(offered, held, expected):
    assert row(offered, held) == expected
