"""What a MIG resource's devices are: the driver's numbers above its name."""

import doctest

import pytest

from admitter.core import shapes
from admitter.model.supply import MigShape
from muster.model import report
from muster.model.reading import Known
from tests.admitter.clusters import some_facts

GIB = 2**30
CUTS = {
    "MIG-1": report.MigShape(profile="1g.22gb", compute_slices=Known(1), memory_bytes=Known(20 * GIB)),
    "MIG-2": report.MigShape(profile="2g.45gb", compute_slices=Known(2), memory_bytes=Known(44 * GIB)),
    "MIG-3": report.MigShape(profile="2g.45gb", compute_slices=Known(2)),
}


def test_examples():
    results = doctest.testmod(shapes)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize(
    ("resource", "product", "expected"),
    [
        ("nvidia.com/mig-1g.24gb", "", MigShape(compute_slices=1, memory_bytes=20 * GIB)),
        ("nvidia.com/mig-2g.40gb", "", MigShape(compute_slices=2, memory_bytes=44 * GIB)),
        ("nvidia.com/mig-3g.40gb", "", MigShape(compute_slices=3, memory_bytes=int(40 * 0.89e9))),
        ("nvidia.com/gpu", "NVIDIA-H200-MIG-1g.24gb", MigShape(compute_slices=1, memory_bytes=20 * GIB)),
        ("nvidia.com/gpu", "NVIDIA-H200", None),
    ],
)
def test_at_best_a_resource_has_what_the_nodes_instances_of_its_slices_have(resource, product, expected):
    """What a node could give, were it idle, must not fall short of what it gives: a gang that fits would be told never."""
    facts = some_facts(**{"nvidia.com/gpu.product": product})
    assert shapes.at_best(resource, facts, CUTS) == expected
