"""`make matrix`: replay all captures under every profile, write docs/fault-matrix.md, print the figures.

Out: a table for people and, as the last line, one JSON object. `--check` compares the page instead of writing it. Exit
status 1 if the page is stale, or if a number is higher than with full privilege and nothing excuses it.
"""

import argparse
import json
import pathlib
import sys

from agent.model.policy import Policy
from hack.matrix import captures, page, verdicts
from hack.matrix.profiles import PROFILES
from hack.matrix.verdicts import Outcome

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "fault-matrix.md"


def outcomes() -> tuple[Outcome, ...]:
    """Return every capture under every profile."""
    return tuple(item for capture in captures.load_all() for item in verdicts.outcomes(capture, PROFILES, Policy()))


def unexcused(found: tuple[Outcome, ...]) -> list[str]:
    """Return the numbers that less privilege has raised without a reason."""
    return [
        f"{item.capture} under {item.profile}: line {above.line}: {above.resource} {above.number} {above.here} > {above.full}"
        for item in found
        for above in item.above
        if not above.because
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make matrix", description="Replay all captures under every profile.")
    parser.add_argument("--check", action="store_true", help="compare docs/fault-matrix.md instead of writing it")
    check = parser.parse_args(arguments).check
    found = outcomes()
    problems = unexcused(found)
    text = page.page(found)
    if not check:
        PAGE.write_text(text)
        _print(found)
    elif not PAGE.exists() or PAGE.read_text() != text:
        problems.append("docs/fault-matrix.md is not what the captures show: run `make matrix`")
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def _print(found: tuple[Outcome, ...]) -> None:
    figures = page.figures(found)
    for profile in PROFILES:
        groups = figures[profile.name]
        print(
            f"{profile.name:20}",
            *(f"{group} {groups[group]['right']}/{groups[group]['total']}" for group in sorted(groups)),
        )
    right = {
        profile: {group: [n["right"], n["total"]] for group, n in groups.items()} for profile, groups in figures.items()
    }
    print(json.dumps({"captures_right": right, "unexcused": len(unexcused(found))}))


if __name__ == "__main__":
    sys.exit(main())
