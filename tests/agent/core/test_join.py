"""Ids of every form join to the unit that the driver shows, or to nothing."""

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core import assemble, join
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known
from tests import builders


def units_of(*gpus):
    node = builders.a_node(0, nvml=Known(builders.planes.Nvml(devices=gpus)))
    return assemble.assemble(node, History(), Policy(), api_server=True).units


UNITS = join.Units(units_of(builders.a_gpu(0), builders.a_mig_gpu(7, ("1g.10gb", "2g.20gb"))), passthrough=("42",))


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        pytest.param("GPU-0", "GPU-0", id="a UUID"),
        pytest.param("gpu-0", "GPU-0", id="a UUID in another case"),
        pytest.param("GPU-0::11", "GPU-0", id="a replica of a shared GPU (S17)"),
        pytest.param("MIG-7-1", "MIG-7-1", id="a MIG UUID"),
        pytest.param("MIG-7-1::0", "MIG-7-1", id="a replica of an instance"),
        pytest.param("7-1", "MIG-7-1", id="a MIG UUID without its prefix (H5)"),
        pytest.param("MIG-GPU-7/2/0", "MIG-7-1", id="the old composite form (H5)"),
        pytest.param("GPU-7/1/0", "MIG-7-0", id="the composite form without prefix (H5)"),
        pytest.param("GPU-7-2", "MIG-7-1", id="a pair of UUID and GPU instance (H5)"),
        pytest.param("GPU-7-2::4", "MIG-7-1", id="a replica of such a pair"),
        pytest.param("nvidia0", "GPU-0", id="GKE's name for a GPU (S17)"),
        pytest.param("nvidia7/gi2", "MIG-7-1", id="GKE's name for an instance (S17)"),
    ],
)
def test_every_form_joins(text, uuid):
    device = join.join(text, UNITS)
    assert (device.id, device.uuid, device.unit.uuid) == (text, uuid, uuid)


@pytest.mark.parametrize(
    "text",
    [
        "GPU-9",
        "MIG-7-9",
        "MIG-GPU-7/9/0",
        "MIG-GPU-9/1/0",
        "nvidia1",
        "nvidia7/gi9",
        "GPU-7-9",
        "9-1",
        "0",
        "",
        "::",
        "GPU-0::x",
    ],
)
def test_an_id_that_joins_to_nothing_is_kept_and_says_so(text):
    device = join.join(text, UNITS)
    assert (device.id, device.unit, device.is_lacking) == (text, None, True)


@pytest.mark.parametrize("text", ["nvidia3/gi1", "GPU-3-1", "3-1"])
def test_a_name_that_two_compute_instances_answer_to_cannot_join(text):
    halves = tuple(builders.planes.MigInstance(uuid=f"MIG-3-{ci}", gi=1, ci=ci, profile="1c.2g.20gb") for ci in (0, 1))
    gpu = builders.a_gpu(3, mig=Known(builders.planes.Mig(current=True, pending=True, instances=halves)))
    units = join.Units(units_of(gpu))
    assert join.join("GPU-3/1/1", units).uuid == "MIG-3-1"
    assert join.join(text, units).unit is None or text == "3-1"  # "3-1" is MIG-3-1 without its prefix


def test_an_iommu_group_bound_to_vfio_lacks_nothing():
    device = join.join("42", UNITS)
    assert (device.unit, device.is_passthrough, device.is_lacking) == (None, True, False)


@pytest.mark.parametrize(
    ("text", "parent"), [("MIG-GPU-7/9/0", "GPU-7"), ("MIG-old", "GPU-3"), ("MIG-other", ""), ("GPU-1", "")]
)
def test_the_parent_of_a_vanished_instance_is_its_form_s_or_the_last_sample_s(text, parent):
    assert join.parent_of(join.join(text, UNITS), {"MIG-old": "GPU-3"}) == parent


@hypothesis.given(st.text(max_size=30))
def test_any_text_gives_an_answer(text):
    device = join.join(text, UNITS)
    assert device.id == text
    assert device.unit is None or device.unit.uuid == device.uuid
