"""What one cycle's log sentence says of a report: the keys, without time, so that a repeat can be recognised."""

from typing import Any

from muster.model.reading import Known
from muster.model.report import NodeReport


def facts_of(report: NodeReport) -> dict[str, Any]:
    """Return the keys of a cycle's sentence, without time."""
    resources = {
        name: {
            "verdict": resource.verdict.value,
            **{
                field: value.value if isinstance(value, Known) else value.reason
                for field in ("admit_strict", "admit_lenient", "free", "allocatable")
                for value in (getattr(resource, field),)
            },
        }
        for name, resource in sorted(report.resources.items())
    }
    findings = [*report.node_findings, *(item for resource in report.resources.values() for item in resource.findings)]
    causes = sorted({f"{item.cause}/{'observed' if item.observed else item.verdict.value}" for item in findings})
    return {"node": report.node, "resources": resources, "causes": causes, "unverified": list(report.unverified)}
