"""Lay out what the nodes of one view can still give.

Input: a ClusterView, the leases that stand, what their pods claim beside devices, policy. Output: a Supply.

Invariant: an offer's units never exceed the node's own admit less what is leased there and not yet counted; a node that
is stale, or a resource whose admit is unknown, offers 0 and says why. Of a resource that no agent reports, what is left is
the Node's allocatable less the requests of its bound pods and of leased pods that are not bound yet: what a lease is held on and
what its pods take beside.

Why a layout of its own: readings, verdicts and topology are looked at when a node changes, not once per gang and node.

Not here: whether a podset may use an offer (fit.py), and what the devices of an offer are (shapes.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from admitter.core import shapes, table
from admitter.core.moved import moved
from admitter.core.supply import Supply
from admitter.core.table import Table
from admitter.model import nodecapacity
from admitter.model.decision import Policy
from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.nodefacts import POD_SLOTS, Claim, NodeFacts
from admitter.model.supply import NodeOffers, Offer
from muster.model import codec
from muster.model.lease import NodeLease
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import Finding, NodeReport, ResourceReport, Verdict, worst

Leases = Mapping[str, Sequence[NodeLease]]
"""Node -> its leases."""
Claims = Mapping[str, Sequence[Claim]]
"""Node -> what leased pods take beside devices."""

NOTHING_BACK: Mapping[tuple[str, str], int] = {}
NO_CLAIMS: Claims = {}
BROKEN_PROMISE = "BrokenPromise"
"""Its kubelet refused a pod that we let go, and nobody knows yet that it will not refuse the next."""
_FAULTLESS = frozenset({Verdict.OK, Verdict.UNDER, Verdict.CONTENDED})
"""Verdicts under which what a holder gives back will be admitted again."""


def of_view(
    view: ClusterView,
    leases: Leases,
    policy: Policy,
    *,
    nodes: Iterable[str] | None = None,
    back: Mapping[tuple[str, str], int] = NOTHING_BACK,
    claims: Claims = NO_CLAIMS,
) -> Supply:
    """Return what the nodes (or only `nodes`) can give.

    `back` are units of (node, resource) that count as free although a pod holds them: they may be the asking gang's own.
    """
    names = sorted(view.nodes if nodes is None else set(nodes) & set(view.nodes))
    laid = codec.freeze(
        {name: _of_node(view, name, leases.get(name, ()), claims.get(name, ()), policy, back) for name in names}
    )
    by_column = table.of_nodes(laid, has_facts=view.facts is not None, is_ideal=False)
    return Supply(version=view.version, nodes=laid, table=by_column, start=by_column)


class Layout:
    """Lays out view after view, and a node only when something about it has changed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[str, _Mark] = {}
        self._last: tuple[_States, Leases, Claims, _Facts] = ({}, {}, {}, {})
        self._stale: set[str] = set()
        self._barred: Mapping[str, str] = {}
        self._now = _Sheet(is_ideal=False)
        self._ideal = _Sheet(is_ideal=True)

    def supply(self, view: ClusterView, leases: Leases, claims: Claims = NO_CLAIMS) -> tuple[Supply, Supply]:
        """Return what the nodes can give now, and what they could give if all were idle and well."""
        now: dict[str, NodeOffers] = {}
        ideal: dict[str, NodeOffers] = {}
        facts = view.facts or {}
        touched = self._moved(view, leases, claims, facts)
        for name in sorted(touched & view.nodes.keys()):
            known, mine, claimed = self._seen.get(name), leases.get(name, ()), claims.get(name, ())
            mark = (view.nodes[name], name in self._stale, mine, claimed, facts.get(name), view.barred.get(name, ""))
            self._seen[name] = mark
            if known is None or not _is_same(known, mark):
                now[name] = _of_node(view, name, mine, claimed, self._policy, NOTHING_BACK)
            if known is None or not _is_as_large(known, mark):
                ideal[name] = _ideal_of_node(name, view.nodes[name], facts.get(name))
        gone = touched & self._seen.keys() - view.nodes.keys()
        for name in gone:
            del self._seen[name]
        has_facts = view.facts is not None
        return (
            self._now.turned(view.version, now, gone, has_facts=has_facts),
            self._ideal.turned(view.version, ideal, gone, has_facts=has_facts),
        )

    def _moved(self, view: ClusterView, leases: Leases, claims: Claims, facts: "_Facts") -> set[str]:
        """Return the nodes about which anything may be different."""
        states, old_leases, old_claims, old_facts = self._last
        self._last = (view.nodes, dict(leases), dict(claims), dict(facts))
        oldest = min((state.heard_at for state in view.nodes.values()), default=view.now)
        stale = (
            {name for name in view.nodes if view.is_stale(name)} if view.now - oldest > view.node_ttl_seconds else set()
        )
        turned, self._stale = stale ^ self._stale, stale
        changed = moved(states, view.nodes) | moved(old_leases, leases) | moved(old_claims, claims)
        barred, self._barred = moved(self._barred, view.barred), view.barred
        return changed | moved(old_facts, facts) | turned | barred


