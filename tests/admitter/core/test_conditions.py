"""What a report says about its Node."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import conditions
from muster.model.nodeconditions import REASONS, ConditionType, Status
from muster.model.report import DeviceState, Maintenance, Verdict
from muster.model.vocabulary import Reason
from tests.admitter.clusters import GPU, a_resource
from tests.admitter.nodewords import a_device, a_finding, a_report, in_short

WELL = {
    "GPUCapacityTruthful": "True AsAdvertised",
    "GPUHealthy": "True AllHealthy",
    "MIGLayoutMatches": "True NotPartitioned",
}
LOST = a_device(3, DeviceState.LOST, "GpuLost")

CASES = {
    "a healthy node": (a_report(), {}),
    "a lost GPU that is still promised": (
        a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[a_device(0), LOST]),
        {"GPUCapacityTruthful": "False GpuLost", "GPUHealthy": "False GpuLost"},
    ),
    "a GPU whose loss is not confirmed yet": (
        a_report(a_finding(Verdict.TRANSIENT, "GpuLost", "GPU-3"), devices=[a_device(0), LOST]),
        {"GPUCapacityTruthful": None, "GPUHealthy": None},
    ),
    "a lost GPU beside one that is only suspected": (
        a_report(
            a_finding(Verdict.OVER, "GpuLost", "GPU-3"),
            a_finding(Verdict.TRANSIENT, "Xid", "GPU-4"),
            devices=[LOST, a_device(4, DeviceState.UNHEALTHY, "Xid")],
        ),
        {"GPUCapacityTruthful": "False GpuLost", "GPUHealthy": "False GpuLost"},
    ),
    "an unhealthy GPU that nobody promises": (
        a_report(devices=[a_device(0), a_device(1, DeviceState.UNHEALTHY, "Xid")]),
        {"GPUHealthy": "False Xid"},
    ),
    "a plugin that is gone: healthy hardware, not advertised": (
        a_report(a_finding(Verdict.UNDER, "PluginNotRegistered")),
        {"GPUCapacityTruthful": "False PluginNotRegistered"},
    ),
    "a plugin that restarts": (
        a_report(a_finding(Verdict.TRANSIENT, "PluginNotRegistered")),
        {"GPUCapacityTruthful": None},
    ),
    "a process of somebody else's on a GPU": (
        a_report(a_finding(Verdict.CONTENDED, "ForeignProcess", "GPU-1")),
        {"GPUCapacityTruthful": "False ForeignProcess"},
    ),
    "the driver cannot be read": (
        a_report(of_node=[a_finding(Verdict.BLIND, "PlaneUnreadable")], devices=[]),
        dict.fromkeys(WELL, "Unknown PlaneUnreadable"),
    ),
    "blind in one resource, lying in another: the lie is certain": (
        a_report(
            a_finding(Verdict.BLIND, "PlaneUnreadable"), a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[LOST]
        ),
        {
            "GPUCapacityTruthful": "False GpuLost",
            "GPUHealthy": "False GpuLost",
            "MIGLayoutMatches": "Unknown PlaneUnreadable",
        },
    ),
    "a GPU that does not answer, after its deadline": (
        a_report(devices=[a_device(0), a_device(1, DeviceState.UNKNOWN, "DriverUnresponsive")]),
        {"GPUHealthy": "Unknown DriverUnresponsive"},
    ),
    "a slow GPU serves": (
        a_report(devices=[a_device(0), a_device(1, DeviceState.DEGRADED, "Slowdown")]),
        {"GPUHealthy": "True Degraded"},
    ),
    "the wrong MIG layout": (
        a_report(a_finding(Verdict.WRONG_SHAPE, "MigMismatch", cause="HalfAppliedGeometry")),
        {"GPUCapacityTruthful": "False MigMismatch", "MIGLayoutMatches": "False MigMismatch"},
    ),
    "a MIG mode that waits for a reset lies about nothing": (
        a_report(a_finding(Verdict.OK, "MigPending", "GPU-0", cause="ModeChangePending")),
        {"MIGLayoutMatches": "False MigPending"},
    ),
    "instances as promised": (
        a_report(resources={"nvidia.com/mig-1g.5gb": a_resource(7)}),
        {"MIGLayoutMatches": "True LayoutAsPromised"},
    ),
    "maintenance": (
        a_report(a_finding(Verdict.TRANSIENT, "Maintenance"), maintenance=Maintenance(marker="mig.config.state")),
        dict.fromkeys(WELL, "Unknown Maintenance"),
    ),
    "a rule that only observes": (
        a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3", observed=True)),
        {},
    ),
    "no driver, no device": (
        a_report(of_node=[a_finding(Verdict.BLOCKED, "DriverNotLoaded")], resources={}, devices=[]),
        {
            "GPUCapacityTruthful": "False DriverNotLoaded",
            "GPUHealthy": "Unknown DriverNotLoaded",
            "MIGLayoutMatches": "Unknown DriverNotLoaded",
        },
    ),
    "a reason from an agent two versions ahead": (
        a_report(a_finding(Verdict.OVER, "SunSpots")),
        {"GPUCapacityTruthful": "False NotAsAdvertised"},
    ),
    "a verdict without a finding": (
        a_report(resources={GPU: a_resource(0, verdict=Verdict.BLOCKED)}),
        {"GPUCapacityTruthful": "False NotAsAdvertised"},
    ),
    "devices that are advertised and that no driver shows": (
        a_report(resources={GPU: a_resource(8)}, devices=[]),
        {"GPUHealthy": "Unknown NoDevices", "MIGLayoutMatches": "Unknown NoDevices"},
    ),
}


@pytest.mark.parametrize(("report", "differs"), CASES.values(), ids=CASES)
def test_each_condition_of_a_report(report, differs):
    assert in_short(conditions.opinions(report)) == {**WELL, **differs}


def test_a_node_without_gpus_gets_no_condition():
    assert conditions.opinions(a_report(resources={}, devices=[])) == {}


def test_the_message_says_what_where_and_what_to_do():
    report = a_report(
        a_finding(Verdict.OVER, "GpuLost", "GPU-3", "GPU-1"),
        of_node=[a_finding(Verdict.UNDER, "NotAdvertised", cause="LateGpusMissed", remedy="RestartDevicePlugin")],
        devices=[LOST],
    )
    said = conditions.opinions(report)
    assert said[ConditionType.CAPACITY].message == (
        "node UNDER LateGpusMissed (RestartDevicePlugin);"
        " nvidia.com/gpu OVER GpuLostStillPromised GPU-1,GPU-3 (DrainAndResetGpu)"
    )
    assert said[ConditionType.HEALTH].message == "GPU-3 lost GpuLost"


def test_an_instance_is_not_named_beside_its_own_lost_gpu():
    devices = [LOST, *(a_device(0, DeviceState.LOST, "GpuLost", uuid=f"MIG-{i}", parent="GPU-3") for i in range(7))]
    assert conditions.opinions(a_report(devices=devices))[ConditionType.HEALTH].message == "GPU-3 lost GpuLost"


def test_a_suspected_gpu_takes_its_instances_along():
    devices = [a_device(0, DeviceState.UNHEALTHY, "Xid", uuid="MIG-1", parent="GPU-3")]
    report = a_report(a_finding(Verdict.TRANSIENT, "Xid", "GPU-3"), devices=devices)
    assert conditions.opinions(report)[ConditionType.HEALTH] is conditions.STANDS


def test_many_faults_are_counted_and_not_all_named():
    findings = [
        a_finding(Verdict.OVER, "GpuLost", *(f"GPU-{i}" for i in range(9)), cause=f"Cause{i:02}") for i in range(12)
    ]
    message = conditions.opinions(a_report(*findings))[ConditionType.CAPACITY].message
    assert message.startswith("nvidia.com/gpu OVER Cause00 GPU-0,GPU-1,GPU-2,GPU-3,+5 (DrainAndResetGpu); ")
    assert message.endswith("; and 4 more")


def test_an_agents_words_cannot_break_the_line():
    report = a_report(a_finding(Verdict.OVER, "GpuLost", cause="A\nB; \x1b[31mC" + "x" * 4000))
    message = conditions.opinions(report)[ConditionType.CAPACITY].message
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 200


FINDINGS = st.builds(
    lambda verdict, reason, numbers, observed: a_finding(
        verdict, reason, *(f"GPU-{number}" for number in numbers), observed=observed
    ),
    st.sampled_from(Verdict),
    st.sampled_from([*(reason.value for reason in Reason), "Newer"]),
    st.sets(st.integers(0, 7)),
    st.booleans(),
)
DEVICES = st.lists(
    st.builds(a_device, st.integers(0, 7), st.sampled_from(DeviceState), st.sampled_from([r.value for r in Reason])),
    unique_by=lambda device: device.uuid,
    max_size=8,
)


@given(st.lists(FINDINGS, max_size=12), st.lists(FINDINGS, max_size=4), DEVICES, st.randoms(use_true_random=False))
def test_any_report_gives_closed_reasons_bounded_lines_and_no_order(findings, of_node, devices, dice):
    report = a_report(*findings, of_node=of_node, devices=devices)
    said = conditions.opinions(report)
    for condition in said.values():
        if condition is not None:
            assert condition.reason in REASONS
            assert len(condition.message) <= conditions.MAX_MESSAGE
            assert condition.message
    mixed = [list(part) for part in (findings, of_node, devices)]
    for part in mixed:
        dice.shuffle(part)
    assert conditions.opinions(a_report(*mixed[0], of_node=mixed[1], devices=mixed[2])) == said


@given(st.lists(FINDINGS, max_size=4), DEVICES)
def test_what_changes_by_itself_is_not_in_the_text(findings, devices):
    later = [dataclasses.replace(item, detail=f"seen {random.random()} s ago", units=7) for item in findings]
    assert conditions.opinions(a_report(*later, devices=devices)) == conditions.opinions(
        a_report(*findings, devices=devices)
    )


@given(st.lists(FINDINGS, max_size=4), DEVICES)
def test_no_condition_is_true_over_something_that_could_not_be_read(findings, devices):
    said = conditions.opinions(a_report(*findings, devices=devices))
    counted = [item for item in findings if not item.observed]
    if any(item.verdict is Verdict.BLIND for item in counted):
        assert all(condition is None or condition.status is not Status.TRUE for condition in said.values())
    if said and any(device.state is DeviceState.UNKNOWN for device in devices):
        health = said[ConditionType.HEALTH]
        assert health is None or health.status is not Status.TRUE
