"""`replay` prints what the core says after the last line, and its exit status says whether to look."""

import importlib.resources
import json
import pathlib

import jsonschema
import pytest

from agent import replay
from muster.model import jsonform
from muster.model.reading import Unknown
from tests import builders

EXAMPLES = pathlib.Path(__file__).parents[1] / "contracts" / "examples"
CAPTURES = sorted((pathlib.Path(__file__).parents[1] / "captures").glob("*.jsonl"))
SCHEMA = json.loads((importlib.resources.files("agent") / "contracts" / "verdict.schema.json").read_text())


def write(path, *observations):
    path.write_text("".join(json.dumps(jsonform.to_json(item)) + "\n" for item in observations))
    return path


@pytest.mark.parametrize(
    ("name", "verdict", "strict", "lenient", "risk"),
    [("a1-plugin-down", "UNDER", 0, 0, 0), ("b2-gpu-lost", "OVER", 0, 7, 0.125)],
)
def test_the_examples_of_the_contract(name, verdict, strict, lenient, risk, capsys):
    assert replay.replay(EXAMPLES / f"{name}.jsonl", as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    resource = report["resources"]["nvidia.com/gpu"]
    assert (report["verdict"], resource["verdict"]) == (verdict, verdict)
    assert (resource["admit_strict"], resource["admit_lenient"], resource["pick_risk"]) == (strict, lenient, risk)


def test_the_first_line_alone_is_transient_for_a_minute(tmp_path, capsys):
    lines = (EXAMPLES / "a1-plugin-down.jsonl").read_text().splitlines()
    first = tmp_path / "first.jsonl"
    first.write_text(lines[0])
    assert replay.replay(first, as_json=True) == 0
    resource = json.loads(capsys.readouterr().out)["resources"]["nvidia.com/gpu"]
    assert (resource["verdict"], resource["deadline"]) == ("TRANSIENT", "2026-12-01T10:01:00Z")


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_verdict_fits_the_schema(path, capsys):
    status = replay.replay(path, as_json=True)
    report = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert status == (0 if report["verdict"] in ("OK", "TRANSIENT") else 1)


def test_a_healthy_node_fits_on_one_line_and_a_resource(tmp_path, capsys):
    assert replay.replay(write(tmp_path / "ok", builders.a_node()), as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gpu-a1  OK  at 2026-12-01T10:00:00Z"
    assert "  admit 8 strict, 8 lenient, pick risk 0" in lines


def test_a_person_reads_the_cause_and_what_to_do(capsys):
    assert replay.replay(EXAMPLES / "b2-gpu-lost.jsonl", as_json=False) == 1
    text = capsys.readouterr().out
    for expected in ("gpu-a1  OVER", "GpuLostStillPromised", "do: DrainAndResetGpu", "0 strict, 7 lenient"):
        assert expected in text
    assert len(text.splitlines()) <= 24


def test_an_unknown_number_is_not_printed_as_zero(tmp_path, capsys):
    blind = builders.a_node(kubelet=Unknown("Unimplemented"))
    assert replay.replay(write(tmp_path / "blind", blind), as_json=False) == 1
    assert "admit unknown (Blind) strict" in capsys.readouterr().out


def test_a_file_that_is_no_capture_is_status_2_with_every_problem(tmp_path, capsys):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"schema": "muster.capture/v1"}\n{')
    assert replay.replay(path, as_json=True) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 3