_States: TypeAlias = Mapping[str, NodeState]
_Facts: TypeAlias = Mapping[str, NodeFacts]
_Mark: TypeAlias = tuple[NodeState, bool, Sequence[NodeLease], Sequence[Claim], NodeFacts | None, str]


def _is_same(known: _Mark, mark: _Mark) -> bool:
    """Return whether a node differs only in what no offer depends on: when it was heard, its sequence."""
    before, state = known[0], mark[0]
    return known[1:] == mark[1:] and before.topology == state.topology and before.report == state.report


def _is_as_large(known: _Mark, mark: _Mark) -> bool:
    """Return whether a node could give the same as before, were it idle and well."""
    before, state, old, new = known[0], mark[0], known[4], mark[4]
    if before.topology is not state.topology or (old is None) is not (new is None):
        return False
    if old is not None and new is not None:
        lasting = (old.labels, old.taints, old.is_cordoned, old.allocatable, old.topology_policy)
        if lasting != (new.labels, new.taints, new.is_cordoned, new.allocatable, new.topology_policy):
            return False
    return _sizes(before.report) == _sizes(state.report) and _are_cut_alike(before.report, state.report)


def _are_cut_alike(before: NodeReport, report: NodeReport) -> bool:
    return before.devices == report.devices or shapes.cuts_of(before) == shapes.cuts_of(report)


def _sizes(report: NodeReport) -> dict[str, tuple[int, frozenset[str]]]:
    return {
        name: (_size(resource), frozenset(finding.reason for finding in resource.findings))
        for name, resource in report.resources.items()
    }


def _size(report: ResourceReport) -> int:
    sizes = (report.capacity, report.allocatable, report.advertised, report.present, report.admit_lenient)
    return max((size.value for size in sizes if isinstance(size, Known)), default=0)


class _Sheet:
    """The newest offers of all nodes and their table."""

    def __init__(self, *, is_ideal: bool) -> None:
        self._is_ideal = is_ideal
        self._nodes: dict[str, NodeOffers] = {}
        self._table: Table | None = None

    def turned(self, version: int, fresh: Mapping[str, NodeOffers], gone: Iterable[str], *, has_facts: bool) -> Supply:
        """Take the nodes that were laid out anew, and return the supply."""
        before = self._nodes
        nodes = before if not fresh and not gone else dict(before)
        for name in gone:
            nodes.pop(name, None)
        # Kept where it says the same: the table then shares its columns.
        changed = {name: offers for name, offers in fresh.items() if before.get(name) != offers}
        nodes.update(changed)
        if self._table is None or (self._table.marks is not None) is not has_facts:
            self._table = table.of_nodes(nodes, has_facts=has_facts, is_ideal=self._is_ideal)
        else:
            self._table = table.renewed(self._table, before, nodes, sorted(changed), is_ideal=self._is_ideal)
        self._nodes = nodes
        return Supply(version=version, nodes=nodes, table=self._table, start=self._table)


def _ideal_of_node(name: str, state: NodeState, facts: NodeFacts | None) -> NodeOffers:
    devices = tuple(gpu.uuid for gpu in state.topology.gpus)
    cuts = shapes.cuts_of(state.report)
    offers = {}
    for resource, report in state.report.resources.items():
        units = _size(report)
        shape = shapes.shape(resource, report, state.topology, devices, facts)
        shape = dataclasses.replace(shape, mig=shapes.at_best(resource, facts, cuts))
        offers[resource] = Offer(resource=resource, strict=units, lenient=units, shape=shape)
    rest = {} if facts is None else {key: units for key, units in facts.allocatable.items() if key not in offers}
    lasting = None if facts is None else dataclasses.replace(facts, requested=codec.EMPTY, counted=codec.EMPTY)
    return NodeOffers(node=name, offers=codec.freeze(offers), rest=codec.freeze(rest), facts=lasting)


