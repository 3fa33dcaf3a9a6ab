"""What one report says about its Node: an opinion on each of the three conditions.

Input: a NodeReport. Output: for each ConditionType a Condition, or `STANDS`: something passing is under way and what was
known before it stands. A node without GPUs gets no opinion at all.

Invariants: unreadable is never healthy: the order is bad, unknown, good. The message depends on what is wrong and on
nothing that changes by itself (no ages, no counts of free units, no details of the agent's own wording); entries are
sorted and bounded, so the same faults in another order are the same text. A reason is a member of REASONS.

Why a transient verdict says nothing: the agent knows by its own durations when it passes or becomes a fault (faults.md
section 2), and every restart of a device plugin would otherwise be two writes on the Node.

Not here: when an opinion is written (nodestatus.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from admitter.model.nodestatus import Condition
from muster.model.nodeconditions import REASONS, ConditionType, Standing, Status
from muster.model.report import DeviceReport, DeviceState, Finding, NodeReport, Verdict
from muster.model.vocabulary import Reason

STANDS: Final = None
Opinion: TypeAlias = Condition | None

MAX_MESSAGE = 1000
"""Characters. An Event's note, which repeats the message, may have 1024."""
MAX_ENTRIES = 8
MAX_NAMES = 4

LIES = frozenset({Verdict.BLOCKED, Verdict.WRONG_SHAPE, Verdict.OVER, Verdict.CONTENDED, Verdict.UNDER})
"""The node advertises more, less or something else than it can serve."""
_MIG = frozenset({Reason.MIG_MISMATCH, Reason.MIG_EMPTY, Reason.MIG_PENDING, Reason.MIG_UUIDS_CHANGED})
_BAD = (DeviceState.LOST, DeviceState.UNHEALTHY)
"""Worst first."""
_BADNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}
_WORD = re.compile(r"[^A-Za-z0-9./:_-]")

Named: TypeAlias = tuple[str, Finding]
"""A finding with its resource; `node` where it is the node's own."""


def opinions(report: NodeReport) -> Mapping[ConditionType, Opinion]:
    """Return what the report says about each condition; empty for a node that has no GPU."""
    found = _findings(report)
    if not (report.resources or report.devices or found) and report.verdict is Verdict.OK:
        return {}
    return {
        ConditionType.CAPACITY: _capacity(report, found),
        ConditionType.HEALTH: _health(report, found),
        ConditionType.MIG: _mig(report, found),
    }


def _findings(report: NodeReport) -> tuple[Named, ...]:
    """Return what counts: a rule that only observes says nothing on a Node."""
    every: Iterator[Named] = (
        (name, finding) for name, resource in report.resources.items() for finding in resource.findings
    )
    of_node: Iterator[Named] = (("node", finding) for finding in report.node_findings)
    return tuple(item for item in (*every, *of_node) if not item[1].observed)


def _capacity(report: NodeReport, found: tuple[Named, ...]) -> Opinion:
    lies = [item for item in found if item[1].verdict in LIES]
    if lies:
        return Condition(status=Status.FALSE, reason=_worst_reason(lies), message=_line(map(_entry, lies)))
    if report.verdict in LIES:
        reason = Standing.NOT_AS_ADVERTISED.value
        return Condition(status=Status.FALSE, reason=reason, message=f"the agent says {report.verdict.value}")
    if (unknown := _unknown(report, found)) is not None:
        return unknown
    if report.verdict is Verdict.TRANSIENT:
        return STANDS
    text = "what the node advertises can be had"
    return Condition(status=Status.TRUE, reason=Standing.AS_ADVERTISED.value, message=text)


def _health(report: NodeReport, found: tuple[Named, ...]) -> Opinion:
    passing = _only_passing(found)
    bad = [device for device in report.devices if device.state in _BAD]
    lasting = [device for device in bad if not {device.uuid, device.parent} & passing]
    if lasting:
        worst = min(lasting, key=lambda device: (_BAD.index(device.state), device.reason))
        return Condition(status=Status.FALSE, reason=_closed(worst.reason), message=_device_line(lasting))
    if bad:
        return STANDS
    if (unknown := _unknown(report, found)) is not None:
        return unknown
    unread = [device for device in report.devices if device.state is DeviceState.UNKNOWN]
    if unread:
        reason = min(_closed(device.reason) for device in unread)
        return Condition(status=Status.UNKNOWN, reason=reason, message=_device_line(unread))
    if not report.devices:
        return STANDS if report.verdict is Verdict.TRANSIENT else _without_devices(found)
    degraded = [device for device in report.devices if device.state is DeviceState.DEGRADED]
    if degraded:
        return Condition(status=Status.TRUE, reason=Standing.DEGRADED.value, message=_device_line(degraded))
    return Condition(status=Status.TRUE, reason=Standing.ALL_HEALTHY.value, message="no GPU has a fault")


