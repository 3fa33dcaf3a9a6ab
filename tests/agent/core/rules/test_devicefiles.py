"""Device files that are missing keep containers from starting."""

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.planes import DeviceNode
from agent.model.policy import Policy
from muster.model.reading import Known
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE


def whole(*nodes):
    observation = builders.a_node(device_nodes=Known(nodes))
    return judge(History(), observation, Policy(), api_server=True)[1].resources[WHOLE]


@pytest.mark.parametrize("path", ["/dev/nvidiactl", "/dev/nvidia-uvm"])
def test_a_missing_control_file_blocks_every_start(path):
    resource = whole(DeviceNode(path=path, present=False))
    assert (resource.verdict, resource.admit_strict, resource.admit_lenient) == (Verdict.BLOCKED, Known(0), Known(0))


def test_a_gpu_s_own_file_makes_that_gpu_bad():
    resource = whole(DeviceNode(path="/dev/nvidia3", present=False, detail="major 195, the driver's is 510"))
    assert (resource.verdict, resource.admit_strict, resource.admit_lenient) == (Verdict.OVER, Known(0), Known(7))
    assert resource.findings[0].devices == ("GPU-3",)


def test_what_no_start_needs_says_nothing():
    files = (DeviceNode(path="/dev/nvidia-uvm-tools", present=False), DeviceNode(path="/dev/nvidiactl", present=True))
    resource = whole(*files)
    assert (resource.verdict, resource.admit_strict) == (Verdict.OK, Known(8))


def test_a_missing_control_file_is_said_of_the_node_where_nothing_is_promised():
    """A plugin that is down as well must not hide why it cannot come back."""
    observation = builders.a_node(
        device_nodes=Known((DeviceNode(path="/dev/nvidia-uvm", present=False),)), kubelet=builders.a_kubelet({})
    )
    report = judge(History(), observation, Policy(), api_server=True)[1]
    assert [finding.cause for finding in report.node_findings] == ["DeviceFilesMissing"]
    assert report.verdict is Verdict.BLOCKED
