"""The captures themselves: what they must be before anybody replays them."""

import functools
import json
import pathlib
import re
from importlib import resources

import jsonschema
import pytest

from agent.model import planes
from muster.model import jsonform
from muster.model.report import DeviceState, Holder, PodState, Verdict

HERE = pathlib.Path(__file__).parent
CAPTURES = sorted(HERE.rglob("*.jsonl"))
EXPECTED = sorted(HERE.rglob("*.expected.json"))

LAST = {"A": 14, "B": 11, "C": 12, "D": 8, "E": 9, "F": 5, "G": 3, "H": 5, "N": 8}
ENTRIES = tuple(f"{group}{number}" for group, last in LAST.items() for number in range(1, last + 1))
"""Every entry of the fault catalogue: 67 faults, and 8 healthy states that look like faults."""

WITHOUT_CAPTURE = ("H1",)
"""Leaves no trace on the planes: its test is one of behaviour, that the reader lets go of the GPUs."""
BEHAVIOUR = {"H1": ("tests/agent/sources/test_session.py", "tests/e2e/test_agent.py")}
WITHOUT_TWIN = (*WITHOUT_CAPTURE, "D2")
"""D2 stays capacity OK whatever the planes show; only somebody inside the pod could change the answer."""

COUNTS = {"capacity", "allocatable", "advertised", "present", "allocated", "usable", "free"}
NUMBERS = COUNTS | {"admit_strict", "admit_lenient", "pick_risk"}
RESOURCE_KEYS = NUMBERS | {"verdict", "deadline", "causes", "not_causes"}
REPORT_KEYS = {
    "line", "verdict", "resources", "resources_exact", "causes", "not_causes", "node_causes", "not_node_causes",
    "devices", "pods", "unverified_has", "maintenance",
}  # fmt: skip
CAUSE = re.compile(r"([A-Z][a-z0-9]*)+\Z")


@functools.cache
def _validator():
    schema = json.loads(resources.files("agent").joinpath("contracts/capture.schema.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def _lines(capture):
    return [json.loads(line) for line in capture.read_text("utf-8").splitlines()]


def _expected(capture):
    return json.loads(capture.with_suffix(".expected.json").read_text("utf-8"))


def _name(path):
    return path.relative_to(HERE).as_posix()


@pytest.mark.parametrize("capture", CAPTURES, ids=_name)
def test_every_line_is_a_valid_observation(capture):
    errors = [
        f"line {number}: {error.json_path}: {error.message}"
        for number, line in enumerate(_lines(capture), start=1)
        for error in _validator().iter_errors(line)
    ]
    assert errors == []
    assert all(jsonform.from_json(planes.Observation, line).node for line in _lines(capture))


@pytest.mark.parametrize("capture", CAPTURES, ids=_name)
def test_a_timeline_is_of_one_node_and_runs_forward(capture):
    seen = [jsonform.from_json(planes.Observation, line) for line in _lines(capture)]
    times = [observation.taken_at for observation in seen]
    assert times == sorted(set(times))
    assert len({observation.node for observation in seen}) == 1


def test_every_capture_has_an_expected_file_and_the_reverse():
    assert [_name(path).removesuffix(".jsonl") for path in CAPTURES] == [
        _name(path).removesuffix(".expected.json") for path in EXPECTED
    ]


@pytest.mark.parametrize("capture", CAPTURES, ids=_name)
def test_the_expected_file_has_the_format_of_the_readme(capture):
    expected = _expected(capture)
    assert set(expected) == {"entry", "why", "after_line"}
    assert capture.name.startswith(expected["entry"].lower() + "-")
    asserted = [after["line"] for after in expected["after_line"]]
    assert asserted == sorted(set(asserted))
    assert (asserted[0], asserted[-1]) == (1, len(_lines(capture)))
    for after in expected["after_line"]:
        _check_report(after)


def _check_report(after):
    assert set(after) <= REPORT_KEYS
    assert after.get("verdict", "OK") in set(Verdict)
    causes = [after.get(key, []) for key in ("causes", "not_causes", "node_causes", "not_node_causes")]
    for resource in after.get("resources", {}).values():
        if resource is None:
            continue
        assert set(resource) <= RESOURCE_KEYS
        assert resource.get("verdict", "OK") in set(Verdict)
        assert all(resource[key] is None or resource[key] >= 0 for key in NUMBERS & set(resource))
        if resource.get("deadline") is not None:
            jsonform.text_to_time(resource["deadline"])
        causes += [resource.get("causes", []), resource.get("not_causes", [])]
    assert all(CAUSE.match(cause) for group in causes for cause in group)
    for device in after.get("devices", {}).values():
        assert device.get("state", "healthy") in set(DeviceState)
        assert device.get("holder", "none") in set(Holder)
    assert all(state is None or state in set(PodState) for state in after.get("pods", {}).values())


def _stems(entry):
    return [path.stem for path in HERE.glob("*.jsonl") if path.name.startswith(entry.lower() + "-")]


def test_the_catalogue_has_as_many_entries_as_it_says():
    assert len(ENTRIES) == 67 + 8


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in WITHOUT_CAPTURE])
def test_every_entry_has_a_capture(entry):
    assert any(not stem.endswith("-twin") for stem in _stems(entry))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in WITHOUT_TWIN])
def test_every_entry_has_a_twin_of_a_capture(entry):
    twins = [stem for stem in _stems(entry) if stem.endswith("-twin")]
    assert twins
    assert {stem.removesuffix("-twin") for stem in twins} <= set(_stems(entry))


@pytest.mark.parametrize("entry", WITHOUT_CAPTURE)
def test_an_entry_without_a_capture_has_its_test_of_behaviour(entry):
    for path in BEHAVIOUR[entry]:
        assert "proof" in (HERE.parents[1] / path).read_text("utf-8")


def test_there_is_no_capture_of_an_entry_that_the_catalogue_lacks():
    assert {_expected(path)["entry"] for path in CAPTURES} == set(ENTRIES) - set(WITHOUT_CAPTURE)
