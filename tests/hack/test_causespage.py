"""The page of causes is the rules, and says something for every effect."""

from agent.core.rules import table
from agent.model.finding import Effect
from hack import causespage


def test_every_effect_has_words():
    assert causespage.EFFECTS.keys() == set(Effect)


def test_every_rule_has_one_row_and_the_catalogue_comes_in_its_order():
    rows = [line.split(" | ")[0].removeprefix("| ") for line in causespage.page().splitlines() if "` | `" in line]
    assert sorted(rows) == sorted(table.ROWS)
    assert rows.index("A9") < rows.index("A10") < rows.index("B1") < rows.index("maintenance")


def test_the_committed_page_is_what_the_rules_say():
    assert causespage.PAGE.read_text() == causespage.page()
