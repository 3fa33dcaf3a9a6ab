"""How far a fault of one GPU reaches: all that is offered of that GPU, and nothing of its neighbours (agents.md b2, e11).

Three shapes of the same two GPUs: whole, as replicas, cut into instances. GPU 0 is the faulty one.
"""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known
from muster.model.report import DeviceState
from tests import builders
from tests.builders import WHOLE, a_node

MIG = "nvidia.com/mig-1g.10gb"
CUT = ("1g.10gb",) * 3
ASKS = Known(planes.RecoveryAction.UNSUPPORTED)

SHAPES = {
    "whole": (WHOLE, ("GPU-0",), ("GPU-1",), ()),
    "replicas": (WHOLE, ("GPU-0::0", "GPU-0::1", "GPU-0::2"), ("GPU-1::0", "GPU-1::1", "GPU-1::2"), ()),
    "instances": (MIG, ("MIG-0-0", "MIG-0-1", "MIG-0-2"), ("MIG-1-0", "MIG-1-1", "MIG-1-2"), CUT),
    "replicas of instances": (
        MIG, ("MIG-0-0::0", "MIG-0-0::1", "MIG-0-1::0"), ("MIG-1-0::0", "MIG-1-0::1", "MIG-1-1::0"), CUT,
    ),
}  # fmt: skip


def an_xid(code, gi=None):
    return {"recovery_action": ASKS, "xids": Known((planes.Xid(code=code, at=builders.after(-60), gi=gi),))}


WIDE = {
    "lost": {"error": "GPU_IS_LOST"},
    "hangs": {"error": "TIMEOUT"},
    "wants a reset": {"recovery_action": Known(planes.RecoveryAction.RESET)},
    "row remap pending": {"remap": Known(planes.Remap(pending=Known(True)))},
    "row remap failed": {"remap": Known(planes.Remap(failed=Known(True)))},
    "retired page pending": {"retired_pages_pending": Known(True)},
    "SRAM threshold": {"ecc": Known(planes.Ecc(sram_threshold_exceeded=Known(True)))},
    "fabric not up": {"fabric": Known(planes.Fabric(state=planes.FabricState.NOT_STARTED))},
    "drained": {"drain": Known(True)},
    "confidential, not ready": {"confidential": Known(planes.Confidential(feature=Known(True), ready=Known(False)))},
    "a fatal Xid of the GPU": an_xid(79),
}
NOTES = {
    "slow": {"clocks_reasons": Known(("hw_slowdown",))},
    "without licence": {"licence": Known(planes.Licence(licensed=False))},
    "a degrading Xid": an_xid(109),
}


def node(shape, **changes):
    name, of_0, of_1, profiles = SHAPES[shape]
    gpus = tuple(builders.a_mig_gpu(number, profiles) if profiles else builders.a_gpu(number) for number in (0, 1))
    ids = (*of_0, *of_1)
    observation = a_node(
        nvml=Known(planes.Nvml(devices=gpus)),
        kubelet=builders.a_kubelet({name: ids}),
        node_object=builders.a_node_object({name: len(ids)}),
    )
    return observation, builders.with_gpus(observation, dataclasses.replace(gpus[0], **changes))


def after_it_was_fine(healthy, sick):
    """Return the report of the fault on a node that was seen healthy: whose instances a silent GPU had is known."""
    history, _ = judge(History(), healthy, Policy(), api_server=True)
    _, report = judge(history, dataclasses.replace(sick, taken_at=builders.after(10)), Policy(), api_server=True)
    return report


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fault", WIDE)
def test_a_fault_of_the_gpu_reaches_all_that_is_offered_of_it_and_no_other(shape, fault):
    name, of_0, of_1, _ = SHAPES[shape]
    report = after_it_was_fine(*node(shape, **WIDE[fault]))
    assert builders.numbers_of(report)[name][1:] == (0, len(of_1), len(of_0) / (len(of_0) + len(of_1)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fault", NOTES)
def test_a_degraded_gpu_degrades_all_that_is_offered_of_it_and_no_other(shape, fault):
    name, of_0, of_1, _ = SHAPES[shape]
    report = after_it_was_fine(*node(shape, **NOTES[fault]))
    assert builders.numbers_of(report)[name][1:] == (len(of_0) + len(of_1),) * 2 + (0.0,)
    states = {device.uuid: device.state for device in report.devices}
    assert {states[text.partition("::")[0]] for text in of_0} == {DeviceState.DEGRADED}
    assert {states[text.partition("::")[0]] for text in of_1} == {DeviceState.HEALTHY}


@pytest.mark.parametrize(
    ("shape", "bad"), [("whole", 1), ("replicas", 3), ("instances", 1), ("replicas of instances", 2)]
)
def test_a_fault_inside_an_instance_stays_there(shape, bad):
    """GPU instance 1 is MIG-0-0; on a GPU that is not cut there is nothing smaller than the GPU."""
    name, of_0, of_1, _ = SHAPES[shape]
    report = after_it_was_fine(*node(shape, **an_xid(48, gi=1)))
    count = len(of_0) + len(of_1)
    assert builders.numbers_of(report)[name][1:] == (0, count - bad, bad / count)
