"""Does Muster itself look wrong? Fleet reports over time -> the nodes that are held, and what turned them.

Input: the view of each look, in order. Output: a `Ruling`. A node *turns* when it goes from OK or TRANSIENT to a worse
verdict, or into silence, and each rule turns it on its own. Counted are the turns within the window, by rule, by agent
version and in all; past its threshold each begins a hold. The hold keeps the nodes that it began with, and those that the
same thing turns meanwhile, for as long as they stay so.

Invariants: a hold ends when half its threshold is left of it, at `longest_seconds`, or with its nodes' recovery; no node
is held for what it already was before. A node that is well is never held. Same views, same ruling: names decide no tie.

Why rules and versions beside the share: a bad rule of one GPU model, or a bad agent on a tenth of the nodes, stays below
any share that a power cut does not reach.

First sight: a node that is bad when this admitter first hears of it counts as turned. One that starts into a fleet of which
a third is bad had rather taint nobody; but it has seen no good decision that could stand.

Not here: what stands meanwhile (lastgood.py), conditions and taints (nodestatus.py, taints.py).
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.ruling import NOTHING_HELD, Ground, Hold, HoldPolicy, Ruling
from muster.model import codec
from muster.model.nodeconditions import Standing
from muster.model.report import NodeReport, Verdict

SILENT = Standing.AGENT_SILENT.value
SEVERAL = "several"
UNNAMED = "unnamed"
"""A verdict without a finding that would name a rule."""

LOOK_SECONDS = 0.1
"""A storm of deltas makes a hundred passes a second, and a look at 5,000 nodes takes 2 ms."""
_WELL = frozenset({Verdict.OK, Verdict.TRANSIENT})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One node as it was last seen."""

    rules: frozenset[str] = frozenset()
    """What makes it non-OK; empty: it is well."""
    version: str = ""
    turned: Mapping[str, float] = codec.mapping()
    """Each of those rules: since when."""
    turned_at: float | None = None
    """When it went from well to not."""
    good: NodeReport | None = None
    """Its last report whose verdict was OK."""


class Breaker:
    """Remembers the fleet of one admitter. Nothing in here waits."""

    def __init__(self, policy: HoldPolicy) -> None:
        self._policy = policy
        self._sights: dict[str, Sight] = {}
        self._seen: dict[str, tuple[NodeReport, bool]] = {}
        self._away: dict[str, tuple[Sight, float]] = {}
        """Nodes that left the view, as they do while an agent starts anew, and when."""
        self._holds: dict[tuple[Ground, str], Hold] = {}
        self._ruling = NOTHING_HELD
        self._looked_at = self._checked_at = float("-inf")

    def look(self, view: ClusterView) -> Ruling:
        """Take the next view and return what is held now; views that come thicker than LOOK_SECONDS are passed over."""
        if view.now - self._looked_at < LOOK_SECONDS:
            return self._ruling
        self._looked_at = view.now
        changed = self._take(view)
        # Turns leave the window by themselves, so a quiet fleet is counted too, but not a hundred times a second.
        if changed or view.now - self._checked_at >= 1.0:
            self._checked_at = view.now
            self._renew(view.now)
        return self._ruling

    def _take(self, view: ClusterView) -> bool:
        gone = self._sights.keys() - view.nodes.keys()
        changed = bool(gone)
        for name in gone:
            self._away[name] = (self._sights.pop(name), view.now)
            del self._seen[name]
        for name, state in view.nodes.items():
            is_stale = view.is_stale(name)
            before = self._seen.get(name)
            if before is not None and before[0] is state.report and before[1] is is_stale:
                continue
            self._seen[name] = (state.report, is_stale)
            known = self._sights.get(name) or self._away.pop(name, (Sight(), view.now))[0]
            self._sights[name] = sight(known, state, is_stale=is_stale, now=view.now)
            changed = changed or self._sights[name].rules != known.rules or bool(self._holds)
        return changed

    def _renew(self, now: float) -> None:
        window = now - self._policy.window_seconds
        self._away = {name: item for name, item in self._away.items() if item[1] >= window}
        self._holds = {
            key: kept
            for key, hold in self._holds.items()
            if (kept := grown(hold, self._sights, self._policy, now)) is not None
        }
        for hold in begun(self._sights, self._ruling.nodes, self._policy, window, now):
            self._holds.setdefault((hold.ground, hold.culprit), hold)
        holds = tuple(self._holds[key] for key in sorted(self._holds))
        good = {
            name: report
            for name in frozenset().union(*(hold.nodes for hold in holds))
            if (report := self._sights[name].good) is not None
        }
        self._ruling = Ruling(holds=holds, last_good=codec.freeze(good)) if holds else NOTHING_HELD


def sight(before: Sight, state: NodeState, *, is_stale: bool, now: float) -> Sight:
    """Return a node's sight after its next look."""
    rules = rules_of(state.report)
    if is_stale:
        # What it said stays said; that it is silent comes on top.
        rules |= {SILENT}
    return Sight(
        rules=rules,
        version=state.agent_version,
        turned=codec.freeze({rule: before.turned.get(rule, now) for rule in rules}),
        turned_at=(before.turned_at if before.rules else now) if rules else None,
        good=state.report if not rules and state.report.verdict is Verdict.OK else before.good,
    )


