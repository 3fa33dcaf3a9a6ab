"""A GPU that answers can still be sick: what the driver wants, pending repairs, Xids."""

import pytest

from agent.core.judge import judge
from agent.core.rules import devices
from agent.model import planes
from agent.model.history import History
from agent.model.planes import RecoveryAction
from agent.model.policy import Policy
from muster.model.reading import Known, Unknown
from muster.model.report import DeviceState
from tests import builders
from tests.builders import WHOLE


def judged(**facts):
    node = builders.with_gpus(builders.a_node(), builders.a_gpu(3, **facts))
    report = judge(History(), node, Policy(), api_server=True)[1]
    device = next(item for item in report.devices if item.uuid == "GPU-3")
    return report.resources[WHOLE], device


def xids(*codes, **changes):
    return Known(tuple(planes.Xid(code=code, at=builders.NOW, **changes) for code in codes))


SILENT = {"recovery_action": Unknown("NOT_SUPPORTED")}


@pytest.mark.parametrize(
    ("facts", "cause", "state"),
    [
        ({"recovery_action": Known(RecoveryAction.RESET)}, "IgnoredXidNeedsReset", "unhealthy"),
        ({"recovery_action": Known(RecoveryAction.DRAIN_P2P)}, "IgnoredXidNeedsReset", "unhealthy"),
        ({"remap": Known(planes.Remap(pending=Known(True)))}, "UncorrectableEccUnnoticed", "unhealthy"),
        ({"retired_pages_pending": Known(True)}, "UncorrectableEccUnnoticed", "unhealthy"),
        ({"drain": Known(True)}, "GpuDrained", "unhealthy"),
        ({"remap": Known(planes.Remap(failed=Known(True)))}, "RowRemapFailed", "unhealthy"),
        ({"ecc": Known(planes.Ecc(sram_threshold_exceeded=Known(True)))}, "SramEccThreshold", "unhealthy"),
        ({"xids": xids(79), **SILENT}, "FatalXid", "unhealthy"),
        ({"xids": xids(79), "recovery_action": Known(RecoveryAction.UNSUPPORTED)}, "FatalXid", "unhealthy"),
    ],
)
def test_a_sick_gpu_is_not_usable_from_the_first_sample(facts, cause, state):
    resource, device = judged(**facts)
    assert [finding.cause for finding in resource.findings] == [cause]
    assert (resource.admit_strict, resource.admit_lenient, resource.usable) == (Known(0), Known(7), Known(7))
    assert device.state.value == state


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"recovery_action": Known(RecoveryAction.RECOVER_IMEX_DOMAIN)}, "healthy"),  # about other nodes
        ({"ecc": Known(planes.Ecc(volatile_uncorrected=Known(3)))}, "healthy"),  # the row was remapped (B6)
        ({"remap": Known(planes.Remap(uncorrectable=Known(3), pending=Known(False)))}, "healthy"),
        ({"xids": xids(13, 31, 43, 45, 94), **SILENT}, "healthy"),
        ({"xids": xids(79)}, "healthy"),  # the driver says that nothing is left to do
        ({"xids": xids(109), **SILENT}, "degraded"),
        ({"xids": xids(4711), **SILENT}, "degraded"),  # unlisted: seen, never silent
    ],
)
def test_what_is_no_fault_of_the_device_takes_nothing(facts, state):
    resource, device = judged(**facts)
    assert (resource.verdict.value, resource.admit_strict) == ("OK", Known(8))
    assert device.state.value == state


def test_an_xid_of_one_instance_leaves_its_siblings():
    name = "nvidia.com/mig-1g.10gb"
    gpu = builders.a_mig_gpu(0, ("1g.10gb", "1g.10gb"), xids=xids(95, gi=2), **SILENT)
    node = builders.a_node(
        0,
        nvml=Known(planes.Nvml(devices=(gpu,))),
        kubelet=builders.a_kubelet({name: ("MIG-0-0", "MIG-0-1")}),
        node_object=builders.a_node_object({name: 2}),
    )
    resource = judge(History(), node, Policy(), api_server=True)[1].resources[name]
    assert [finding.devices for finding in resource.findings] == [("MIG-0-1",)]
    assert (resource.admit_strict, resource.admit_lenient) == (Known(0), Known(1))


@pytest.mark.parametrize("error", ["", "TIMEOUT", "UNKNOWN", "NEVER_HEARD_OF"])
def test_no_error_text_is_ever_healthy(error):
    assert devices.of_error(error).state is not DeviceState.HEALTHY
