"""Judge one sample of a node: (history, observation, policy) -> history, report. The whole core in one call.

Input: what was remembered, what every plane said, the settings, and whether there is an API server. Output: what to
remember, and the node's report. The clock is the observation's `taken_at`.

Invariant: pure; never raises on a valid Observation; the same input gives the same output, whatever order the planes
listed things in. Capacity falls at the first sample that shows a fault, and rises only with the second clean one.

Steps: assemble -> rules -> holddown -> capacity -> confirm -> report (docs/architecture.md draws them).
"""

import dataclasses
import datetime
from typing import Any

from agent.core import (
    assemble,
    capacity,
    carried,
    confirm,
    draviews,
    holddown,
    maintenance,
    refusals,
    report,
    unconfirmed,
    xidmemory,
)
from agent.core.context import Context
from agent.core.rules import table
from agent.model import planes
from agent.model.finding import Judged, Suspicion
from agent.model.history import History, ResourceMemory
from agent.model.policy import Mode, Policy
from agent.model.snapshot import ResourceView, Snapshot
from muster.model import codec
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import Finding, NodeReport, ResourceReport, Verdict, verdict_of

MAX_RESOURCES = 256
"""Names remembered: a node has a handful; a hostile Node object may have thousands."""

MAX_PARENTS = 512
"""MIG instances remembered: an 8-GPU node has 56 at most."""


def judge(
    history: History, observation: planes.Observation, policy: Policy, *, api_server: bool
) -> tuple[History, NodeReport]:
    """Return what to remember of the sample, and what it means."""
    snapshot = assemble.assemble(observation, history, policy, api_server=api_server)
    history = _with_facts(history, snapshot, policy)
    context = Context(snapshot=snapshot, history=history, policy=policy)
    is_clean = _is_clean(snapshot)
    suspicions = [*table.find(context), *_maintenance(context)]
    suspicions += carried.find(context, suspicions)
    proven = refusals.proven(history.refusals, suspicions)
    evidence, judged = holddown.hold(
        history,
        suspicions,
        snapshot.now,
        policy,
        is_clean=is_clean,
        maintenance_ends=_softened_until(context),
    )
    resources: dict[str, ResourceReport] = {}
    memory: dict[str, ResourceMemory] = {}
    for view in snapshot.resources[:MAX_RESOURCES]:
        own = tuple(item for item in judged if item.suspicion.resource == view.name)
        resources[view.name], memory[view.name] = _resource(context, view, own, is_clean=is_clean)
    findings = [item.finding for item in judged if item.suspicion.resource not in resources]
    node = report.node(context, resources, findings)
    return _remembered(
        history,
        snapshot,
        evidence=evidence,
        refusals=proven,
        xids=xidmemory.remembered(snapshot, policy),
        resources=codec.freeze(memory),
    ), node


def _maintenance(context: Context) -> list[Suspicion]:
    found = maintenance.find(context.snapshot, context.history.marker, context.policy)
    return [item for item in found if context.policy.mode(item.rule.id) is not Mode.OFF]


def _softened_until(context: Context) -> datetime.datetime | None:
    """Return until when a marker softens the other findings; one whose own rule has no effect softens nothing."""
    marker = context.history.marker
    if marker is None or context.policy.mode(maintenance.rule_of(marker).id) is not Mode.ENFORCE:
        return None
    return maintenance.believed_until(marker, context.now, context.policy)


