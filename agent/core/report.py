"""Put judged findings and numbers into the report that leaves the core.

Input: snapshot, judged findings, published numbers. Output: NodeReport, sorted and bounded throughout.

Invariant: the worst finding names the verdict, of a resource as of the node; nothing is dropped for being less bad. Hits of
one rule in one state are one finding that names all its devices.
"""

import datetime
from collections.abc import Iterable, Mapping

from agent.core import devicereport, maintenance, podreport, unverified
from agent.core.capacity import Numbers
from agent.core.context import Context, named
from agent.core.holddown import MAX_NAMES, bounded
from agent.model.snapshot import ResourceView, Snapshot
from muster.model import codec
from muster.model.report import Finding, NodeReport, ResourceReport, Verdict, verdict_of, worst

_PLANES = ("kubelet.allocatable", "kubelet.pods", "nvml")
_DRA_PLANES = ("dra", "kubelet.pods", "nvml")
_API_PLANES = ("node_object", "pods")
_BADNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}


def resource(view: ResourceView, snapshot: Snapshot, numbers: Numbers, findings: Iterable[Finding]) -> ResourceReport:
    """Return one resource."""
    merged = merge(findings)
    verdict = verdict_of(merged)
    deadlines = [
        item.deadline
        for item in merged
        if item.verdict is Verdict.TRANSIENT and item.deadline is not None and not item.observed
    ]
    return ResourceReport(
        verdict=verdict,
        admit_strict=numbers.admit_strict,
        admit_lenient=numbers.admit_lenient,
        pick_risk=numbers.pick_risk,
        capacity=view.capacity,
        allocatable=view.allocatable,
        advertised=numbers.advertised,
        present=numbers.present,
        allocated=numbers.allocated,
        usable=numbers.usable,
        free=numbers.free,
        deadline=max(deadlines, default=None) if verdict is Verdict.TRANSIENT else None,
        findings=merged,
        free_devices=numbers.free_devices,
        counted=numbers.counted,
        planes=tuple(
            sorted((*(_DRA_PLANES if view.is_dra else _PLANES), *(_API_PLANES if snapshot.api_server else ())))
        ),
    )


def node(context: Context, resources: Mapping[str, ResourceReport], node_findings: Iterable[Finding]) -> NodeReport:
    """Return the whole report."""
    merged = merge(node_findings)
    devices = devicereport.report(context)
    verdicts = [*(item.verdict for item in resources.values()), verdict_of(merged)]
    return NodeReport(
        node=context.snapshot.node,
        taken_at=context.now,
        verdict=worst(tuple(verdicts)),
        resources=codec.freeze(resources),
        node_findings=merged,
        devices=devices,
        pods=podreport.report(context, devices),
        unverified=unverified.texts(context.snapshot),
        maintenance=maintenance.report_of(context.history.marker, context.policy),
    )


def merge(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, those of one rule in one state as one, the worst first."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.verdict.value, finding.reason), []).append(finding)
    merged = [_one(items) for items in groups.values()]
    return tuple(sorted(merged, key=lambda item: (_BADNESS[item.verdict], item.cause, repr(item))))


def _one(findings: list[Finding]) -> Finding:
    if len(findings) == 1:
        return findings[0]
    units = [item.units for item in findings if item.units is not None]
    first = min(findings, key=repr)
    return Finding(
        verdict=first.verdict,
        cause=first.cause,
        reason=first.reason,
        since=min(_instants(item.since for item in findings), default=None),
        devices=tuple(sorted({uuid for item in findings for uuid in item.devices})[:MAX_NAMES]),
        units=sum(units) if units else None,
        detail=bounded(named(item.detail for item in findings)),
        remedy=first.remedy,
        rule=first.rule,
        clears_when=first.clears_when,
        deadline=max(_instants(item.deadline for item in findings), default=None),
        observed=first.observed,
    )


def _instants(values: "Iterable[datetime.datetime | None]") -> list[datetime.datetime]:
    return [value for value in values if value is not None]
