"""What is published when the agent itself failed and nobody could look.

Input: the last report, now, what failed; the history. Output: the same report with every number taken out; the history
to go on from.

Invariant: no admit number is left, whatever the report said; the counts and devices stay, for people, under a verdict that
says that they are old. What comes after rises from null, and so needs two clean samples (faults.md P4).
"""

import dataclasses
import datetime

from agent.model.history import History, ResourceMemory
from muster.model import codec
from muster.model.reading import Unknown
from muster.model.report import Finding, NodeReport, Verdict
from muster.model.vocabulary import Reason, Remedy

CAUSE = "AgentFailed"

_NULL = ResourceMemory(verdict=Verdict.BLIND)
_BLIND = Unknown(CAUSE, "the agent's own cycle failed")


def blinded(report: NodeReport, now: datetime.datetime, why: str) -> NodeReport:
    """Return the report with every number taken out: what is published when nobody could look."""
    finding = Finding(
        verdict=Verdict.BLIND,
        cause=CAUSE,
        reason=Reason.PLANE_UNREADABLE,
        detail=f"the agent's own cycle failed: {why}",
        remedy=Remedy.INVESTIGATE,
        clears_when="a cycle succeeds",
    )
    resources = {
        name: dataclasses.replace(
            resource,
            verdict=Verdict.BLIND,
            admit_strict=_BLIND,
            admit_lenient=_BLIND,
            pick_risk=_BLIND,
            free_devices=(),
        )
        for name, resource in report.resources.items()
    }
    return dataclasses.replace(
        report,
        taken_at=now,
        verdict=Verdict.BLIND,
        resources=codec.freeze(resources),
        node_findings=(*(item for item in report.node_findings if item.cause != CAUSE), finding),
    )


def forgotten(history: History) -> History:
    """Return the history after a cycle that saw nothing: null was published of every resource, and no sample was clean."""
    return dataclasses.replace(history, resources=codec.freeze(dict.fromkeys(history.resources, _NULL)))
