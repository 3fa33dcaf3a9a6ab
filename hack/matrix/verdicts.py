"""What a profile makes of a capture, beside what the full one makes of it.

In: a capture, a profile. Out: an `Outcome`: whether the fault is seen, and whether any number is higher than with full
privilege.

Invariant: "seen" is never said of a cause that the profile's own reports do not name. Null counts as 0 units, since it
leases nothing (design.md section 3).
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.core import unconfirmed
from agent.core.rules import evidence, table
from agent.model import privilege
from agent.model.finding import Effect
from agent.model.policy import Policy
from agent.model.privilege import Privilege
from hack.matrix import answers, captures, profiles
from hack.matrix.captures import Capture
from hack.matrix.profiles import Profile
from muster.model import jsonform
from muster.model.reading import Known, Reading
from muster.model.report import Finding, NodeReport, Verdict


class Sight(enum.StrEnum):
    """How much of a fault a profile sees, the best first."""

    QUIET = "quiet"
    """There is nothing to see, and nothing is said."""
    SEEN = "seen"
    LATER = "later"
    """The cause is named, or stands, at a later line."""
    OTHER = "as"
    """Another cause is named; the node is not called OK, and no number is higher."""
    BLIND = "blind"
    """The agent says that it cannot see."""
    FALSE_ALARM = "alarm"
    """Something is said that full privilege would not say: of a healthy node."""
    UNSEEN = "unseen"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """One number that is higher than with full privilege."""

    line: int
    resource: str
    number: str
    here: int
    full: int
    because: tuple[str, ...]
    """What lowers it with full privilege and cannot be seen here; empty: nothing excuses it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One capture under one profile."""

    capture: str
    entry: str
    is_twin: bool
    profile: str
    sight: Sight
    words: str = ""
    """The other cause, or how much later."""
    above: tuple[Above, ...] = ()
    """Numbers that are higher than with full privilege."""
    is_right: bool = False
    """The whole expected file is met."""
    causes: frozenset[str] = frozenset()
    """The fault's causes."""


Reports = Sequence[NodeReport]


def outcomes(capture: Capture, under: Iterable[Profile], policy: Policy) -> Iterator[Outcome]:
    """Yield the outcome under each profile, the full one's first."""
    full = captures.replay(capture, policy)
    for profile in under:
        yield outcome(capture, profile, full, reports_under(capture, profile, policy))


def reports_under(capture: Capture, profile: Profile, policy: Policy) -> Reports:
    """Return the reports of a profile."""
    seen = tuple(profiles.seen_by(profile.lacks, item) for item in capture.observations)
    return captures.judged(seen, policy, api_server=profiles.has_api_server(profile.lacks, capture.api_server))


def outcome(capture: Capture, profile: Profile, full: Reports, own: Reports) -> Outcome:
    """Return what the profile makes of the capture."""
    above = tuple(_above(profile, full, own))
    causes = causes_of(capture, full)
    sight, words = _sight(causes, full, own)
    if sight is Sight.OTHER and above:
        sight, words = Sight.UNSEEN, ""  # a name that lets more in than the fault allows has not seen it
    return Outcome(
        capture=capture.name,
        entry=capture.entry,
        is_twin=capture.is_twin,
        profile=profile.name,
        sight=sight,
        words=words,
        above=above,
        is_right=not any(_wrong(capture, own)),
        causes=causes,
    )


def causes_of(capture: Capture, full: Reports) -> frozenset[str]:
    """Return the causes that the expected file asks for; where it names none, those of the full profile's findings."""
    found: set[str] = set()
    for after in capture.expected["after_line"]:
        found |= {*after.get("causes", ()), *after.get("node_causes", ())}
        for resource in after.get("resources", {}).values():
            found |= set((resource or {}).get("causes", ()))
    return frozenset(found or set().union(*map(_causes, full)) - {unconfirmed.RISE.cause})


def _wrong(capture: Capture, reports: Reports) -> Iterator[str]:
    shown: dict[int, Any] = {}
    for after in capture.expected["after_line"]:
        line = after["line"]
        shown.setdefault(line, jsonform.to_json(reports[line - 1]))
        yield from answers.differences(shown[line], after)


def _sight(faults: frozenset[str], full: Reports, own: Reports) -> tuple[Sight, str]:
    named = [causes & faults for causes in map(_causes, full)]
    first, first_here = _first(named), _first([causes & faults for causes in map(_causes, own)])
    if first is None:
        return _healthy(full, own)
    if first_here is None:
        return _unnamed(named, own)
    if first_here > first:
        return Sight.LATER, _delay(own, first, first_here)
    stands, stands_here = _first(_standing(full, faults)), _first(_standing(own, faults))
    if stands is not None and (stands_here is None or stands_here > stands):
        return Sight.LATER, _delay(own, stands, stands_here)
    return Sight.SEEN, ""