def rules_of(report: NodeReport) -> frozenset[str]:
    """Return the rules that make a report worse than TRANSIENT; none for one that is not."""
    if report.verdict in _WELL:
        return frozenset()
    findings = (*report.node_findings, *(item for each in report.resources.values() for item in each.findings))
    named = {item.rule or item.cause for item in findings if item.verdict not in _WELL and not item.observed}
    return frozenset(named or {UNNAMED})


def grown(hold: Hold, sights: Mapping[str, Sight], policy: HoldPolicy, now: float) -> Hold | None:
    """Return a hold with whom the same thing has turned since, without whom has recovered; None: it is over."""
    if now - hold.since >= policy.longest_seconds:
        return None
    nodes = frozenset(
        name
        for name, seen in sights.items()
        if _is_turned_by(hold, seen) and (name in hold.nodes or _turn(hold, seen) >= hold.since)
    )
    least, total = _threshold(hold, sights, policy)
    if len(nodes) <= max(least / 2, total / 2):
        return None
    return dataclasses.replace(hold, nodes=nodes)


def _is_turned_by(hold: Hold, seen: Sight) -> bool:
    match hold.ground:
        case Ground.RULE:
            return hold.culprit in seen.rules
        case Ground.VERSION:
            return bool(seen.rules) and seen.version == hold.culprit
        case Ground.SHARE:
            return bool(seen.rules)


def _turn(hold: Hold, seen: Sight) -> float:
    at = seen.turned.get(hold.culprit) if hold.ground is Ground.RULE else seen.turned_at
    return float("-inf") if at is None else at


def _threshold(hold: Hold, sights: Mapping[str, Sight], policy: HoldPolicy) -> tuple[float, float]:
    """Return the least number of nodes, and the share of today's fleet, that a hold of this kind begins above."""
    match hold.ground:
        case Ground.RULE:
            return policy.least_nodes, policy.rule_share * len(sights)
        case Ground.VERSION:
            alike = sum(1 for seen in sights.values() if seen.version == hold.culprit)
            return policy.least_nodes, policy.version_share * alike
        case Ground.SHARE:
            return policy.least_nodes, policy.share * len(sights)


def begun(
    sights: Mapping[str, Sight], held: frozenset[str], policy: HoldPolicy, window: float, now: float
) -> Iterator[Hold]:
    """Yield the holds that begin now; a node that is held already begins no other."""
    free = {name: seen for name, seen in sights.items() if seen.rules and name not in held}
    by_rule: dict[str, set[str]] = collections.defaultdict(set)
    for name, seen in free.items():
        for rule, at in seen.turned.items():
            if at >= window:
                by_rule[rule].add(name)
    taken: set[str] = set()
    for rule, nodes in by_rule.items():
        if len(nodes) >= policy.least_nodes and len(nodes) > policy.rule_share * len(sights):
            taken |= nodes
            yield Hold(ground=Ground.RULE, culprit=rule, since=now, nodes=frozenset(nodes))
    recent = {name: seen for name, seen in free.items() if seen.turned_at is not None and seen.turned_at >= window}
    for version, nodes in _by_version(recent, taken).items():
        if _is_the_versions_own(version, nodes, sights, recent, policy):
            taken |= nodes
            yield Hold(ground=Ground.VERSION, culprit=version, since=now, nodes=frozenset(nodes))
    rest = {name: seen for name, seen in recent.items() if name not in taken}
    if len(rest) >= policy.least_nodes and len(rest) > policy.share * len(sights):
        yield Hold(ground=Ground.SHARE, culprit=_commonest(rest.values()), since=now, nodes=frozenset(rest))


def _by_version(recent: Mapping[str, Sight], taken: set[str]) -> dict[str, set[str]]:
    result: dict[str, set[str]] = collections.defaultdict(set)
    for name, seen in recent.items():
        if name not in taken and seen.version:
            result[seen.version].add(name)
    return result


def _is_the_versions_own(
    version: str, nodes: set[str], sights: Mapping[str, Sight], recent: Mapping[str, Sight], policy: HoldPolicy
) -> bool:
    """Return whether a version turned most of its nodes, and the other versions less than half that share of theirs."""
    alike = sum(1 for seen in sights.values() if seen.version == version)
    others = len(sights) - alike
    if len(nodes) < policy.least_nodes or len(nodes) <= policy.version_share * alike or not others:
        return False
    turned_others = sum(1 for seen in recent.values() if seen.version != version)
    return 2 * turned_others / others < len(nodes) / alike


def _commonest(sights: Iterable[Sight]) -> str:
    """Return the rule that most of them have, if it has turned four in five; else that there are several."""
    listed = list(sights)
    counts = collections.Counter(rule for seen in listed for rule in seen.rules)
    rule, number = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return rule if 5 * number >= 4 * len(listed) else SEVERAL
