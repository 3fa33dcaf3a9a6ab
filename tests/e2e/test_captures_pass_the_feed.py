"""What the agent's core says about every capture is accepted at the admitter's edge."""

import pathlib

import pytest

from admitter.core import check
from agent import replay
from agent.model.policy import Policy
from agent.sources import capturefile

CAPTURES = sorted((pathlib.Path(__file__).parents[1] / "captures").glob("*.jsonl"))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_an_honest_report_is_never_refused(path):
    report = replay.last_report(capturefile.read_capture(path), Policy())
    assert check.check(report) == ()