def _healthy(full: Reports, own: Reports) -> tuple[Sight, str]:
    """Nothing is wrong, by the catalogue: whoever says something that full privilege does not say is wrong."""
    for before, report in zip(full, own, strict=True):
        if report.verdict is Verdict.BLIND and before.verdict is not Verdict.BLIND:
            return Sight.BLIND, ""
        if report.verdict is not Verdict.OK and before.verdict is Verdict.OK:
            return Sight.FALSE_ALARM, ", ".join(sorted(_causes(report) - _causes(before)))
    return Sight.QUIET, ""


def _unnamed(named: Sequence[set[str]], own: Reports) -> tuple[Sight, str]:
    """The cause is never named: what is said instead, at the lines where full privilege names it."""
    during = [report for report, causes in zip(own, named, strict=True) if causes]
    if all(report.verdict is Verdict.OK for report in during):
        return Sight.UNSEEN, ""
    if any(report.verdict is Verdict.BLIND for report in during):
        return Sight.BLIND, ""
    return Sight.OTHER, ", ".join(sorted(set().union(*map(_alarming, during))))


def _first(shown: Sequence[set[str]]) -> int | None:
    return next((line for line, causes in enumerate(shown) if causes), None)


def _delay(own: Reports, since: int, until: int | None) -> str:
    if until is None:
        return "does not stand by the last line"
    return f"{(own[until].taken_at - own[since].taken_at).total_seconds():g} s"


def _findings(report: NodeReport) -> Iterator[Finding]:
    yield from report.node_findings
    for resource in report.resources.values():
        yield from resource.findings


def _causes(report: NodeReport) -> set[str]:
    return {finding.cause for finding in _findings(report)}


def _alarming(report: NodeReport) -> set[str]:
    return {finding.cause for finding in _findings(report) if finding.verdict is not Verdict.OK}


def _standing(reports: Reports, faults: frozenset[str]) -> list[set[str]]:
    """Return, line by line, the fault's causes whose evidence is complete."""
    return [
        {item.cause for item in _findings(report) if item.cause in faults and item.verdict is not Verdict.TRANSIENT}
        for report in reports
    ]


def _above(profile: Profile, full: Reports, own: Reports) -> Iterator[Above]:
    """Yield every number that is higher than with full privilege."""
    last: tuple[str, ...] = ()
    for line, (before, report) in enumerate(zip(full, own, strict=True), start=1):
        rising = unconfirmed.RISE.cause in _causes(before)
        for name in report.resources:
            of_full = numbers_of(before, name)
            for key, value in numbers_of(report, name).items():
                if value > of_full[key]:
                    because = tuple(sorted(set(_invisible(profile, name, before, report, value))))
                    # With full privilege the rise after the fault waits for its second clean sample.
                    because = last = because or (last if rising else ())
                    yield Above(line=line, resource=name, number=key, here=value, full=of_full[key], because=because)


def _invisible(profile: Profile, name: str, before: NodeReport, report: NodeReport, value: int) -> Iterator[str]:
    """Yield what lowers the number with full privilege and leaves no trace in what the profile can read."""
    shown = {finding.rule for finding in _findings(report)}
    for finding in _findings(before):
        rule_id = finding.rule.partition("/")[0]
        looks_at = evidence.OF_RULE[rule_id]
        missing = {privilege.of(path) for path in looks_at.needs or looks_at.uses} & profile.lacks
        if finding.rule not in shown and table.ROWS[rule_id].effect is not Effect.NONE and missing:
            yield f"{rule_id} needs {', '.join(sorted(missing))}"
    if Privilege.NODE_SLICE in profile.lacks and name in before.resources:
        resource = before.resources[name]
        asked = sum(pod.units for pod in resource.counted)
        waiting = max(0, asked - _units(resource.allocated))
        if min(_units(resource.allocatable) - asked, _units(resource.free) - waiting) < value:
            yield "what bound pods ask for needs node-slice"


def numbers_of(report: NodeReport, name: str) -> dict[str, int]:
    """Return both admits of a resource; what is not there or not known is 0."""
    resource = report.resources.get(name)
    if resource is None:
        return {"admit_strict": 0, "admit_lenient": 0}
    return {"admit_strict": _units(resource.admit_strict), "admit_lenient": _units(resource.admit_lenient)}


def _units(reading: Reading[int]) -> int:
    return reading.value if isinstance(reading, Known) else 0
