"""How long before a disagreement counts: (history, suspicions, now) -> evidence, judged findings.

Input: the suspicions of this sample and the evidence of the last. Output: the evidence to remember, and each suspicion
with a verdict: its own once the durations table's evidence is complete, until then TRANSIENT with the end as deadline
(a note whose evidence is not complete is not made yet).

Invariant: nothing latches. Evidence that this sample does not show is dropped, unless the sample could not see (then it
waits, and counts for nothing). Numbers do not wait: an enforced suspicion takes its effect at the first sample.

Why a marker softens: while somebody is announced to be at work on the node, an alarm is what one expects to see
(faults.md section 2). BLIND is not softened: nobody's announcement lets us see.
"""

import dataclasses
import datetime
from collections.abc import Iterable

from agent.core.context import after
from agent.model.finding import Judged, Suspicion
from agent.model.history import MAX_EVIDENCE, Evidence, History
from agent.model.policy import DURATIONS, Mode, Policy
from muster.model.report import Finding, Verdict

MAX_DETAIL = 240
"""Characters of a finding's text: it ends up in conditions, Events and terminals."""

OBSERVED = "observed only: "
"""Begins the text of a finding whose rule has no effect."""

MAX_NAMES = 64
"""Devices named by a finding: an 8-GPU node in full MIG has 56."""


def hold(
    history: History,
    suspicions: Iterable[Suspicion],
    now: datetime.datetime,
    policy: Policy,
    *,
    is_clean: bool,
    maintenance_ends: datetime.datetime | None,
) -> tuple[tuple[Evidence, ...], tuple[Judged, ...]]:
    """Return the evidence to remember and the judged suspicions, sorted."""
    before = {item.key: item for item in history.evidence}
    shown: dict[str, Evidence] = {}
    judged: list[Judged] = []
    for suspicion in sorted(suspicions, key=repr):
        last = before.get(suspicion.key)
        if last is not None and suspicion.is_carried and suspicion.key not in shown:
            evidence = last  # nobody looked: it neither ends nor grows
        else:
            evidence = _grown(last, suspicion.key, now)
        shown[suspicion.key] = evidence
        ends = _end_of_wait(suspicion, evidence, now, policy)
        if ends is None or (suspicion.verdict or suspicion.rule.verdict) is not Verdict.OK:
            judged.append(_judge(suspicion, evidence, policy, ends, maintenance_ends))
    if not is_clean:
        shown = {**before, **shown}
    kept = tuple(shown[key] for key in sorted(shown)[:MAX_EVIDENCE])
    return kept, tuple(judged)


def _grown(last: Evidence | None, key: str, now: datetime.datetime) -> Evidence:
    if last is None:
        return Evidence(key=key, since=now, samples=1)
    return Evidence(key=key, since=min(last.since, now), samples=min(last.samples + 1, 1_000_000))


def _judge(
    suspicion: Suspicion,
    evidence: Evidence,
    policy: Policy,
    ends: datetime.datetime | None,
    maintenance_ends: datetime.datetime | None,
) -> Judged:
    rule = suspicion.rule
    is_enforced = policy.mode(rule.id) is Mode.ENFORCE
    verdict, deadline = suspicion.verdict or rule.verdict, None
    if ends is not None:
        verdict, deadline = Verdict.TRANSIENT, ends
    if maintenance_ends is not None and verdict not in (Verdict.OK, Verdict.BLIND):
        verdict, deadline = Verdict.TRANSIENT, max(maintenance_ends, deadline or maintenance_ends)
    finding = Finding(
        verdict=verdict,
        cause=rule.cause,
        reason=(suspicion.reason or rule.reason).value,
        since=evidence.since,
        devices=tuple(sorted(set(suspicion.devices))[:MAX_NAMES]),
        units=suspicion.units,
        detail=bounded(suspicion.detail),
        remedy=rule.remedy.value,
        rule=f"{rule.id}/{rule.version}",
        clears_when=rule.clears_when,
        deadline=deadline,
    )
    if is_enforced:
        return Judged(suspicion=suspicion, finding=finding, is_enforced=True)
    return Judged(suspicion=suspicion, finding=observed(finding), is_enforced=False)


def observed(finding: Finding) -> Finding:
    """Return the finding of a rule that may only be watched, in words that a person cannot overlook."""
    return dataclasses.replace(finding, observed=True, detail=bounded(f"{OBSERVED}{finding.detail}"))


def _end_of_wait(
    suspicion: Suspicion, evidence: Evidence, now: datetime.datetime, policy: Policy
) -> datetime.datetime | None:
    """Return when the evidence can be complete; None once it is."""
    if suspicion.until is not None:
        return suspicion.until if now < suspicion.until else None
    if not suspicion.rule.wait:
        return None
    duration = DURATIONS[suspicion.rule.wait]
    ends = after(evidence.since, policy.wait(suspicion.rule.wait))
    return ends if now < ends or evidence.samples < duration.samples else None


def bounded(text: str) -> str:
    """Return one line of at most MAX_DETAIL characters.

    >>> bounded("two\\nlines")
    'two lines'
    """
    line = " ".join(text.split())
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"
