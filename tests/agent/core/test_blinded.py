"""What is published when the agent itself failed."""

import datetime

from agent.core import blinded, confirm
from agent.core.capacity import Numbers
from agent.model.history import History, ResourceMemory
from muster.model import codec
from muster.model.reading import Known, Unknown
from muster.model.report import NodeReport, ResourceReport, Verdict

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
SEEN = Numbers(
    admit_strict=Known(8),
    admit_lenient=Known(8),
    pick_risk=Known(0.0),
    advertised=Known(8),
    present=Known(8),
    allocated=Known(0),
    usable=Known(8),
    free=Known(8),
)
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


def test_what_was_published_before_is_no_floor_for_what_comes_after():
    """P4: null counts as 0, and a sample from before the failure confirms nothing. The rest of the history stays."""
    memory = ResourceMemory(verdict=Verdict.OK, strict=8, lenient=8, seen_strict=8, seen_lenient=8)
    history = History(started=True, boot_id="b", resources=codec.freeze({"nvidia.com/gpu": memory}))
    after = blinded.forgotten(history)
    assert (after.started, after.boot_id) == (True, "b")
    left = after.resources["nvidia.com/gpu"]
    assert left == ResourceMemory(verdict=Verdict.BLIND)
    assert confirm.confirm(SEEN, left, is_clean=True).numbers.admit_lenient == Known(0)
    assert blinded.forgotten(History()) == History()
