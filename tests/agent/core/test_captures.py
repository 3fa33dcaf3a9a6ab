"""Every capture under tests/captures, line by line, against the answer that the fault catalogue gives.

The format of the expected files is tests/captures/README.md; hack/matrix holds reports against them.
"""

import json
import pathlib

import pytest

from agent.model.policy import Policy
from hack.matrix import answers, captures
from muster.model import jsonform

CAPTURES = pathlib.Path(__file__).parents[2] / "captures"
FILES = sorted(CAPTURES.glob("*.expected.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_the_catalogue_decides(path):
    capture = captures.load(path)
    reports = [jsonform.to_json(report) for report in captures.replay(capture, Policy())]
    wrong = [
        f"line {entry['line']}: {difference}"
        for entry in capture.expected["after_line"]
        for difference in answers.differences(reports[entry["line"] - 1], entry)
    ]
    assert not wrong, "\n".join([capture.expected["why"], *wrong])


def test_there_are_captures_for_every_required_entry():
    entries = {json.loads(path.read_text())["entry"] for path in FILES}
    required = {"A1", "A2", "A5", "B2", "B9", "C1", "C4", "C11", "D1", "D4", "E4", "E5", "F1", "H2", "H3", "H4"}
    healthy = {"N1", "N2", "N5", "N7", "N8"}
    assert required | healthy <= entries
