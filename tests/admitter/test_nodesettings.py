"""Settings of what Muster says on Nodes."""

import pytest

from admitter import nodesettings
from admitter.model.ruling import HoldMode
from admitter.nodesettings import NodeSettings
from muster import settings
from muster.model.report import Verdict


def load(**flags):
    return settings.load(NodeSettings, "TEST", flags, {}, nodesettings.CHECKS)


def test_nobody_is_silent_who_still_counts():
    assert load(silent_seconds="5").status_policy(15.0).silent_seconds == 15.0
    assert load().status_policy(15.0).silent_seconds == 60.0


def test_nothing_is_tainted_by_default():
    made = load()
    assert not made.taint_policy.enabled
    assert made.taint_policy.verdicts == {Verdict.BLOCKED, Verdict.WRONG_SHAPE, Verdict.OVER}
    assert made.hold_policy.mode is HoldMode.STANDS


@pytest.mark.parametrize(("text", "fleet", "cap"), [("3", 1000, 3), ("10%", 55, 5), ("0", 9, 0), ("100%", 9, 9)])
def test_the_cap_is_a_count_or_a_share(text, fleet, cap):
    assert load(taint_cap=text).taint_policy.cap(fleet) == cap


def test_every_problem_at_once_with_its_flag():
    with pytest.raises(settings.InvalidSettings) as caught:
        load(taint_cap="many", taint_verdicts="OVER,BLIND,X")
    assert caught.value.problems == (
        "--taint-cap: 'many' is neither a count nor a percentage",
        "--taint-verdicts: BLIND, X: not among BLOCKED, WRONG_SHAPE, OVER, CONTENDED, UNDER",
    )


@pytest.mark.parametrize("text", ["101%", "-1", "1.5", "", "10 %"])
def test_what_is_no_cap(text):
    with pytest.raises(settings.InvalidSettings):
        load(taint_cap=text)
