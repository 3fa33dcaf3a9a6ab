"""The pod list of a report: pods that something is wrong with, each with the worst thing.

Input: snapshot, devices of the report. Output: PodFindings, sorted, at most MAX_PODS.

Invariant: a pod is named by what the planes say of it alone; its finding never changes a number.
"""

from collections.abc import Iterator, Mapping

from agent.core import holders
from agent.core.context import Context, unheld
from agent.core.holders import Use
from agent.core.rules import mig, pods, rejections
from muster.model.reading import Known
from muster.model.report import DeviceReport, DeviceState, Holder, PodFinding, PodState
from muster.model.vocabulary import Reason

MAX_PODS = 256
"""A node runs a few hundred pods at most; thousands of rejected ones (faults.md E9) are a number, not a list."""
MAX_MESSAGE = 1024
"""Characters of what the kubelet said; the admitter's slice cuts it there too."""
MAX_MESSAGES = 16
"""Newest rejections that are told with the kubelet's words: a pile of them says the same thing over and over (faults.md E9)."""

_BAD = (DeviceState.UNHEALTHY, DeviceState.LOST, DeviceState.STALE)
_ORDER = {
    state: rank
    for rank, state in enumerate(
        (
            PodState.WITHOUT_DEVICE,
            PodState.ON_BAD_DEVICE,
            PodState.HOLDER_WITHOUT_RECORD,
            PodState.TERMINATING,
            PodState.AT_RISK,
            PodState.REJECTED,
        )
    )
}


def report(context: Context, devices: tuple[DeviceReport, ...]) -> tuple[PodFinding, ...]:
    """Return the pods of the sample that are hit, sorted."""
    found = [
        *_without_device(context),
        *_on_bad_device(context, devices),
        *_without_record(context),
        *_terminating(context),
        *_at_risk(context, devices),
        *_waiting(context, devices),
        *_rejected(context),
    ]
    worst: dict[tuple[str, str], PodFinding] = {}
    for item in sorted(found, key=lambda item: (_ORDER[item.state], repr(item))):
        worst.setdefault((item.pod, item.uid), item)
    return tuple(worst[key] for key in sorted(worst)[:MAX_PODS])


def _without_device(context: Context) -> Iterator[PodFinding]:
    for view in context.snapshot.resources:
        for pod, _ in pods.without_device(context, view):
            yield PodFinding(
                pod=pod.full_name,
                uid=pod.uid,
                state=PodState.WITHOUT_DEVICE,
                reason=Reason.POD_WITHOUT_DEVICE.value,
            )


def _on_bad_device(context: Context, devices: tuple[DeviceReport, ...]) -> Iterator[PodFinding]:
    bad = {item.uuid: item.reason for item in devices if item.state in _BAD}
    if isinstance(context.snapshot.nvml, Known):
        # An id that List shows and nobody else knows is a device that is no more.
        known = {item.uuid for item in devices}
        held = (uuid for units in holders.units_of_pods(context.snapshot).values() for uuid in units)
        ours = _device_texts(context)
        bad.update((uuid, Reason.MIG_UUIDS_CHANGED.value) for uuid in held if uuid in ours and uuid not in known)
    yield from _holding(context, bad, PodState.ON_BAD_DEVICE)


def _holding(context: Context, reasons: Mapping[str, str], state: PodState) -> Iterator[PodFinding]:
    """Yield the pods that hold one of these units, by List."""
    units = holders.units_of_pods(context.snapshot)
    match context.snapshot.listed:
        case Known(listed):
            pass
        case _:
            return
    for item in listed:
        for uid in item.uids or ("",):
            hit = sorted(units.get(uid or item.full_name, frozenset()) & reasons.keys())
            if hit:
                yield PodFinding(
                    pod=item.full_name,
                    uid=uid,
                    state=state,
                    reason=reasons[hit[0]],
                    devices=tuple(hit[:64]),
                )


def _device_texts(context: Context) -> frozenset[str]:
    """Return the ids that List shows under names that have a verdict."""
    return frozenset(text for view in context.snapshot.resources for text in view.holders())


def _without_record(context: Context) -> Iterator[PodFinding]:
    for usage in holders.usages_of(context.snapshot, context.policy):
        owner = usage.process.owner
        if usage.use is Use.ORPHAN and isinstance(owner, Known):
            yield PodFinding(
                pod=usage.pod,
                uid=owner.value,
                state=PodState.HOLDER_WITHOUT_RECORD,
                reason=Reason.TERMINATING_POD.value,
                devices=(usage.unit,),
            )


def _terminating(context: Context) -> Iterator[PodFinding]:
    units = holders.units_of_pods(context.snapshot)
    match context.snapshot.pods:
        case Known(bound):
            pass
        case _:
            return
    for pod in bound:
        held = units.get(pod.uid, frozenset())
        if pod.deletion_at is not None and held:
            yield PodFinding(
                pod=pod.full_name,
                uid=pod.uid,
                state=PodState.TERMINATING,
                reason=Reason.TERMINATING_POD.value,
                devices=tuple(sorted(held)[:64]),
            )


def _at_risk(context: Context, devices: tuple[DeviceReport, ...]) -> Iterator[PodFinding]:
    """Yield pods that serve on a device which is degraded, or whose change of MIG mode waits for a reset."""
    reasons = {item.uuid: item.reason for item in devices if item.state is DeviceState.DEGRADED}
    for unit in context.snapshot.units:
        if mig.is_change_pending(unit.gpu):
            reasons.setdefault(unit.uuid, Reason.MIG_PENDING.value)
    yield from _holding(context, reasons, PodState.AT_RISK)


def _waiting(context: Context, devices: tuple[DeviceReport, ...]) -> Iterator[PodFinding]:
    """Yield bound pods that have no device yet and may be handed a bad one: nobody can choose for them (faults.md P3a)."""
    bad = {item.uuid: item.reason for item in devices if item.state in _BAD}
    bad |= {item.uuid: Reason.FOREIGN_PROCESS.value for item in devices if item.holder is Holder.FOREIGN}
    holding = {uid for uid, units in holders.units_of_pods(context.snapshot).items() if units}
    seen = holders.owners_of_processes(context.snapshot) | holding
    match context.snapshot.pods:
        case Known(bound):
            waiting = {pod.uid: pod for pod in bound if pod.uid not in seen}
        case _:
            return
    for view in context.snapshot.resources:
        hit = sorted({device.uuid for device in unheld(view)} & bad.keys())
        match view.requests:
            case Known(requests) if hit:
                pass
            case _:
                continue
        for uid in sorted(requests.keys() & waiting.keys()):
            yield PodFinding(
                pod=waiting[uid].full_name,
                uid=uid,
                state=PodState.AT_RISK,
                reason=bad[hit[0]],
                devices=tuple(hit[:64]),
            )


def _rejected(context: Context) -> Iterator[PodFinding]:
    recent = rejections.recent_of(context)
    telling = {item.uid for item in sorted(recent, key=lambda item: (item.at, item.uid))[-MAX_MESSAGES:]}
    for item in recent:
        yield PodFinding(
            pod=item.pod,
            uid=item.uid,
            state=PodState.REJECTED,
            reason=rejections.why(item.message).value,
            message=item.message[:MAX_MESSAGE] if item.uid in telling else "",
        )
