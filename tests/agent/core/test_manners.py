"""Which NVML session the reader holds while somebody works on the node (design.md section 8)."""

import pytest

from agent.core import maintenance, manners
from agent.core.judge import judge
from agent.core.manners import Session
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE

STATE, UPGRADE, CLIENT = (
    "nvidia.com/mig.config.state",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/gpu.deploy.client",
)
PENDING = {STATE: "pending"}


def wanted(labels, last=None, at=0, *, is_serving=False, **settings):
    return manners.wanted(labels, last, builders.after(at), Policy(), is_serving=is_serving, **settings)


@pytest.mark.parametrize(
    ("labels", "marker"),
    [
        ({}, ""),
        (PENDING, f"{STATE}=pending"),
        ({STATE: "rebooting"}, f"{STATE}=rebooting"),
        ({STATE: "success"}, ""),
        ({STATE: "failed"}, ""),
        ({UPGRADE: "upgrade-done"}, ""),
        ({UPGRADE: "upgrade-required"}, ""),  # can stay so for weeks (D5)
        ({UPGRADE: ""}, ""),
        ({UPGRADE: "drain-required"}, f"{UPGRADE}=drain-required"),
        ({"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}, "nvidia.com/gpu.deploy.dcgm=paused-for-mig-change"),
        ({"nvidia.com/gpu.deploy.dcgm": "false"}, ""),
        ({CLIENT: "true"}, ""),
        ({CLIENT: "false"}, f"{CLIENT}=false"),
        ({CLIENT: ""}, f"{CLIENT}="),
    ],
)
def test_markers(labels, marker):
    assert maintenance.marker_in(labels) == marker


def test_nobody_at_work_keeps_the_session_open():
    assert wanted({}).session is Session.OPEN


def test_a_marker_closes_it_until_its_deadline():
    decision = wanted(PENDING)
    assert (decision.session, decision.until) == (Session.CLOSED, builders.after(900))


def test_a_driver_upgrade_has_longer():
    assert wanted({UPGRADE: "pod-deletion-required"}).until == builders.after(1800)


def test_past_the_deadline_the_reader_reads_in_short_sessions():
    first = wanted(PENDING)
    assert wanted(PENDING, first.marker, at=899).session is Session.CLOSED
    assert wanted(PENDING, first.marker, at=900).session is Session.SHORT


def test_a_node_that_goes_on_serving_is_not_believed_to_be_at_work():
    first = wanted(PENDING, is_serving=True)
    second = wanted(PENDING, first.marker, at=299, is_serving=True)
    assert second.session is Session.CLOSED
    assert wanted(PENDING, second.marker, at=300, is_serving=True).session is Session.SHORT


def test_serving_must_not_be_interrupted():
    first = wanted(PENDING, is_serving=True)
    second = wanted(PENDING, first.marker, at=200, is_serving=False)
    third = wanted(PENDING, second.marker, at=250, is_serving=True)
    assert wanted(PENDING, third.marker, at=400, is_serving=True).session is Session.CLOSED


def test_the_states_of_one_piece_of_work_share_a_clock():
    first = wanted({UPGRADE: "cordon-required"})
    assert wanted({UPGRADE: "drain-required"}, first.marker, at=1800).session is Session.SHORT


def test_a_marker_that_went_and_came_starts_anew():
    first = wanted(PENDING)
    gone = wanted({}, first.marker, at=600)
    assert gone.session is Session.OPEN
    assert wanted(PENDING, gone.marker, at=1000).until == builders.after(1900)


def test_an_unreadable_node_keeps_the_last_marker():
    first = wanted(PENDING)
    assert wanted(None, first.marker, at=60).session is Session.CLOSED


def test_an_operator_s_release_closes_whatever_the_labels_say():
    decision = wanted({}, released_until=builders.after(600))
    assert (decision.session, decision.until) == (Session.CLOSED, builders.after(600))
    assert wanted({}, at=600, released_until=builders.after(600)).session is Session.OPEN


def run(*samples):
    history, reports = History(), []
    for at, changes in samples:
        history, report = judge(history, builders.a_node(at=at, **changes), Policy(), api_server=True)
        reports.append(report)
    return reports


def labelled(labels):
    return {"node_object": builders.a_node_object({WHOLE: 8}, labels=labels)}


def test_while_a_marker_is_believed_nothing_starts():
    (report,) = run((0, labelled(PENDING)))
    resource = report.resources[WHOLE]
    assert (resource.verdict, resource.admit_lenient, resource.deadline) == (
        Verdict.TRANSIENT,
        Known(0),
        builders.after(900),
    )
    assert report.maintenance.marker == f"{STATE}=pending"


def test_past_the_deadline_the_verdict_follows_the_planes_and_the_stuck_marker_is_a_finding():
    last = run(*((at, labelled(PENDING)) for at in (0, 300, 900, 905)))[-1]
    resource = last.resources[WHOLE]
    assert (last.verdict, resource.admit_strict) == (Verdict.OK, Known(8))
    assert [finding.cause for finding in last.node_findings] == ["MigManagerStuck"]


def test_nvml_that_stays_closed_without_a_marker_becomes_blind():
    closed = {"nvml": Unknown("MAINTENANCE")}
    reports = run((0, closed), (1799, closed), (1800, closed))
    assert [report.verdict for report in reports] == [Verdict.TRANSIENT, Verdict.TRANSIENT, Verdict.BLIND]
    assert isinstance(reports[-1].resources[WHOLE].admit_strict, Unknown)
