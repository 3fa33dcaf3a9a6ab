"""Every capture under tests/captures, line by line, against the answer that the fault catalogue gives.

The format of the expected files is tests/captures/README.md; hack/matrix holds reports against them.
"""

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


TWINS = sorted(CAPTURES.glob("*-twin.expected.json"))


def answers_of(path):
    """Return what a person or the admitter would act on, after each line."""
    reports = (jsonform.to_json(report) for report in captures.replay(captures.load(path), Policy()))
    return [
        (
            report["verdict"],
            {
                name: (
                    *(resource[key] for key in (*answers.COUNTS, "pick_risk")),
                    frozenset(answers.causes_of(resource["findings"])),
                )
                for name, resource in report["resources"].items()
            },
            answers.causes_of(report["node_findings"]),
            {(pod["pod"], pod["state"]) for pod in report["pods"]},
            {device["uuid"]: device["state"] for device in report["devices"]},
            report["maintenance"] is not None,
        )
        for report in reports
    ]


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_a_twin_changes_the_answer(path):
    """One thing is different, and the core must see it: a rule that fires on both looks at something else."""
    base = path.with_name(path.name.replace("-twin.", "."))
    theirs, own = answers_of(base), answers_of(path)
    assert [answer for answer in own if answer not in theirs] or [answer for answer in theirs if answer not in own]
