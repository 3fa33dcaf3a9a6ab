"""Builders for reports with faults, and for what stands on a Node."""

import dataclasses
import datetime

from admitter.model.nodestatus import Condition, Facts, Word
from muster.model.nodeconditions import ConditionType, Status
from muster.model.report import DeviceReport, DeviceState, Finding, Holder, NodeReport, Verdict, worst
from tests.admitter.clusters import GPU, TAKEN, a_resource

UTC = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)


def a_finding(verdict=Verdict.OVER, reason="GpuLost", *devices, cause="GpuLostStillPromised", **fields):
    facts = {"detail": "seen 12 s ago", "remedy": "DrainAndResetGpu", "rule": "B2/1"}
    return Finding(verdict=verdict, reason=reason, cause=cause, devices=devices, **{**facts, **fields})


def a_device(number, state=DeviceState.HEALTHY, reason="Ok", **fields):
    return DeviceReport(**{"uuid": f"GPU-{number}", "state": state, "reason": reason, "holder": Holder.NONE, **fields})


def a_report(*findings, node="n1", devices=None, of_node=(), resources=None, **fields):
    """A report of eight healthy GPUs; the findings are of nvidia.com/gpu."""
    if resources is None:
        verdict = worst(tuple(item.verdict for item in findings if not item.observed))
        resources = {GPU: a_resource(8, verdict=verdict)}
        if findings:
            resources = {GPU: dataclasses.replace(resources[GPU], findings=findings)}
    verdicts = [item.verdict for item in resources.values()] + [item.verdict for item in of_node]
    facts = {
        "node": node,
        "taken_at": TAKEN,
        "verdict": worst(tuple(verdicts)),
        "resources": resources,
        "node_findings": tuple(of_node),
        "devices": tuple(a_device(number) for number in range(8)) if devices is None else tuple(devices),
    }
    return NodeReport(**{**facts, **fields})


def a_word(report=None, silent=0.0):
    return Word(report=report, silent_seconds=silent)


def facts(conditions=None, *, node="n1", taint=""):
    return Facts(node=node, uid=f"uid-{node}", conditions=conditions or {}, taint=taint)


def stood(*, capacity="True AsAdvertised", health="True AllHealthy", mig="True NotPartitioned"):
    """Conditions as they were written earlier; the message is the reason."""
    result = {}
    for name, text in zip(ConditionType, (capacity, health, mig), strict=True):
        status, reason = text.split()
        result[name] = Condition(status=Status(status), reason=reason, message=reason, since=UTC)
    return result


def in_short(conditions):
    """Conditions as {type: "Status Reason"}; None where what stands may stand."""
    return {
        name.value: None if condition is None else f"{condition.status.value} {condition.reason}"
        for name, condition in conditions.items()
    }
