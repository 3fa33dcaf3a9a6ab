"""Make docs/causes.md from the rules and the duration table. `--check` compares instead of writing.

The page is what somebody reads who was woken by a cause: what it does to the numbers, how long it must last, what ends
it, what to do. It is generated, because a table that is kept by hand is wrong by the tenth rule.
"""

import argparse
import pathlib
import re
import sys

from agent.core import blinded
from agent.core.rules import table
from agent.model import policy
from agent.model.finding import Effect, Rule
from muster.model.vocabulary import Reason, Remedy

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "causes.md"

AGENT_FAILED = (
    "agent", f"`{blinded.CAUSE}`", "`BLIND`", "admit unknown", "one cycle", Reason.PLANE_UNREADABLE.value,
    Remedy.INVESTIGATE.value, "a cycle succeeds",
)  # fmt: skip
"""The one cause without a rule: no rule runs in a cycle that failed."""

HEAD = """# Causes

Every finding of a report names its cause. This page is made from the rules (`make causes`); change it there.

The entry is that of the fault catalogue; a word instead of a letter and a number is a cause beyond the catalogue, and `X-word` one
form of entry X. *Lasts* is how long the evidence must last, in how many clean samples, before the verdict stands; until then it is
`TRANSIENT` with a deadline. Some wait for a moment as well, the end of a node's boot or of a kubelet's start; the finding's own deadline
says which. The numbers fall at the first sample all the same. Nothing latches: *ends* says what clears it.
"""

EFFECTS = {
    Effect.NONE: "none",
    Effect.BAD: "its ids are not usable",
    Effect.TAKEN: "its ids are not free, and a pick may hit them",
    Effect.HELD: "its ids are not free",
    Effect.BLOCK: "admit 0, or what kubelet named",
    Effect.ZERO: "admit 0 until the deadline",
    Effect.BLIND: "admit unknown",
}
"""What a finding does to its resource's numbers, in few words."""


def page() -> str:
    """Return the whole page."""
    rows = sorted(table.ROWS.values(), key=lambda rule: _order(rule.id))
    lines = [
        "| entry | cause | verdict | numbers | lasts | reason | remedy | ends when |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(rule) for rule in rows),
        _line(AGENT_FAILED),
    ]
    sources = [
        "| duration | value | source |",
        "|---|---|---|",
        *(f"| {name} | {_lasts(name)} | {row.source} |" for name, row in sorted(policy.DURATIONS.items())),
    ]
    return "\n".join([HEAD, *lines, "\n## Durations\n", *sources]) + "\n"


def _row(rule: Rule) -> str:
    cells = (
        rule.id, f"`{rule.cause}`", f"`{rule.verdict.value}`", EFFECTS[rule.effect], _lasts(rule.wait), rule.reason.value,
        rule.remedy.value, rule.clears_when,
    )  # fmt: skip
    return _line(cells)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _lasts(name: str) -> str:
    if not name:
        return "one sample"
    row = policy.DURATIONS[name]
    return f"{row.seconds:g} s, {row.samples} samples" if row.samples > 1 else f"{row.seconds:g} s"


def _order(name: str) -> tuple[str, int, str]:
    """Catalogue entries first, by letter and number; then words.

    >>> sorted(["maintenance", "B10", "B2", "S4-low"], key=_order)
    ['B2', 'B10', 'S4-low', 'maintenance']
    """
    entry = re.match(r"([A-Z])(\d+)", name)
    return (entry[1], int(entry[2]), name) if entry else ("~", 0, name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make docs/causes.md from the rules.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("docs/causes.md is not what the rules say: run `make causes`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
