"""What a resource name promises, and which unit keeps the promise."""

import pytest

from agent.core import assemble, shape
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known
from tests import builders

GPUS = (builders.a_gpu(0), builders.a_mig_gpu(1, ("1g.10gb", "1g.10gb+me", "7g.79gb")))
NODE = builders.a_node(0, nvml=Known(builders.planes.Nvml(devices=GPUS)))
UNITS = {unit.uuid: unit for unit in assemble.assemble(NODE, History(), Policy(), api_server=True).units}


@pytest.mark.parametrize(
    ("name", "uuid", "fits"),
    [
        ("nvidia.com/gpu", "GPU-0", True),
        ("nvidia.com/gpu", "GPU-1", False),  # in MIG mode: a pod cannot use it whole
        ("nvidia.com/gpu", "MIG-1-0", True),  # strategy single
        ("nvidia.com/gpu.shared", "GPU-0", True),
        ("nvidia.com/mig-1g.10gb", "MIG-1-0", True),
        ("nvidia.com/mig-1g.10gb.shared", "MIG-1-0", True),
        ("nvidia.com/mig-1g.10gb.me", "MIG-1-1", True),
        ("nvidia.com/mig-1g.10gb", "MIG-1-1", False),  # other attributes
        ("nvidia.com/mig-7g.80gb", "MIG-1-2", True),  # rounded otherwise (C9)
        ("nvidia.com/mig-2g.10gb", "MIG-1-0", False),
        ("nvidia.com/mig-1g.10gb", "GPU-0", False),
    ],
)
def test_a_unit_fits_a_name(name, uuid, fits):
    assert shape.fits(name, UNITS[uuid]) is fits


@pytest.mark.parametrize(
    ("name", "uuid", "strategy", "carries"),
    [
        ("nvidia.com/gpu", "GPU-0", "mixed", True),
        ("nvidia.com/gpu", "MIG-1-0", "single", True),
        ("nvidia.com/gpu", "MIG-1-0", "mixed", False),
        ("nvidia.com/mig-1g.10gb", "MIG-1-0", "mixed", True),
        ("nvidia.com/mig-1g.10gb", "GPU-0", "mixed", False),
        ("nvidia.com/gpu", "GPU-1", "mixed", False),
    ],
)
def test_the_plugin_would_offer_a_unit_under_a_name(name, uuid, strategy, carries):
    assert shape.would_carry(name, UNITS[uuid], strategy) is carries
