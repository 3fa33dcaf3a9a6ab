"""The page of rules is the rules, and says something for every effect and every privilege."""

import datetime

from agent.core import blinded
from agent.core.rules import table
from agent.model.finding import Effect
from agent.model.privilege import Privilege
from hack import rulespage
from muster.model.report import NodeReport, Verdict


def section(title):
    return rulespage.page().split(f"## {title}\n")[1].split("\n## ")[0]


def entries(title):
    rows = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [line.split(" | ")[0].removeprefix("| ") for line in rows if not line.startswith("| entry")]


def test_every_effect_and_every_privilege_has_words():
    assert rulespage.EFFECTS.keys() == set(Effect)
    assert rulespage.GRANTS.keys() == set(Privilege)


def test_every_rule_has_one_row_in_both_tables_and_the_catalogue_comes_in_its_order():
    rows = entries("What a finding means")
    assert sorted(rows) == sorted([*table.ROWS, "agent"])
    assert rows.index("A9") < rows.index("A10") < rows.index("B1") < rows.index("maintenance")
    assert entries("What a rule looks at") == [row for row in rows if row != "agent"]


def test_a_row_names_what_reading_its_fields_takes():
    (row,) = [line for line in section("What a rule looks at").splitlines() if line.startswith("| E5 |")]
    assert row.endswith("| gpu-devices, host-pid, pod-resources |")


def test_the_failed_cycle_says_what_the_page_says():
    report = NodeReport(
        node="a", taken_at=datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC), verdict=Verdict.OK, resources={}
    )
    (finding,) = blinded.blinded(report, report.taken_at, "boom").node_findings
    _, _, _, cause, verdict, _, _, reason, remedy, clears_when = rulespage.AGENT_FAILED
    assert (cause, verdict) == (f"`{finding.cause}`", f"`{finding.verdict.value}`")
    assert (reason, remedy, clears_when) == (finding.reason, finding.remedy, finding.clears_when)


def test_the_committed_page_is_what_the_rules_say():
    assert rulespage.PAGE.read_text() == rulespage.page()
