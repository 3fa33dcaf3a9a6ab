"""Which numbers stand while the breaker holds: (view, ruling) -> the view that is admitted from.

A held node's resource keeps what its last good report admitted, less what has been given out since, and never more than
what is plainly there now by readings alone:

    min(good.admit - growth of counted units, present - taken, allocatable - counted)

and only where every one of these was read, the driver opens every id that the kubelet offers, and the verdict is a
judgement about devices (STANDING). BLOCKED is no judgement: the next start fails. BLIND is no reading at all.

Invariants: a count that is Unknown, a lost device, a missing id or a silent node raises nothing. Nothing is lowered either:
the node's own number counts where it is higher. Nodes that are not held are untouched.

Why it may raise at all: docs/decisions/0007-breaker-and-failed-reads.md.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.ruling import HoldMode, Ruling
from muster.model import codec
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import CountedPod, DeviceState, NodeReport, ResourceReport, Verdict

STANDING: Mapping[Verdict, bool] = {
    Verdict.BLOCKED: False,
    Verdict.BLIND: False,
    Verdict.WRONG_SHAPE: True,
    Verdict.OVER: True,
    Verdict.CONTENDED: True,
    Verdict.UNDER: True,
    Verdict.TRANSIENT: False,
    Verdict.OK: False,
}
"""Verdicts over which a last good decision may stand. TRANSIENT and OK are not what anybody is held for."""

_UNREADABLE = frozenset({DeviceState.LOST, DeviceState.UNKNOWN, DeviceState.STALE})


class Standings:
    """Makes view after view, and a node anew only when its report has changed."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[NodeState, NodeReport, NodeState]] = {}
        """Node -> its state, its last good report, and what was made of them."""

    def view(self, view: ClusterView, ruling: Ruling, mode: HoldMode) -> ClusterView:
        """Return the view to admit from."""
        if mode is not HoldMode.STANDS or not ruling.last_good:
            self._made.clear()
            return view
        made: dict[str, tuple[NodeState, NodeReport, NodeState]] = {}
        for name, good in ruling.last_good.items():
            state = view.nodes.get(name)
            if state is not None and not view.is_stale(name):
                made[name] = (state, good, self._renewed(name, state, good))
        self._made = made
        return dataclasses.replace(view, nodes={**view.nodes, **{name: item[2] for name, item in made.items()}})

    def _renewed(self, name: str, state: NodeState, good: NodeReport) -> NodeState:
        before = self._made.get(name)
        if before is not None and before[1] is good:
            if before[0] is state:
                return before[2]
            if before[0].report is state.report:
                return dataclasses.replace(state, report=before[2].report)
        return dataclasses.replace(state, report=stands(state.report, good))


def stands(now: NodeReport, good: NodeReport) -> NodeReport:
    """Return the report with the numbers that stand in place of those that a rule has lowered."""
    if not STANDING[now.verdict] or _has_unread(now):
        return now
    resources = {
        name: _resource(report, good.resources[name]) if name in good.resources else report
        for name, report in now.resources.items()
    }
    return dataclasses.replace(now, resources=codec.freeze(resources))


def _has_unread(report: NodeReport) -> bool:
    """Return whether something on the node could not be read, or the driver does not show it."""
    findings = (*report.node_findings, *(item for each in report.resources.values() for item in each.findings))
    unsure = any(not item.observed and item.verdict in (Verdict.BLIND, Verdict.BLOCKED) for item in findings)
    return unsure or any(device.state in _UNREADABLE for device in report.devices)


def _resource(now: ResourceReport, good: ResourceReport) -> ResourceReport:
    if not STANDING[now.verdict]:
        return now
    match units(now, good), now.admit_strict:
        case Known(stand), Known(own) if stand > own:
            return dataclasses.replace(
                now,
                admit_strict=Known(stand),
                admit_lenient=Known(max(stand, _or_zero(now.admit_lenient))),
                # The forecast of both: an island is promised only if all of them lie in it.
                free_devices=tuple(sorted({*now.free_devices, *good.free_devices})),
            )
        case _:
            return now


def units(now: ResourceReport, good: ResourceReport) -> Reading[int]:
    """Return the units that stand, or why none can."""
    counts = (good.admit_strict, now.present, now.advertised, now.allocated, now.allocatable)
    unread = next((count for count in counts if isinstance(count, Unknown)), None)
    if unread is not None:
        return unread
    admitted, present, advertised, allocated, allocatable = (_or_zero(count) for count in counts)
    if present < advertised:
        return Unknown("NotPresent", "the kubelet offers an id that the driver does not open")
    counted, growth = _units(now.counted), _units(now.counted) - _units(good.counted)
    there = min(present - max(allocated, counted), allocatable - counted)
    return Known(max(0, min(admitted - max(0, growth), there)))


def _units(pods: Iterable[CountedPod]) -> int:
    return sum(pod.units for pod in pods)


def _or_zero(reading: Reading[int]) -> int:
    match reading:
        case Known(value):
            return value
        case Unknown():
            return 0
