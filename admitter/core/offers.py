"""Lay out what the nodes of one view can still give.

Input: a ClusterView, the leases that stand, policy. Output: a Supply.

Invariant: an offer's units never exceed the node's own admit less what is leased there and not yet counted; a node that
is stale, or a resource whose admit is unknown, offers 0 and says why.

Why a layout of its own: readings, verdicts and topology are looked at once per decision pass, not once per gang and node.

Not here: whether a podset may use an offer (fit.py).
"""

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence

from admitter.model import nodecapacity
from admitter.model.decision import Policy
from admitter.model.lease import NodeLease, Placement
from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.supply import MigShape, NodeOffers, Offer, Supply
from muster.model import codec
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import Finding, ResourceReport, Topology, Verdict, worst
from muster.model.vocabulary import Reason

Leases = Mapping[str, Sequence[NodeLease]]
"""Node -> its leases."""

NOTHING_BACK: Mapping[tuple[str, str], int] = {}

_MIG_NAME = re.compile(r"mig-(?:\d+c\.)?(\d+)g\.(\d+)gb")
# An instance can be smaller than its name: 20.0 GiB were captured behind 1g.24gb, 0.89 of it (topology.md section 3).
_MEMORY_OF_NAME = 0.89e9
_REPLICA_MARK = "::"
"""The device plugin's separator between a GPU and its replica number."""


def of_view(
    view: ClusterView,
    leases: Leases,
    policy: Policy,
    *,
    nodes: Iterable[str] | None = None,
    back: Mapping[tuple[str, str], int] = NOTHING_BACK,
) -> Supply:
    """Return what the nodes (or only `nodes`) can give.

    `back` are units of (node, resource) that count as free although a pod holds them: they may be the asking gang's own.
    """
    names = sorted(view.nodes if nodes is None else set(nodes) & set(view.nodes))
    return Supply(
        version=view.version,
        nodes=codec.freeze({name: _of_node(view, name, leases.get(name, ()), policy, back) for name in names}),
    )


