"""Which nodes carry our taint: every node's case at one moment -> the changes to make.

Input: a `Case` for each node, the fleet's size, what bars every taint just now, policy. Output: `TaintChange`s, and why a taint
that is wanted is withheld. `age` moves a node's history on.

Rules. A verdict taints when it has stood for `after_seconds`; the taint goes when the node has been well for `clear_seconds`.
A silent node keeps what it has until the evidence is `forget_seconds` old: staleness alone neither taints nor frees.
A node is never tainted where the taint would keep out a DaemonSet that serves its devices, since that pod is the cure; a
taint that does is lifted at once. While the breaker holds nobody is tainted.

Invariant: after the changes, no more nodes are tainted than the cap allows or than were before. The worst verdict comes
first, then who has waited longest, then the name; a node that has the taint is not displaced.

Not here: which DaemonSets those are (keepers.py), the patch (publish/nodes.py).
"""

import collections
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from admitter.model.nodestatus import Facts, TaintChange, TaintPolicy, Word
from muster.model.report import Verdict

_BADNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}
_WELL = frozenset({Verdict.OK, Verdict.UNDER})
"""UNDER promises too little: what is advertised can be had."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaintHistory:
    """How long a node has been in a state that bears on the taint; None: it is not."""

    bad_since: float | None = None
    well_since: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One node at one moment."""

    facts: Facts
    verdict: Verdict | None
    """None: its agent is silent."""
    silent_seconds: float
    history: TaintHistory
    keeps_out: tuple[str, ...] = ()
    """DaemonSets that serve its devices and do not tolerate the taint, namespace/name, sorted."""
    pending: tuple[str, ...] = ()
    """Pods of DaemonSets that serve its devices, made for this node, not bound yet and not tolerating the taint, sorted."""


class Withheld(enum.StrEnum):
    """Why a taint that a verdict asks for is not there."""

    CURE = "cure"
    CAP = "cap"
    BREAKER = "breaker"
    UNREAD = "daemonsets-unread"
    """Nobody knows whom it would keep out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    changes: tuple[TaintChange, ...]
    withheld: Mapping[str, Withheld]
    """By node."""


def age(history: TaintHistory, verdict: Verdict | None, policy: TaintPolicy, now: float) -> TaintHistory:
    """Return the history with what is seen now; what breaks a spell off starts it anew."""
    return TaintHistory(
        bad_since=_start(history.bad_since, now) if verdict in policy.verdicts else None,
        well_since=_start(history.well_since, now) if verdict in _WELL - policy.verdicts else None,
    )


def _start(since: float | None, now: float) -> float:
    return now if since is None else since


def verdict_of(word: Word, node_ttl_seconds: float) -> Verdict | None:
    """Return the verdict, if the agent is heard."""
    return word.report.verdict if word.report is not None and word.silent_seconds <= node_ttl_seconds else None


def plan(cases: Iterable[Case], *, fleet: int, barred: Withheld | None = None, policy: TaintPolicy, now: float) -> Plan:
    """Return the changes of this moment; `barred`: why nobody may be tainted just now."""
    every = sorted(cases, key=lambda case: case.facts.node)
    changes = {case.facts.node: change for case in every if (change := _lifted(case, policy, now)) is not None}
    standing = [case for case in every if case.facts.taint and case.facts.node not in changes]
    wanting = [case for case in every if not case.facts.taint and _is_ripe(case, policy, now)]
    cap = policy.cap(fleet)
    # The fleet has shrunk, or somebody has lowered the cap: the least bad are freed.
    for case in sorted(standing, key=_rank)[cap:]:
        changes[case.facts.node] = _change(case, "", f"over the cap of {cap} tainted nodes")
    for case in standing:
        if case.facts.node not in changes and _is_ripe(case, policy, now) and case.facts.taint != case.verdict:
            changes[case.facts.node] = _change(case, str(case.verdict), f"was {case.facts.taint}")
    withheld: dict[str, Withheld] = {}
    # A place is free when the taint is seen to be gone: the request that lifts it may fail.
    room = cap - sum(bool(case.facts.taint) for case in every)
    for case in sorted(wanting, key=_rank):
        if case.keeps_out or case.pending:
            withheld[case.facts.node] = Withheld.CURE
        elif barred is not None:
            withheld[case.facts.node] = barred
        elif room <= 0:
            withheld[case.facts.node] = Withheld.CAP
        else:
            room -= 1
            stood = f"the verdict has stood for {policy.after_seconds:g} s"
            changes[case.facts.node] = _change(case, str(case.verdict), stood)
    return Plan(changes=tuple(changes[node] for node in sorted(changes)), withheld=withheld)


def count(withheld: Mapping[str, Withheld]) -> Mapping[str, int]:
    """Return how many nodes go without for each reason."""
    found = collections.Counter(why.value for why in withheld.values())
    return {why.value: found[why.value] for why in Withheld}


def _lifted(case: Case, policy: TaintPolicy, now: float) -> TaintChange | None:
    """Return the change that takes the node's taint away, if something asks for that."""
    if not case.facts.taint:
        return None
    well_since = case.history.well_since
    reasons: Sequence[tuple[bool, str]] = (
        (not policy.enabled, "taints are switched off"),
        (bool(case.pending), f"it keeps out the cure: {_some(case.pending)} is Pending because of it"),
        (bool(case.keeps_out), f"it would keep out the cure: {_some(case.keeps_out)} does not tolerate it"),
        (case.silent_seconds > policy.forget_seconds, f"nothing was heard for over {policy.forget_seconds:g} s"),
        (
            well_since is not None and now - well_since >= policy.clear_seconds,
            f"the node has been well for {policy.clear_seconds:g} s",
        ),
    )
    return next((_change(case, "", why) for holds, why in reasons if holds), None)


def _is_ripe(case: Case, policy: TaintPolicy, now: float) -> bool:
    since = case.history.bad_since
    return policy.enabled and since is not None and now - since >= policy.after_seconds


def _rank(case: Case) -> tuple[int, float, str]:
    # A silent node's taint says what its verdict was.
    verdict = case.verdict or Verdict.__members__.get(case.facts.taint, Verdict.OK)
    since = case.history.bad_since
    return _BADNESS[verdict], float("inf") if since is None else since, case.facts.node


def _change(case: Case, value: str, why: str) -> TaintChange:
    return TaintChange(node=case.facts.node, uid=case.facts.uid, value=value, why=why)


def _some(names: tuple[str, ...]) -> str:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""
