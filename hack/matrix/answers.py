"""Hold a report against the answer that a capture's expected file gives (tests/captures/README.md has the format).

In: the report in JSON form, one entry of `after_line`. Out: what of the expectation it does not meet, in words.

Invariant: a key that the expectation does not have is not asserted. A key that nothing here reads would be asserted by
nobody, so tests/captures/test_fixtures.py refuses it.
"""

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from muster.model import jsonform

Json = Mapping[str, Any]

COUNTS = (
    "verdict", "admit_strict", "admit_lenient", "capacity", "allocatable", "advertised", "present", "allocated", "usable",
    "free",
)  # fmt: skip


def differences(report: Json, expected: Json) -> Iterator[str]:
    """Yield what of the expectation the report does not meet."""
    if "verdict" in expected and report["verdict"] != expected["verdict"]:
        yield f"verdict {report['verdict']}, expected {expected['verdict']}"
    anywhere, of_node = causes_anywhere(report), causes_of(report["node_findings"])
    yield from _missing("causes", expected.get("causes", ()), anywhere)
    yield from _present("causes", expected.get("not_causes", ()), anywhere)
    yield from _missing("node causes", expected.get("node_causes", ()), of_node)
    yield from _present("node causes", expected.get("not_node_causes", ()), of_node)
    for name, wanted in expected.get("resources", {}).items():
        yield from _of_resource(name, report["resources"].get(name), wanted)
    if expected.get("resources_exact") and set(report["resources"]) != set(expected["resources"]):
        yield f"resources {sorted(report['resources'])}"
    yield from _of_lists(report, expected)
    if "maintenance" in expected and (report["maintenance"] is not None) is not expected["maintenance"]:
        yield f"maintenance {report['maintenance']}"


def causes_of(findings: Iterable[Json]) -> set[str]:
    """Return the causes of some findings."""
    return {finding["cause"] for finding in findings}


def causes_anywhere(report: Json) -> set[str]:
    """Return the causes of all findings, of the node and of its resources."""
    found = causes_of(report["node_findings"])
    for resource in report["resources"].values():
        found |= causes_of(resource["findings"])
    return found


def _missing(what: str, wanted: Iterable[str], found: set[str]) -> Iterator[str]:
    if not set(wanted) <= found:
        yield f"{what} {sorted(found)} lack {sorted(set(wanted) - found)}"


def _present(what: str, unwanted: Iterable[str], found: set[str]) -> Iterator[str]:
    if set(unwanted) & found:
        yield f"{what} have {sorted(set(unwanted) & found)}"


def _of_resource(name: str, resource: Json | None, wanted: Json | None) -> Iterator[str]:
    if wanted is None or resource is None:
        if wanted is not resource:
            yield f"{name}: {resource}, expected {wanted}"
        return
    for key in COUNTS:
        if key in wanted and resource[key] != wanted[key]:
            yield f"{name}.{key} {resource[key]}, expected {wanted[key]}"
    if "pick_risk" in wanted and not _is_close(resource["pick_risk"], wanted["pick_risk"]):
        yield f"{name}.pick_risk {resource['pick_risk']}, expected {wanted['pick_risk']}"
    if "deadline" in wanted and _instant(resource["deadline"]) != _instant(wanted["deadline"]):
        yield f"{name}.deadline {resource['deadline']}, expected {wanted['deadline']}"
    yield from _missing(f"{name}: causes", wanted.get("causes", ()), causes_of(resource["findings"]))
    yield from _present(f"{name}: causes", wanted.get("not_causes", ()), causes_of(resource["findings"]))


def _is_close(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, abs_tol=1e-9)


def _instant(text: str | None) -> datetime.datetime | None:
    return None if text is None else jsonform.text_to_time(text)


def _of_lists(report: Json, expected: Json) -> Iterator[str]:
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