def _resource(
    context: Context, view: ResourceView, judged: tuple[Judged, ...], *, is_clean: bool
) -> tuple[ResourceReport, ResourceMemory]:
    seen = capacity.count(view, context.snapshot, judged)
    before = context.history.resources.get(view.name, confirm.NOTHING) if context.history.started else None
    mode = context.policy.mode(unconfirmed.RISE.id)
    strict = confirm.confirm(seen, before, is_clean=is_clean)
    published = strict if mode is Mode.ENFORCE else confirm.confirm(seen, before, is_clean=is_clean, samples=1)
    findings = [item.finding for item in judged]
    if strict.held_back and mode is not Mode.OFF:
        note = _unconfirmed(context, before, strict.held_back, findings)
        findings.append(note if mode is Mode.ENFORCE else holddown.observed(note))
    result = report.resource(view, context.snapshot, published.numbers, findings)
    return result, confirm.remember(result.verdict, published.numbers, seen, is_clean=is_clean)


def _unconfirmed(context: Context, before: ResourceMemory | None, units: int, findings: list[Finding]) -> Finding:
    """Explain a number that still waits: after a fault the resource stays TRANSIENT, else it is a note."""
    rule = unconfirmed.RISE
    was_ok = before is None or before.verdict is Verdict.OK
    return Finding(
        verdict=Verdict.OK if was_ok and verdict_of(findings) is Verdict.OK else rule.verdict,
        cause=rule.cause,
        reason=rule.reason.value,
        since=context.now,
        units=units,
        detail=f"{units} more units wait for a second clean sample",
        remedy=rule.remedy.value,
        rule=f"{rule.id}/{rule.version}",
        clears_when=rule.clears_when,
    )


def _is_clean(snapshot: Snapshot) -> bool:
    """True if every required plane was read."""
    required: list[Reading[Any]] = [snapshot.nvml, snapshot.allocatable, snapshot.listed]
    if snapshot.api_server:
        required += [snapshot.observation.node_object, snapshot.observation.pods]
    return all(isinstance(reading, Known) for reading in required)


def _with_facts(history: History, snapshot: Snapshot, policy: Policy) -> History:
    """Return the history with what this sample establishes before any rule is asked."""
    marker = maintenance.follow(
        maintenance.labels_of(snapshot),
        history.marker,
        snapshot.now,
        is_serving=maintenance.is_serving(snapshot),
        has_moved=_has_moved(history, snapshot),
    )
    boot_id, previous = history.boot_id, history.previous_boot_id
    match snapshot.observation.boot:
        case Known(boot) if boot.id != boot_id:
            boot_id, previous = boot.id, boot_id
        case _:
            pass
    remembered = refusals.follow(history, snapshot, policy)
    return dataclasses.replace(history, marker=marker, boot_id=boot_id, previous_boot_id=previous, refusals=remembered)


def _has_moved(history: History, snapshot: Snapshot) -> bool:
    """True if NVML was read and shows other MIG instances than it did last."""
    silent = {gpu.uuid for gpu in snapshot.gpus if gpu.error}
    before = {uuid for uuid, parent in history.mig_parents.items() if parent not in silent}
    instances = {unit.uuid for unit in snapshot.units if unit.is_mig}
    return history.started and isinstance(snapshot.nvml, Known) and instances != before


def _remembered(history: History, snapshot: Snapshot, **changes: object) -> History:
    parents = {unit.uuid: unit.parent for unit in snapshot.units if unit.is_mig}
    silent = {gpu.uuid for gpu in snapshot.gpus if gpu.error}
    match snapshot.nvml:
        case Unknown():
            parents = dict(history.mig_parents)
        case Known():
            parents |= {uuid: parent for uuid, parent in history.mig_parents.items() if parent in silent}
    return dataclasses.replace(
        history,
        started=True,
        node_object_seen=history.node_object_seen or isinstance(snapshot.observation.node_object, Known),
        pods_seen=history.pods_seen or isinstance(snapshot.observation.pods, Known),
        mig_parents=codec.freeze(dict(sorted(parents.items())[:MAX_PARENTS])),
        dra=draviews.remembered(snapshot.observation.dra, history.dra),
        unheld=codec.freeze(dict(sorted(refusals.unheld_of(history, snapshot).items())[:MAX_RESOURCES])),
        **changes,  # type: ignore[arg-type]
    )
