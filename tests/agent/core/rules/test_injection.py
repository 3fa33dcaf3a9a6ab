"""CDI: a container that waits accuses the node only if a spec was read and lacks its device (faults.md D6)."""

import pytest

from agent.model import planes
from muster.model import kube
from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE

UUIDS = tuple(f"GPU-{number}" for number in range(8))
CDI = "unresolvable CDI devices"
EMPTY = (planes.CdiSpec(kind="nvidia.com/gpu", written_at=builders.LONG_AGO, devices=()),)
FULL = (planes.CdiSpec(kind="nvidia.com/gpu", written_at=builders.LONG_AGO, devices=UUIDS),)
OF_OTHERS = (planes.CdiSpec(kind="example.com/nic", written_at=builders.LONG_AGO, devices=("0",)),)


def row(*specs, reason="CreateContainerError", message=""):
    """Return what is said of a node whose pod holds GPU 0 and has waited for its container for 100 s."""
    main = kube.Container(
        name="main", state=kube.ContainerState.WAITING, since=builders.after(-100), reason=reason, message=message
    )
    observation = builders.a_node(
        kubelet=builders.a_kubelet({WHOLE: UUIDS}, (builders.a_listed_pod("a", "GPU-0"),)),
        pods=Known((builders.a_pod("a", phase=kube.PodPhase.PENDING, containers=(main,)),)),
        cdi=Known(specs),
    )
    return builders.row_of(builders.reports_of(observation, (0,))[-1].resources[WHOLE])


FREE = ("OK", 7, 7, 0.0)
BLOCKED = ("BLOCKED", 0, 0, 0.0)


@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError"])
def test_a_spec_that_lacks_the_held_device_blocks(reason):
    assert row(*EMPTY, reason=reason) == BLOCKED
    assert row(*FULL, reason=reason) == FREE


@pytest.mark.parametrize("specs", [(), OF_OTHERS], ids=["no spec", "another vendor's"])
@pytest.mark.parametrize(
    "reason", ["CreateContainerError", "RunContainerError", "StartError", "CreateContainerConfigError"]
)
def test_a_node_without_cdi_is_not_blocked_by_a_pod_s_own_fault(specs, reason):
    assert row(*specs, reason=reason, message='exec: "trian.py": executable file not found in $PATH') == FREE


@pytest.mark.parametrize("reason", ["StartError", "CreateContainerConfigError"])
def test_a_missing_secret_or_a_wrong_command_is_the_pod_s_own_fault_beside_a_stale_spec_too(reason):
    assert row(*EMPTY, reason=reason) == FREE


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"CDI device injection failed: {CDI} nvidia.com/gpu=GPU-0", BLOCKED),
        (f"failed to inject CDI devices: {CDI} nvidia.com/pgpu=9, runtime.nvidia.com/gpu=0: unknown", BLOCKED),
        (f"{CDI} nvidia.com/gpu=GPU-1", FREE),
        (f"{CDI} example.com/nic=GPU-0", FREE),
        (f"{CDI}", FREE),
        ('exec: "nvidia.com/gpu=GPU-0": executable file not found in $PATH', FREE),
    ],
    ids=["by UUID", "by index", "of another GPU", "of another vendor", "of nothing", "no complaint of CDI"],
)
def test_without_any_spec_only_the_runtime_s_complaint_about_that_device_blocks(message, expected):
    assert row(message=message) == expected
