"""What is published when the agent itself failed."""

import datetime

from agent.core import blinded
from muster.model import codec
from muster.model.reading import Known, Unknown
from muster.model.report import NodeReport, ResourceReport, Verdict

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(seconds=5)


def test_no_admit_number_is_left_and_the_finding_is_said_once():
    """Whatever the report said; failing again adds nothing."""
    resource = ResourceReport(
        verdict=Verdict.OK, admit_strict=Known(8), admit_lenient=Known(8), pick_risk=Known(0.0), free_devices=("GPU-a",)
    )
    report = NodeReport(
        node="a", taken_at=NOW, verdict=Verdict.OK, resources=codec.freeze({"nvidia.com/gpu": resource})
    )
    once = blinded.blinded(report, LATER, "KeyError")
    twice = blinded.blinded(once, LATER, "KeyError")
    assert twice == once
    assert (once.verdict, once.taken_at) == (Verdict.BLIND, LATER)
    assert [finding.cause for finding in once.node_findings] == ["AgentFailed"]
    seen = once.resources["nvidia.com/gpu"]
    assert seen.free_devices == ()
    assert all(isinstance(reading, Unknown) for reading in (seen.admit_strict, seen.admit_lenient, seen.pick_risk))
