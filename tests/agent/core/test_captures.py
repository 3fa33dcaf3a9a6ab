"""Every capture under tests/captures, line by line, against the answer that the fault catalogue gives.

The format of the expected files is tests/captures/README.md.
"""

import json
import pathlib

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.planes import Observation
from agent.model.policy import Policy
from muster.model import jsonform

CAPTURES = pathlib.Path(__file__).parents[2] / "captures"
FILES = sorted(CAPTURES.glob("*.expected.json"))

COUNTS = (
    "verdict", "admit_strict", "admit_lenient", "capacity", "allocatable", "advertised", "present", "allocated", "usable",
    "free",
)  # fmt: skip


def reports_of(path):
    """Return the report after each line, in JSON form."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    api_server = any("node_object" in line or "pods" in line for line in lines)
    history, reports = History(), []
    for line in lines:
        observation = jsonform.from_json(Observation, line)
        history, report = judge(history, observation, Policy(), api_server=api_server)
        reports.append(jsonform.to_json(report))
    return reports


def causes(findings):
    return {finding["cause"] for finding in findings}


def differences(report, expected):
    """Yield what of the expectation the report does not meet."""
    anywhere = causes(report["node_findings"])
    for resource in report["resources"].values():
        anywhere |= causes(resource["findings"])
    if "verdict" in expected and report["verdict"] != expected["verdict"]:
        yield f"verdict {report['verdict']}, expected {expected['verdict']}"
    yield from missing("causes", expected.get("causes", ()), anywhere)
    yield from present("causes", expected.get("not_causes", ()), anywhere)
    yield from missing("node causes", expected.get("node_causes", ()), causes(report["node_findings"]))
    yield from present("node causes", expected.get("not_node_causes", ()), causes(report["node_findings"]))
    for name, wanted in expected.get("resources", {}).items():
        yield from resource_differences(name, report["resources"].get(name), wanted)
    if expected.get("resources_exact") and set(report["resources"]) != set(expected["resources"]):
        yield f"resources {sorted(report['resources'])}"
    yield from list_differences(report, expected)
    if "maintenance" in expected and (report["maintenance"] is not None) is not expected["maintenance"]:
        yield f"maintenance {report['maintenance']}"


def missing(what, wanted, found):
    if not set(wanted) <= found:
        yield f"{what} {sorted(found)} lack {sorted(set(wanted) - found)}"


def present(what, unwanted, found):
    if set(unwanted) & found:
        yield f"{what} have {sorted(set(unwanted) & found)}"


def resource_differences(name, resource, wanted):
    if wanted is None or resource is None:
        if wanted is not resource:
            yield f"{name}: {resource}, expected {wanted}"
        return
    for key in COUNTS:
        if key in wanted and resource[key] != wanted[key]:
            yield f"{name}.{key} {resource[key]}, expected {wanted[key]}"
    if "pick_risk" in wanted and resource["pick_risk"] != pytest.approx(wanted["pick_risk"], abs=1e-9):
        yield f"{name}.pick_risk {resource['pick_risk']}, expected {wanted['pick_risk']}"
    if "deadline" in wanted and instant(resource["deadline"]) != instant(wanted["deadline"]):
        yield f"{name}.deadline {resource['deadline']}, expected {wanted['deadline']}"
    yield from missing(f"{name}: causes", wanted.get("causes", ()), causes(resource["findings"]))
    yield from present(f"{name}: causes", wanted.get("not_causes", ()), causes(resource["findings"]))


def instant(text):
    return None if text is None else jsonform.text_to_time(text)


def list_differences(report, expected):
    devices = {device["uuid"]: device for device in report["devices"]}
    for uuid, wanted in expected.get("devices", {}).items():
        for key, value in wanted.items():
            if devices.get(uuid, {}).get(key) != value:
                yield f"device {uuid}: {devices.get(uuid)}, expected {wanted}"
    pods = {(pod["pod"], pod["state"]) for pod in report["pods"]}
    for name, state in expected.get("pods", {}).items():
        if (state is None and any(pod == name for pod, _ in pods)) or (state is not None and (name, state) not in pods):
            yield f"pod {name}: {sorted(pods)}, expected {state}"
    for text in expected.get("unverified_has", ()):
        if not any(entry.startswith(text) for entry in report["unverified"]):
            yield f"unverified {report['unverified']} lacks {text}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_the_catalogue_decides(path):
    expected = json.loads(path.read_text())
    reports = reports_of(path.with_name(path.name.replace(".expected.json", ".jsonl")))
    wrong = [
        f"line {entry['line']}: {difference}"
        for entry in expected["after_line"]
        for difference in differences(reports[entry["line"] - 1], entry)
    ]
    assert not wrong, "\n".join([expected["why"], *wrong])


def test_there_are_captures_for_every_required_entry():
    entries = {json.loads(path.read_text())["entry"] for path in FILES}
    required = {"A1", "A2", "A5", "B2", "B9", "C1", "C4", "C11", "D1", "D4", "E4", "E5", "F1", "H2", "H3", "H4"}
    healthy = {"N1", "N2", "N5", "N7", "N8"}
    assert required | healthy <= entries
