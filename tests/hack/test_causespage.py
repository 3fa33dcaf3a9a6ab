"""The page of causes is the rules, and says something for every effect."""

import datetime

from agent.core import blinded
from agent.core.rules import table
from agent.model.finding import Effect
from hack import causespage
from muster.model.report import NodeReport, Verdict


def test_every_effect_has_words():
    assert causespage.EFFECTS.keys() == set(Effect)


def test_every_rule_has_one_row_and_the_catalogue_comes_in_its_order():
    rows = [line.split(" | ")[0].removeprefix("| ") for line in causespage.page().splitlines() if "` | `" in line]
    assert sorted(rows) == sorted([*table.ROWS, "agent"])
    assert rows.index("A9") < rows.index("A10") < rows.index("B1") < rows.index("maintenance")


def test_the_failed_cycle_says_what_the_page_says():
    report = NodeReport(
        node="a", taken_at=datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC), verdict=Verdict.OK, resources={}
    )
    (finding,) = blinded.blinded(report, report.taken_at, "boom").node_findings
    _, cause, verdict, _, _, reason, remedy, clears_when = causespage.AGENT_FAILED
    assert (cause, verdict) == (f"`{finding.cause}`", f"`{finding.verdict.value}`")
    assert (reason, remedy, clears_when) == (finding.reason, finding.remedy, finding.clears_when)


def test_the_committed_page_is_what_the_rules_say():
    assert causespage.PAGE.read_text() == causespage.page()
