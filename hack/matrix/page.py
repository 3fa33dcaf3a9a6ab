"""docs/fault-matrix.md: which profile sees which fault, and where a number is higher for want of privilege.

In: all outcomes. Out: the page as text, and the figures as values. Sorted throughout: the same captures give the same page.
"""

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent.core.rules import evidence, table
from agent.model import privilege
from agent.model.privilege import Privilege
from hack.matrix.profiles import PROFILES, Profile
from hack.matrix.verdicts import Outcome, Sight

HEAD = """# Which profile sees which fault

Made by `make matrix` from the captures of `tests/captures`: each is replayed as it is, and once more for each profile of the
DaemonSet with the planes taken away that the profile cannot read. Change the captures or the rules, never this page.

## Profiles

"""

LEGEND = """
## Faults

One row for each entry of the fault catalogue. *seen*: the cause is named and stands at the same line as with full privilege. *later*:
at a later one. *as X*: the fault is noticed under another name, and no number is higher. *blind*: the agent says that it cannot
see, and admits nothing. *unseen*: nothing is said. *quiet*: a healthy state, and nothing is said; *alarm (X)*: a healthy state, and
something is. **+** marks a number that is higher than with full privilege at some line; the last section says why. Where the captures
of an entry differ, the worst is shown.

"""

UNSEEN = """
## What is unseen, and what it would take

"""

ABOVE = """
## Where a number is higher than with full privilege

Less privilege never admits more, except where what lowers the number leaves no trace in what the profile can read. These are all such
places; a test fails on one that is not excused by a field that the profile lacks.

"""

FIGURES = """
## Figures

Captures whose expected file is met word for word, of all, twins included. Other profiles than the first are held against the same
files, which were written for full privilege: a cause under another name, or a count that only the Node tells, is a miss here.

"""

_BADNESS = {sight: rank for rank, sight in enumerate(Sight)}


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the whole page."""
    parts = [
        HEAD,
        *_profiles(),
        LEGEND,
        *_faults(outcomes),
        UNSEEN,
        *_unseen(outcomes),
        ABOVE,
        *_above(outcomes),
        FIGURES,
    ]
    return "".join(part if part.endswith("\n") else part + "\n" for part in (*parts, *_figures(outcomes)))


def figures(outcomes: Iterable[Outcome]) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Return profile -> group -> right, total and how many are seen in what way."""
    found: dict[str, dict[str, collections.Counter[str]]] = {}
    for item in outcomes:
        for group in (group_of(item.entry), "all"):
            counts = found.setdefault(item.profile, {}).setdefault(group, collections.Counter())
            counts.update(
                {"total": 1, "right": int(item.is_right), item.sight.value: 1, "above": int(bool(item.above))}
            )
    return found


def group_of(entry: str) -> str:
    """Return the catalogue's group of an entry: A1 -> A."""
    return entry[:1]


def order(entry: str) -> tuple[str, int, str]:
    """Sort entries as the catalogue does.

    >>> sorted(["B10", "B2", "A1"], key=order)
    ['A1', 'B2', 'B10']
    """
    match = re.match(r"([A-Z]+)(\d+)", entry)
    return (match[1], int(match[2]), entry) if match else ("~", 0, entry)


def line(cells: Iterable[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(cells) + " |"


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield line(cells)
    yield "|" + "---|" * len(cells)


def _profiles() -> Iterator[str]:
    yield from _head(("profile", "how it is deployed", "lacks"))
    for profile in PROFILES:
        lacks = " ".join(f"`{missing}`" for missing in sorted(profile.lacks)) or "nothing"
        yield line((f"`{profile.name}`", profile.what, lacks))


def _faults(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from _head(("entry", *(profile.name for profile in PROFILES)))
    for entry, by_profile in _by_entry(outcomes):
        yield line((entry, *(_cell(by_profile[profile.name]) for profile in PROFILES)))


def _by_entry(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, dict[str, list[Outcome]]]]:
    """Yield each entry's outcomes by profile; twins show another state and have no row."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    for item in outcomes:
        if not item.is_twin:
            found.setdefault(item.entry, {}).setdefault(item.profile, []).append(item)
    for entry in sorted(found, key=order):
        yield entry, found[entry]


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome that sees least."""
    return max(outcomes, key=lambda item: (_BADNESS[item.sight], item.words, item.capture))


def _cell(outcomes: list[Outcome]) -> str:
    item = worst(outcomes)
    mark = " **+**" if any(each.above for each in outcomes) else ""
    match item.sight:
        case Sight.OTHER:
            return f"as {item.words}{mark}"
        case Sight.LATER | Sight.FALSE_ALARM:
            return f"{item.sight.value} ({item.words}){mark}"
        case _:
            return f"{item.sight.value}{mark}"


def _unseen(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from _head(("entry", "unseen in", "the rules behind it need"))
    for entry, by_profile in _by_entry(outcomes):
        blind = [p for p in PROFILES if any(item.sight is Sight.UNSEEN for item in by_profile[p.name])]
        if blind:
            causes = {cause for items in by_profile.values() for item in items for cause in item.causes}
            yield line((entry, " ".join(f"`{p.name}`" for p in blind), ", ".join(_wanted(causes, blind)) or "-"))


def _wanted(causes: set[str], blind: Iterable[Profile]) -> Iterator[str]:
    lacked: set[Privilege] = set().union(*(profile.lacks for profile in blind))
    needs = {path for rule in table.ROWS.values() if rule.cause in causes for path in evidence.OF_RULE[rule.id].needs}
    for path in sorted(needs):
        if privilege.of(path) in lacked:
            yield f"`{path}` ({privilege.of(path)})"


def _above(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found: dict[tuple[str, str], set[str]] = {}
    for item in outcomes:
        for above in item.above:
            found.setdefault((item.capture, "; ".join(above.because)), set()).add(item.profile)
    yield from _head(("capture", "profiles", "because"))
    for (capture, because), under in sorted(found.items()):
        names = " ".join(f"`{profile.name}`" for profile in PROFILES if profile.name in under)
        yield line((f"`{capture}`", names, because or "**nothing excuses it**"))


def _figures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    counted = figures(outcomes)
    groups = sorted(group for group in counted[PROFILES[0].name] if group != "all")
    yield from _head(("profile", *groups, "all"))
    for profile in PROFILES:
        rows = counted[profile.name]
        yield line((f"`{profile.name}`", *(_share(rows.get(group, {})) for group in (*groups, "all"))))


def _share(counts: Mapping[str, Any]) -> str:
    return f"{counts.get('right', 0)}/{counts.get('total', 0)}"