def _mig(report: NodeReport, found: tuple[Named, ...]) -> Opinion:
    about = [item for item in found if item[1].reason in _MIG]
    lasting = [item for item in about if item[1].verdict is not Verdict.TRANSIENT]
    if lasting:
        return Condition(status=Status.FALSE, reason=_worst_reason(lasting), message=_line(map(_entry, lasting)))
    if about:
        return STANDS
    if (unknown := _unknown(report, found)) is not None:
        return unknown
    if not report.devices:
        return STANDS if report.verdict is Verdict.TRANSIENT else _without_devices(found)
    if any(device.parent for device in report.devices) or any("/mig-" in name for name in report.resources):
        text = "every instance has the shape that is advertised"
        return Condition(status=Status.TRUE, reason=Standing.LAYOUT_AS_PROMISED.value, message=text)
    return Condition(status=Status.TRUE, reason=Standing.NOT_PARTITIONED.value, message="no GPU is cut into instances")


def _unknown(report: NodeReport, found: tuple[Named, ...]) -> Condition | None:
    """Return the condition of a node that nobody can see into just now."""
    blind = [item for item in found if item[1].verdict is Verdict.BLIND]
    if blind:
        return Condition(status=Status.UNKNOWN, reason=_worst_reason(blind), message=_line(map(_entry, blind)))
    if report.verdict is Verdict.BLIND:
        reason = Reason.PLANE_UNREADABLE.value
        return Condition(status=Status.UNKNOWN, reason=reason, message="the agent cannot see enough to say")
    if report.verdict is Verdict.TRANSIENT and report.maintenance is not None:
        marker = _word(report.maintenance.marker)
        return Condition(status=Status.UNKNOWN, reason=Reason.MAINTENANCE.value, message=f"under maintenance: {marker}")
    return None


def _without_devices(found: tuple[Named, ...]) -> Condition:
    """Return the condition of a node whose driver shows no GPU: never healthy, and bad only where something says so."""
    lies = [item for item in found if item[1].verdict in LIES]
    if lies:
        return Condition(status=Status.UNKNOWN, reason=_worst_reason(lies), message=_line(map(_entry, lies)))
    reason = Standing.NO_DEVICES.value
    return Condition(status=Status.UNKNOWN, reason=reason, message="the driver shows no GPU")


def _only_passing(found: tuple[Named, ...]) -> frozenset[str]:
    """Return the devices that transient findings name, and no other."""
    passing = {uuid for _, finding in found if finding.verdict is Verdict.TRANSIENT for uuid in finding.devices}
    lasting = {uuid for _, finding in found if finding.verdict in LIES for uuid in finding.devices}
    return frozenset(passing - lasting)


def _worst_reason(items: Iterable[Named]) -> str:
    worst = min((finding for _, finding in items), key=lambda finding: (_BADNESS[finding.verdict], finding.reason))
    return _closed(worst.reason)


def _closed(reason: str) -> str:
    """Return the reason, if it is one that we know: agents may be two minor versions ahead."""
    return reason if reason in REASONS else Standing.NOT_AS_ADVERTISED.value


def _entry(item: Named) -> str:
    resource, finding = item
    words = [_word(resource), finding.verdict.value, _word(finding.cause), _names(finding.devices)]
    text = " ".join(word for word in words if word)
    return f"{text} ({_word(finding.remedy)})" if finding.remedy else text


def _device_line(devices: list[DeviceReport]) -> str:
    """Name the devices; an instance is left out beside its own GPU, whose fault it shares."""
    listed = {device.uuid for device in devices}
    return _line(
        f"{_word(device.uuid)} {device.state.value} {_word(device.reason)}"
        for device in devices
        if device.parent not in listed
    )


def _line(entries: Iterable[str]) -> str:
    ordered = sorted(set(entries))
    shown = "; ".join(ordered[:MAX_ENTRIES])
    text = shown + (f"; and {len(ordered) - MAX_ENTRIES} more" if len(ordered) > MAX_ENTRIES else "")
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


def _names(names: Iterable[str]) -> str:
    ordered = sorted(_word(name) for name in set(names))
    more = [f"+{len(ordered) - MAX_NAMES}"] if len(ordered) > MAX_NAMES else []
    return ",".join([*ordered[:MAX_NAMES], *more])


def _word(text: str) -> str:
    """Return an agent's word fit for a line that people and programs read."""
    return _WORD.sub("_", text[:80])
