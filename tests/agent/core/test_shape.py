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


def an_instance(profile, **facts):
    return builders.planes.MigInstance(uuid="MIG-0", gi=1, ci=0, profile=profile, **facts)


SLICES = {"gpu_slices": Known(3), "compute_slices": Known(3)}


@pytest.mark.parametrize(
    ("profile", "instance", "fits"),
    [
        pytest.param("3g.20gb", an_instance("3g.21gb", **SLICES), True, id="the gigabytes are rounded otherwise (C9)"),
        pytest.param("3g.20gb", an_instance("3g.22gb", **SLICES), False, id="two gigabytes apart are another profile"),
        pytest.param("3g.20gb", an_instance("4g.20gb", **SLICES), True, id="the driver's slices beat its spelling"),
        pytest.param("4g.20gb", an_instance("4g.20gb", **SLICES), False, id="and the other way round"),
        pytest.param(
            "3g.20gb", an_instance("custom", **SLICES, memory_bytes=Known(20 << 30)), True, id="a name of no known form"
        ),
        pytest.param("3g.20gb", an_instance("custom", **SLICES), False, id="no known form and no memory"),
        pytest.param("custom", an_instance("custom", **SLICES), True, id="no known form on both sides, the same text"),
        pytest.param(
            "3g.20gb", an_instance("3g.20gb", **SLICES, attributes=("me",)), False, id="an engine that the name lacks"
        ),
        pytest.param(
            "3g.20gb.me", an_instance("3g.20gb", **SLICES, attributes=("+me",)), True, id="an engine told as attribute"
        ),
        pytest.param(
            "1c.3g.20gb",
            an_instance("3g.20gb", gpu_slices=Known(3), compute_slices=Known(1)),
            True,
            id="a compute instance of a part of the GPU instance",
        ),
    ],
)
def test_an_instance_is_compared_by_slices_memory_and_attributes(profile, instance, fits):
    assert shape.is_of_profile(profile, instance) is fits


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
