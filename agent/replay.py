"""The command `replay FILE [--json]`: judge a capture and print the verdict after its last line.

Input: a capture. Output: text for a person, or the JSON of contracts/verdict.schema.json; the exit status: 0 if all is OK
or TRANSIENT, 1 otherwise, 2 for a file that is no capture.

Invariant: the same pure core as the running agent's, its clock being each line's `taken_at`; nothing else is read.
"""

import json
import pathlib
from collections.abc import Iterator

import click

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Policy
from agent.sources import capturefile
from muster.model import jsonform
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import DeviceState, Finding, NodeReport, ResourceReport, Verdict

MAX_ITEMS = 12
"""Devices and pods shown to a person: one screen."""


def replay(path: pathlib.Path, as_json: bool) -> int:  # noqa: FBT001 -- the CLI's flag
    """Judge the capture, print the verdict, return the exit status."""
    try:
        capture = capturefile.read_capture(path)
    except capturefile.BadCapture as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        return 2
    report = last_report(capture, Policy())
    click.echo(json.dumps(jsonform.to_json(report), indent=1) if as_json else "\n".join(lines_of(report)))
    return 0 if report.verdict in (Verdict.OK, Verdict.TRANSIENT) else 1


def last_report(capture: capturefile.Capture, policy: Policy) -> NodeReport:
    """Return the report after the last line."""
    history = History()
    report: NodeReport | None = None
    for observation in capture.observations:
        history, report = judge(history, observation, policy, api_server=capture.api_server)
    assert report is not None, "a capture has a line (capturefile)"
    return report


def lines_of(report: NodeReport) -> Iterator[str]:
    """Yield the report for a person."""
    yield f"{report.node}  {report.verdict.value}  at {jsonform.time_to_text(report.taken_at)}"
    for name, resource in report.resources.items():
        yield from _resource(name, resource)
    for finding in report.node_findings:
        yield from _finding(finding)
    sick = [item for item in report.devices if item.state is not DeviceState.HEALTHY]
    yield from _some(
        "device", [f"{item.uuid}  {item.state.value}  {item.reason}  {item.detail}".rstrip() for item in sick]
    )
    yield from _some("pod", [f"{item.pod or item.uid}  {item.state.value}  {item.reason}" for item in report.pods])
    if report.maintenance is not None:
        ends = report.maintenance.deadline
        yield f"maintenance: {report.maintenance.marker}" + (
            f", until {jsonform.time_to_text(ends)}" if ends is not None else ""
        )
    if report.unverified:
        yield "not verified: " + ", ".join(report.unverified)


def _resource(name: str, resource: ResourceReport) -> Iterator[str]:
    ends = f" until {jsonform.time_to_text(resource.deadline)}" if resource.deadline is not None else ""
    yield ""
    yield f"{name}  {resource.verdict.value}{ends}"
    yield (
        f"  admit {_number(resource.admit_strict)} strict, {_number(resource.admit_lenient)} lenient, "
        f"pick risk {_number(resource.pick_risk)}"
    )
    yield (
        f"  advertised {_number(resource.advertised)}, present {_number(resource.present)}, "
        f"usable {_number(resource.usable)}, allocated {_number(resource.allocated)}, free {_number(resource.free)}; "
        f"node says {_number(resource.allocatable)} of {_number(resource.capacity)}"
    )
    for finding in resource.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    ends = f" until {jsonform.time_to_text(finding.deadline)}" if finding.deadline is not None else ""
    yield f"  - {finding.verdict.value}{ends}  {finding.cause}: {finding.detail}"
    yield f"    do: {finding.remedy}; clears when {finding.clears_when}  [{finding.rule}]"


def _some(what: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield ""
    for text in texts[:MAX_ITEMS]:
        yield f"{what}  {text}"
    if len(texts) > MAX_ITEMS:
        yield f"and {len(texts) - MAX_ITEMS} more {what}s"


def _number(reading: Reading[int] | Reading[float]) -> str:
    match reading:
        case Known(value):
            return f"{value:g}"
        case Unknown(reason):
            return f"unknown ({reason})"
