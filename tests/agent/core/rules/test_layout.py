"""A layout as a MIG manager's file has it: entries for several products stand side by side (faults.md C8)."""

import dataclasses

import pytest

from agent.core.rules import layout
from agent.model import planes
from muster.model import kube
from muster.model.reading import Known, Unknown


def a_gpu(*profiles, index=0, current=True):
    instances = tuple(
        planes.MigInstance(uuid=f"MIG-{number}", gi=number, ci=0, profile=profile)
        for number, profile in enumerate(profiles)
    )
    mig = planes.Mig(current=current, pending=current, instances=instances)
    return planes.Gpu(uuid="GPU-a", index=Known(index), mig=Known(mig))


def desired(*entries):
    return kube.DesiredMig(
        name="x", layout=tuple(kube.MigLayout(gpus=gpus, profiles=profiles) for gpus, profiles in entries)
    )


BALANCED = desired(("all", {"1g.10gb": 2, "3g.40gb": 1}), ("all", {"1g.5gb": 2, "3g.20gb": 1}))
OFF = desired(("all", {}))
SPLIT = desired(("0,1", {"3g.20gb": 2}), ("2,3", {}))


@pytest.mark.parametrize(
    ("gpu", "wanted", "expected"),
    [
        (a_gpu("1g.10gb", "1g.10gb", "3g.40gb"), BALANCED, True),
        (a_gpu("1g.5gb", "1g.5gb", "3g.20gb"), BALANCED, True),
        (a_gpu("1g.5gb", "1g.5gb", "3g.40gb"), BALANCED, False),
        (a_gpu(), BALANCED, False),
        (a_gpu(current=False), OFF, True),
        (a_gpu("1g.5gb"), OFF, False),
        (a_gpu("3g.20gb", "3g.20gb"), SPLIT, True),
        (a_gpu("3g.20gb"), SPLIT, False),
        (a_gpu("3g.20gb", index=2), SPLIT, False),
        (a_gpu("3g.20gb", index=7), SPLIT, True),
        (dataclasses.replace(a_gpu(), mig=Unknown("NOT_SUPPORTED")), BALANCED, True),
    ],
    ids=[
        "one product", "another product", "a mixture of both", "empty", "off as asked", "not off", "this GPU's entry",
        "half of it", "another GPU's entry", "a GPU that nobody speaks of", "a GPU that cannot be cut",
    ],
)  # fmt: skip
def test_a_gpu_is_as_asked_if_one_of_the_entries_for_it_is_met(gpu, wanted, expected):
    assert layout._is_as_desired(gpu, wanted) is expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(BALANCED, True), (OFF, False), (SPLIT, True), (desired(), False), (desired(("1", {"x": 1})), False)],
)
def test_a_layout_asks_for_instances_only_if_every_entry_for_the_gpu_does(wanted, expected):
    assert layout.asks_for_instances(a_gpu(), wanted) is expected
