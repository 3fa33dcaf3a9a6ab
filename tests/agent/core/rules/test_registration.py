"""Which clock explains healthy GPUs that nobody advertises (faults.md A)."""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE, after

DEAD = builders.a_plugin(process_alive=Known(False), socket_present=Known(False))
OLD = builders.a_plugin(started_at=Known(after(-86400)))
DEAF = builders.a_plugin(started_at=Known(after(-86400)), socket_present=Known(False))
YOUNG = builders.a_plugin(started_at=Known(after(-30)))
WAITS = builders.a_plugin(message="no devices found, waiting indefinitely")
CONNECTED = builders.a_plugin(connected=Known(True))


def node(counts, plugins, *, kubelet_at=-7 * 86400, boot_at=-7 * 86400, advertised=()):
    """A node with eight healthy GPUs of which `advertised` are in GA."""
    return builders.a_node(
        boot=Known(planes.Boot(id="b", at=after(boot_at))),
        kubelet=builders.a_kubelet({WHOLE: advertised} if advertised else {}, started_at=Known(after(kubelet_at))),
        node_object=builders.a_node_object({} if counts is None else {WHOLE: counts}),
        plugins=Known(plugins),
    )


def judged(observation, *, api_server=True):
    return judge(History(), observation, Policy(), api_server=api_server)[1]


def told(observation):
    """Return cause, verdict and deadline, of the resource or of the node."""
    report = judged(observation)
    findings = report.resources[WHOLE].findings if WHOLE in report.resources else report.node_findings
    return findings[0].cause, report.verdict, findings[0].deadline


UNDER, TRANSIENT = Verdict.UNDER, Verdict.TRANSIENT
SIX = tuple(f"GPU-{number}" for number in range(6))


@pytest.mark.parametrize(
    ("observation", "answer"),
    [
        pytest.param(node((8, 0), (DEAD,)), ("PluginDownInGrace", TRANSIENT, after(60)), id="A1 N/0, plugin gone"),
        pytest.param(node((8, 0), (CONNECTED,)), ("PluginContainerLostGpu", TRANSIENT, after(360)), id="D3 N/0, connected"),
        pytest.param(node(0, (DEAD,)), ("PluginDownAfterGrace", UNDER, None), id="A2 0/0, plugin gone"),
        pytest.param(node(0, (OLD,), kubelet_at=-3600), ("PluginRunningYetUnregistered", UNDER, None), id="A3"),
        pytest.param(node(0, (DEAF,), kubelet_at=-3600), ("KubeletSocketRecreatedUnnoticed", UNDER, None), id="A4"),
        pytest.param(node(0, (DEAF,), kubelet_at=-90), ("KubeletSocketRecreatedUnnoticed", UNDER, None), id="A4 early"),
        pytest.param(node(0, (OLD,), kubelet_at=-40), ("KubeletRestartZeroWindow", TRANSIENT, after(260)), id="A5"),
        pytest.param(node(0, (DEAD,), kubelet_at=-40), ("PluginDownAfterGrace", UNDER, None), id="no A5: plugin dead"),
        pytest.param(node((8, 8), (OLD,), kubelet_at=-20), ("KubeletRestartAllocFlash", TRANSIENT, after(40)), id="A6"),
        pytest.param(node(None, (builders.a_plugin(socket_dir="/other"),)), ("WrongKubeletRoot", UNDER, None), id="A9"),
        pytest.param(node(0, (WAITS,), kubelet_at=-3e5), ("NoDevicesWaitingForever", UNDER, None), id="A10"),
        pytest.param(node(None, (YOUNG,)), ("NoDevicesWaitingForever", TRANSIENT, after(90)), id="A10 young plugin"),
        pytest.param(node(6, (OLD,), advertised=SIX), ("LateGpusMissed", UNDER, None), id="A11"),
        pytest.param(node((8, 6), (OLD,), advertised=SIX), ("XidStickyUnhealthy", UNDER, None), id="B1"),
        pytest.param(node(0, ()), ("PluginRepelledByTaint", TRANSIENT, after(60)), id="A12"),
        pytest.param(node(None, (YOUNG,), boot_at=-100), ("NodeReadyBeforeGpu", TRANSIENT, after(800)), id="A13"),
    ],
)  # fmt: skip
def test_the_clocks_tell_the_cause(observation, answer):
    assert told(observation) == answer


def test_a_gpu_that_is_sick_is_not_missed():
    sick = builders.a_gpu(7, retired_pages_pending=Known(True))
    observation = builders.with_gpus(node((8, 7), (OLD,), advertised=tuple(f"GPU-{n}" for n in range(7))), sick)
    report = judged(observation)
    assert (report.verdict, report.resources[WHOLE].admit_strict) == (Verdict.OK, Known(7))


def test_nothing_is_said_of_hardware_that_nobody_could_look_at():
    blind = dataclasses.replace(node((8, 0), (DEAD,)), nvml=Unknown("NotCollected"))
    causes = {finding.cause for finding in judged(blind).resources[WHOLE].findings}
    assert causes == {"NvmlUnreadable"}


def test_without_a_node_object_the_earlier_clock_decides():
    observation = dataclasses.replace(
        node(0, (DEAD,)), node_object=Unknown("NotCollected"), pods=Unknown("NotCollected")
    )
    report = judged(observation, api_server=False)
    assert (report.verdict, [item.cause for item in report.node_findings]) == (TRANSIENT, ["PluginDownInGrace"])
