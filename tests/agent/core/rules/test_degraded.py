"""Degraded GPUs: what is said of them, and that no number falls for it."""

import dataclasses

import pytest

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.model.xid import Severity
from muster.model import codec
from muster.model.reading import Known, Unknown
from muster.model.report import DeviceState, PodState
from tests import builders
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_node, a_pod, with_gpus

LATE = (0, 700, 1400)
"""Beyond the 10 min of a slowdown."""
ACTIVE, INACTIVE = planes.LinkState.ACTIVE, planes.LinkState.INACTIVE


def links(*states, remote=planes.LinkRemote.SWITCH, pci=()):
    """Return links in these states, to a switch or to the GPUs at these addresses."""
    ends = [Known(address) for address in pci] or [Unknown("NOT_SUPPORTED")] * len(states)
    return Known(
        tuple(
            planes.NvLink(link=number, state=state, remote=Known(remote), remote_pci=end)
            for number, (state, end) in enumerate(zip(states, ends, strict=True))
        )
    )


def a_fabric(summary=planes.FabricSummary.HEALTHY, **health):
    return Known(
        planes.Fabric(
            state=planes.FabricState.COMPLETED,
            status=Known("success"),
            summary=Known(summary),
            health=codec.freeze(health),
        )
    )


def an_unanswered(*codes):
    """Return facts of a GPU whose driver does not say what it wants, after these Xids."""
    events = tuple(planes.Xid(code=code, at=builders.after(-60)) for code in codes)
    return {"recovery_action": Known(planes.RecoveryAction.UNSUPPORTED), "xids": Known(events)}


UNLICENSED = Known(planes.Licence(licensed=False))
EXPIRED = Known(planes.Licence(licensed=True, expiry=builders.after(-1)))

DEGRADED = {
    "some links of a switched board are down": ({"nvlinks": links(ACTIVE, INACTIVE)}, "NvLinkDown", "1 of 2"),
    "thermal slowdown": ({"clocks_reasons": Known(("hw_thermal_slowdown",))}, "ClocksSlowedDown", "thermal"),
    "power brake": ({"clocks_reasons": Known(("hw_power_brake_slowdown",))}, "ClocksSlowedDown", "power"),
    "no licence": ({"licence": UNLICENSED}, "VgpuUnlicensed", "no licence"),
    "an expired licence": ({"licence": EXPIRED}, "VgpuUnlicensed", "expired"),
    "an unhealthy fabric": ({"fabric": a_fabric(planes.FabricSummary.UNHEALTHY)}, "FabricDegraded", "unhealthy"),
    "a degraded fabric": ({"fabric": a_fabric(degraded_bandwidth="true")}, "FabricDegraded", "degraded_bandwidth"),
    "SRAM errors": ({"ecc": Known(planes.Ecc(sram_uncorrected=Known(2)))}, "SramErrors", "2 uncorrected"),
    "an Xid that nobody knows": (an_unanswered(4711), "DegradingXid", "4711"),
    "an Xid of the links": (an_unanswered(74), "DegradingXid", "74"),
}


@pytest.mark.parametrize("name", DEGRADED)
def test_a_degraded_gpu_is_said_and_counts(name):
    changes, cause, words = DEGRADED[name]
    report = builders.reports_of(with_gpus(a_node(), a_gpu(3, **changes)), LATE)[-1]
    assert builders.numbers_of(report) == {WHOLE: ("OK", 8, 8, 0.0)}
    (finding,) = report.resources[WHOLE].findings
    assert (finding.cause, finding.devices) == (cause, ("GPU-3",))
    assert words in finding.detail
    assert {device.uuid: device.state for device in report.devices}["GPU-3"] is DeviceState.DEGRADED