class Layout:
    """Lays out view after view, and a node only when something about it has changed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._now: dict[str, tuple[tuple[object, ...], NodeOffers]] = {}
        self._ideal: dict[str, tuple[tuple[object, ...], NodeOffers]] = {}

    def supply(self, view: ClusterView, leases: Leases) -> Supply:
        """Return what `of_view` returns."""

        def mark(name: str, state: NodeState) -> tuple[object, ...]:
            return (state.report, state.topology, view.is_stale(name), leases.get(name, ()))

        def lay_out(name: str, _: NodeState) -> NodeOffers:
            return _of_node(view, name, leases.get(name, ()), self._policy, NOTHING_BACK)

        self._now = _renewed(self._now, view, mark, lay_out)
        return _supply(view, self._now)

    def ideal(self, view: ClusterView) -> Supply:
        """Return what the nodes could give if all were idle and well: whether a gang can ever fit."""
        self._ideal = _renewed(self._ideal, view, lambda _, state: (state.report, state.topology), _ideal_of_node)
        return _supply(view, self._ideal)


Laid = dict[str, tuple[tuple[object, ...], NodeOffers]]


def _renewed(
    known: Laid,
    view: ClusterView,
    mark: Callable[[str, NodeState], tuple[object, ...]],
    lay_out: Callable[[str, NodeState], NodeOffers],
) -> Laid:
    result: Laid = {}
    for name in sorted(view.nodes):
        state = view.nodes[name]
        fresh, before = mark(name, state), known.get(name)
        result[name] = before if before is not None and before[0] == fresh else (fresh, lay_out(name, state))
    return result


def _supply(view: ClusterView, laid: Laid) -> Supply:
    return Supply(
        version=view.version, nodes=types.MappingProxyType({name: offers for name, (_, offers) in laid.items()})
    )


def _ideal_of_node(name: str, state: NodeState) -> NodeOffers:
    devices = tuple(gpu.uuid for gpu in state.topology.gpus)
    offers = {}
    for resource, report in state.report.resources.items():
        sizes = (report.capacity, report.allocatable, report.advertised, report.present, report.admit_lenient)
        units = max((size.value for size in sizes if isinstance(size, Known)), default=0)
        offers[resource] = _shaped(resource, report, state.topology, devices, strict=units, lenient=units)
    return NodeOffers(node=name, offers=codec.freeze(offers))


def less(supply: Supply, placements: Iterable[Placement]) -> Supply:
    """Return the supply without the units of new placements."""
    nodes = dict(supply.nodes)
    for placement in placements:
        offers = dict(nodes[placement.node].offers)
        offer = offers[placement.resource]
        offers[placement.resource] = dataclasses.replace(
            offer,
            strict=max(0, offer.strict - placement.units),
            lenient=max(0, offer.lenient - placement.units),
            reason="Full",
            detail="leased in this pass",
        )
        nodes[placement.node] = NodeOffers(node=placement.node, offers=codec.freeze(offers))
    return Supply(version=supply.version, nodes=codec.freeze(nodes))


def without(supply: Supply, held: frozenset[tuple[str, str]], holder: str) -> Supply:
    """Return the supply without the (node, resource) pairs that are kept for a gang at the head of the queue."""
    nodes = dict(supply.nodes)
    for name in {node for node, _ in held} & set(nodes):
        offers = {
            resource: dataclasses.replace(offer, strict=0, lenient=0, reason="HeldForOthers", detail=f"for {holder}")
            if (name, resource) in held
            else offer
            for resource, offer in nodes[name].offers.items()
        }
        nodes[name] = NodeOffers(node=name, offers=codec.freeze(offers))
    return Supply(version=supply.version, nodes=codec.freeze(nodes))


def mig_shape(resource: str) -> MigShape | None:
    """Return what a MIG resource's name promises at least.

    >>> mig_shape("nvidia.com/mig-2g.20gb").compute_slices
    2
    >>> mig_shape("nvidia.com/gpu")
    """
    found = _MIG_NAME.search(resource)
    if found is None:
        return None
    return MigShape(compute_slices=int(found[1]), memory_bytes=int(int(found[2]) * _MEMORY_OF_NAME))


def _of_node(
    view: ClusterView,
    name: str,
    leases: Sequence[NodeLease],
    policy: Policy,
    back: Mapping[tuple[str, str], int],
) -> NodeOffers:
    state = view.nodes[name]
    stale = view.is_stale(name)
    offers = {}
    for resource, report in state.report.resources.items():
        held = nodecapacity.outstanding(report, leases, resource) - back.get((name, resource), 0)
        reason, detail = _why_nothing(view, state, report, held, is_stale=stale)
        strict = 0 if stale else _less(report.admit_strict, held)
        risky = _less(report.admit_lenient, held) if _risk_is_taken(report, policy) and not stale else 0
        offers[resource] = dataclasses.replace(
            _shaped(resource, report, state.topology, report.free_devices, strict=strict, lenient=risky),
            own=0 if stale else _less(report.admit_strict, 0),
            reason=reason,
            detail=detail,
        )
    return NodeOffers(node=name, offers=codec.freeze(offers))


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


def _shaped(
    resource: str, report: ResourceReport, topology: Topology, devices: tuple[str, ...], *, strict: int, lenient: int
) -> Offer:
    islands = {gpu.uuid: gpu.island for gpu in topology.gpus}
    cliques = {gpu.uuid: gpu.clique for gpu in topology.gpus}
    return Offer(
        resource=resource,
        strict=strict,
        lenient=lenient,
        devices=devices,
        shared=resource.endswith(".shared")
        or any(_REPLICA_MARK in device for device in devices)
        or any(finding.reason == Reason.REPLICAS for finding in report.findings),
        whole=not any(device.startswith("MIG-") for device in devices),
        mig=mig_shape(resource),
        island=_common(devices, islands),
        clique=_common(devices, cliques),
    )


def _common(devices: tuple[str, ...], domains: Mapping[str, str]) -> str:
    """Return the one domain of all devices; empty if there are several, none, or a device of unknown domain."""
    found = {domains.get(device, "") for device in devices}
    return found.pop() if len(found) == 1 else ""