def _of_node(
    view: ClusterView,
    name: str,
    leases: Sequence[NodeLease],
    claims: Sequence[Claim],
    policy: Policy,
    back: Mapping[tuple[str, str], int],
) -> NodeOffers:
    state = view.nodes[name]
    stale, barred = view.is_stale(name), name in view.barred
    shut = stale or barred
    facts = None if view.facts is None else view.facts.get(name)
    claimed = _claimed(facts, claims)
    if facts is not None:
        # What nobody's agent counts is taken from the time of the lease on as well.
        for resource, units in nodecapacity.unreported(state.report, facts, leases).items():
            claimed[resource] = claimed.get(resource, 0) + units
    cuts = shapes.cuts_of(state.report)
    offers = {}
    for resource, report in state.report.resources.items():
        leased = nodecapacity.outstanding(report, leases, resource)
        held = leased + claimed.get(resource, 0) - back.get((name, resource), 0)
        reason, detail = _why_nothing(view, state, report, held, is_stale=stale)
        offers[resource] = Offer(
            resource=resource,
            strict=0 if shut else _less(report.admit_strict, held),
            lenient=_less(report.admit_lenient, held) if _risk_is_taken(report, policy) and not shut else 0,
            own=0 if stale else _less(report.admit_strict, 0),
            reason=reason,
            detail=detail,
            devices=report.free_devices,
            grows=not shut and report.verdict in _FAULTLESS and isinstance(report.admit_strict, Known),
            shape=shapes.shape(
                resource, report, state.topology, report.free_devices, facts, cuts=cuts, held=max(0, leased)
            ),
        )
    rest = (
        {}
        if facts is None or barred
        else _rest(
            facts, claimed, offers, {resource: units for (node, resource), units in back.items() if node == name}
        )
    )
    return NodeOffers(node=name, offers=codec.freeze(offers), rest=codec.freeze(rest), facts=facts)


def _claimed(facts: NodeFacts | None, claims: Sequence[Claim]) -> dict[str, int]:
    """Return what leased pods will take that the node's facts do not contain yet."""
    total: dict[str, int] = {}
    for claim in claims if facts is not None else ():
        pods = claim.outstanding(facts) if facts is not None else 0
        for resource, units in {**claim.requests, POD_SLOTS: 1}.items():
            total[resource] = total.get(resource, 0) + units * pods
    return total


def _rest(
    facts: NodeFacts, claimed: Mapping[str, int], offers: Mapping[str, Offer], back: Mapping[str, int]
) -> dict[str, int]:
    return {
        resource: max(0, units - facts.requested.get(resource, 0) - claimed.get(resource, 0) + back.get(resource, 0))
        for resource, units in facts.allocatable.items()
        if resource not in offers
    }


def _less(admit: Reading[int], held: int) -> int:
    match admit:
        case Known(value):
            return max(0, value - held)
        case Unknown():
            return 0


def _risk_is_taken(report: ResourceReport, policy: Policy) -> bool:
    match report.pick_risk:
        case Known(value):
            return value <= policy.lenient_pick_risk
        case Unknown():
            return False


def _why_nothing(
    view: ClusterView, state: NodeState, report: ResourceReport, held: int, *, is_stale: bool
) -> tuple[str, str]:
    """Return reason and detail that hold if the resource turns out to give nothing."""
    if is_stale:
        # The bound and not the age: an answer that changes every second is no news (the age is in `muster status`).
        return "Stale", f"not heard for over {view.node_ttl_seconds:g} s"
    if state.node in view.barred:
        return BROKEN_PROMISE, view.barred[state.node]
    match report.admit_strict:
        case Unknown(reason):
            return "Blind", f"{report.verdict.value} {reason}"
        case Known(value) if value > 0 and held > 0:
            return "Full", f"{held} leased, strict {value}"
        case Known(value):
            cause = _cause(report.findings) or _cause(state.report.node_findings)
            if report.verdict is Verdict.OK or not cause:
                return "Full", f"{report.verdict.value} strict {value}"
            return cause, f"{report.verdict.value} {cause} strict {value}"


def _cause(findings: tuple[Finding, ...]) -> str:
    findings = tuple(finding for finding in findings if not finding.observed)
    if not findings:
        return ""
    named = worst(tuple(finding.verdict for finding in findings))
    return min(finding.reason for finding in findings if finding.verdict is named)