FINE = {
    "a board without links": {"nvlinks": links(INACTIVE, INACTIVE, remote=planes.LinkRemote.UNKNOWN)},
    "links that sleep": {"nvlinks": links(ACTIVE, planes.LinkState.SLEEP)},
    "links nobody could read": {"nvlinks": Unknown("NOT_SUPPORTED")},
    "a power cap": {"clocks_reasons": Known(("sw_power_cap", "gpu_idle"))},
    "a licence": {"licence": Known(planes.Licence(licensed=True))},
    "a field of the mask that is false": {"fabric": a_fabric(degraded_bandwidth="false", route_recovery="false")},
    "corrected errors": {"ecc": Known(planes.Ecc(volatile_corrected=Known(10**6)))},
    "uncorrected DRAM errors that were remapped": {"ecc": Known(planes.Ecc(volatile_uncorrected=Known(3)))},
    "an application's Xid": an_unanswered(13, 31, 43, 45),
    "an Xid where the driver says that nothing is wanted": {
        "xids": Known((planes.Xid(code=74, at=builders.after(-60)),))
    },
    "confidential mode that is ready": {
        "confidential": Known(planes.Confidential(feature=Known(True), ready=Known(True)))
    },
    "confidential mode off": {"confidential": Known(planes.Confidential(feature=Known(False), ready=Known(False)))},
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_no_restriction(name):
    report = builders.reports_of(with_gpus(a_node(), a_gpu(3, **FINE[name])), LATE)[-1]
    assert builders.numbers_of(report) == {WHOLE: ("OK", 8, 8, 0.0)}
    assert report.resources[WHOLE].findings == ()


def test_a_gpu_whose_links_are_all_down_is_degraded_only_where_the_others_reach_a_switch():
    """open-gpu-kernel-modules#1150 against a card without a bridge (topology.md section 2)."""
    switched = [a_gpu(number, nvlinks=links(ACTIVE, ACTIVE)) for number in range(7)]
    alone = a_gpu(7, nvlinks=links(INACTIVE, INACTIVE, remote=planes.LinkRemote.UNKNOWN))
    report = builders.reports_of(with_gpus(a_node(), *switched, alone), LATE)[-1]
    assert [finding.cause for finding in report.resources[WHOLE].findings] == ["NvLinkDown"]
    bridged = [
        a_gpu(
            number, nvlinks=links(ACTIVE, remote=planes.LinkRemote.GPU, pci=(f"0000:{0x10 + (number ^ 1):02x}:00.0",))
        )
        for number in range(6)
    ]
    report = builders.reports_of(with_gpus(a_node(), *bridged, alone), LATE)[-1]
    assert report.resources[WHOLE].findings == ()


def test_a_lost_link_names_the_gpu_at_its_far_end():
    """ "No NVLink between 0 and 3, fine for singles" (agents.md e5)."""
    lost = links(ACTIVE, INACTIVE, remote=planes.LinkRemote.GPU, pci=("0000:11:00.0", "0000:13:00.0"))
    report = builders.reports_of(with_gpus(a_node(), a_gpu(0, nvlinks=lost)), LATE)[-1]
    assert report.resources[WHOLE].findings[0].detail == (
        "GPU-0: 1 of 2 NVLinks up, none to GPU-3: fine for singles, in no island of the node"
    )


def test_a_slowdown_counts_only_once_it_lasts():
    slow = with_gpus(a_node(), a_gpu(3, clocks_reasons=Known(("hw_slowdown",))))
    assert builders.reports_of(slow, (0, 300))[-1].resources[WHOLE].findings == ()
    assert builders.reports_of(slow, (0, 300, 650))[-1].resources[WHOLE].findings[0].cause == "ClocksSlowedDown"


def test_the_pod_on_a_degraded_gpu_is_at_risk():
    kubelet = builders.a_kubelet({WHOLE: tuple(f"GPU-{n}" for n in range(8))}, (a_listed_pod("a", "GPU-3"),))
    node = with_gpus(a_node(kubelet=kubelet, pods=Known((a_pod("a"),))), a_gpu(3, nvlinks=links(ACTIVE, INACTIVE)))
    (pod,) = builders.reports_of(node, (0,))[-1].pods
    assert (pod.pod, pod.state, pod.reason, pod.devices) == ("ml/a", PodState.AT_RISK, "NvLinkDown", ("GPU-3",))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (builders.a_lost_gpu(5), "GpuLost"),
        (a_gpu(5, processes=Known((builders.a_process(),))), "ForeignProcess"),
        (a_gpu(5, recovery_action=Known(planes.RecoveryAction.RESET)), "RecoveryAction"),
    ],
)
def test_a_bound_pod_without_a_device_may_be_handed_the_bad_one(bad, reason):
    (pod,) = builders.reports_of(with_gpus(a_node(pods=Known((a_pod("a"),))), bad), (0,))[-1].pods
    assert (pod.pod, pod.state, pod.reason, pod.devices) == ("ml/a", PodState.AT_RISK, reason, ("GPU-5",))


def test_a_bound_pod_is_at_no_risk_where_every_free_gpu_is_good():
    held = builders.a_kubelet({WHOLE: tuple(f"GPU-{n}" for n in range(8))}, (a_listed_pod("b", "GPU-5"),))
    node = with_gpus(a_node(kubelet=held, pods=Known((a_pod("a"), a_pod("b")))), builders.a_lost_gpu(5))
    pods = builders.reports_of(node, (0,))[-1].pods
    assert [(pod.pod, pod.state) for pod in pods] == [("ml/b", PodState.ON_BAD_DEVICE)]


def test_a_gpu_that_is_not_ready_for_confidential_work_takes_none():
    waiting = Known(planes.Confidential(feature=Known(True), ready=Known(False)))
    report = builders.reports_of(with_gpus(a_node(), a_gpu(3, confidential=waiting)), LATE)[-1]
    assert builders.numbers_of(report) == {WHOLE: ("OVER", 0, 7, 1 / 8)}


OVERRIDES = {
    "an operator makes a degrading Xid benign": ({"74": Severity.BENIGN}, 74, ("OK", 8, 8, 0.0), DeviceState.HEALTHY),
    "an operator makes an application's Xid fatal": (
        {"13": Severity.FATAL}, 13, ("OVER", 0, 7, 1 / 8), DeviceState.UNHEALTHY,
    ),
    "the table decides what nobody overrides": ({"13": Severity.FATAL}, 79, ("OVER", 0, 7, 1 / 8), DeviceState.UNHEALTHY),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERRIDES)
def test_the_operators_word_on_an_xid_beats_the_table(name):
    xids, code, numbers, state = OVERRIDES[name]
    policy = dataclasses.replace(Policy(), xids=codec.freeze(xids))
    node = with_gpus(a_node(), a_gpu(3, **an_unanswered(code)))
    _, report = judge.judge(History(), node, policy, api_server=True)
    assert builders.numbers_of(report) == {WHOLE: numbers}
    assert {device.uuid: device.state for device in report.devices}["GPU-3"] is state


def test_the_drivers_word_beats_the_operators():
    policy = dataclasses.replace(Policy(), xids=codec.freeze({"79": Severity.FATAL}))
    answered = a_gpu(3, xids=Known((planes.Xid(code=79, at=builders.after(-60)),)))
    _, report = judge.judge(History(), with_gpus(a_node(), answered), policy, api_server=True)
    assert builders.numbers_of(report) == {WHOLE: ("OK", 8, 8, 0.0)}
