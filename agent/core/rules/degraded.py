"""GPUs that keep serving and not as well as they should: a state of its own, with what they are still good for.

Input: links, clocks, licence, fabric health, error counts of each GPU. Output: notes; no number falls.

Invariant: an unread or unsupported check degrades nobody, and wiring is judged against the board itself: a GPU whose links
are all down is alone by design unless the others of the node reach a switch (topology.md section 2).

Why notes: a single start is none the worse for a missing link. Whoever needs the link is kept away by the islands of the
topology, from which such a GPU has gone (topology.py).
"""

from collections.abc import Callable, Iterator

from agent.core.condition import Condition
from agent.core.context import Context, named
from agent.model import planes, xid
from agent.model.finding import Rule, Suspicion
from agent.model.policy import Policy
from agent.model.snapshot import Snapshot, Unit
from muster.model.reading import Known
from muster.model.report import DeviceState, Verdict
from muster.model.vocabulary import Reason, Remedy


def _note(rule: str, cause: str, reason: Reason, remedy: Remedy, clears_when: str, wait: str = "") -> Rule:
    return Rule(
        id=rule, cause=cause, verdict=Verdict.OK, reason=reason, remedy=remedy, clears_when=clears_when, wait=wait
    )


LINKS = _note(
    "nvlink-down", "NvLinkDown", Reason.NVLINK_DOWN, Remedy.DRAIN_AND_RESET_GPU,
    "all of the GPU's links are active again",
)  # fmt: skip
CLOCKS = _note(
    "slowdown", "ClocksSlowedDown", Reason.SLOWDOWN, Remedy.INVESTIGATE,
    "the driver gives no thermal or power reason for slow clocks", "slowdown",
)  # fmt: skip
UNLICENSED = _note(
    "F5", "VgpuUnlicensed", Reason.SLOWDOWN, Remedy.INVESTIGATE, "the guest has a licence that has not expired"
)
FABRIC = _note(
    "fabric-degraded", "FabricDegraded", Reason.NVLINK_DOWN, Remedy.INVESTIGATE,
    "the fabric's health summary is healthy and no field of its mask names a fault",
)  # fmt: skip
ECC = _note(
    "sram-errors", "SramErrors", Reason.ECC, Remedy.DRAIN_AND_RESET_GPU,
    "the GPU was reset: its volatile SRAM error count is 0",
)  # fmt: skip
XID = _note(
    "xid-degraded", "DegradingXid", Reason.XID, Remedy.INVESTIGATE,
    "the node is rebooted, or the driver's recovery action is readable",
)  # fmt: skip

RULES = (LINKS, CLOCKS, UNLICENSED, FABRIC, ECC, XID)

_SLOW = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""Reasons that are somebody's fault; a power cap, idling and applications' clocks are not (agents.md b1)."""

_UP = (planes.LinkState.ACTIVE, planes.LinkState.SLEEP)
_FABRIC_FAULTS = ("degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout_recovery")
_SUMMARIES = (planes.FabricSummary.UNHEALTHY, planes.FabricSummary.LIMITED_CAPACITY)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a note for every restriction of a GPU that a name offers."""
    for view in context.snapshot.resources:
        units = {device.unit.uuid: device.unit for device in view.ids() if device.unit is not None}
        for unit in units.values():
            for condition in conditions_of(unit, context.snapshot, context.policy):
                if condition.note is None:
                    continue
                yield Suspicion(
                    rule=condition.note,
                    resource=view.name,
                    subject=unit.uuid,
                    devices=(unit.uuid,),
                    until=context.boot_end() if condition.note is UNLICENSED else None,
                    detail=f"{unit.uuid}: {condition.detail}",
                )


def conditions_of(unit: Unit, snapshot: Snapshot, policy: Policy) -> Iterator[Condition]:
    """Yield everything that restricts the unit; what ails the GPU ails its instances."""
    for check in _CHECKS:
        if (condition := check(unit, snapshot, policy)) is not None:
            yield condition


def _degraded(note: Rule, detail: str) -> Condition:
    return Condition(state=DeviceState.DEGRADED, reason=note.reason, note=note, detail=detail)


def _links(unit: Unit, snapshot: Snapshot, _: Policy) -> Condition | None:
    match unit.gpu.nvlinks:
        case Known(links) if links:
            down = [link for link in links if link.state not in _UP]
        case _:
            return None
    if not down or (len(down) == len(links) and not _is_switched(snapshot, besides=unit.parent)):
        return None
    text = f"{len(links) - len(down)} of {len(links)} NVLinks up"
    peers = _missing_peers(unit, down, snapshot)
    where = f", none to {named(peers)}" if peers else ""
    return _degraded(LINKS, f"{text}{where}: fine for singles, in no island of the node")


def _is_switched(snapshot: Snapshot, *, besides: str) -> bool:
    """True if the board's other GPUs reach a switch: then this one should."""
    return any(_reaches_switch(gpu) for gpu in snapshot.gpus if gpu.uuid != besides)


def _reaches_switch(gpu: planes.Gpu) -> bool:
    match gpu.nvlinks:
        case Known(links):
            switch = Known(planes.LinkRemote.SWITCH)
            return any(link.state in _UP and link.remote == switch for link in links)
        case _:
            return False


def _missing_peers(unit: Unit, down: list[planes.NvLink], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the GPUs at the far end of the links that are down, where the driver still says so."""
    by_pci = {gpu.pci.value: gpu.uuid for gpu in snapshot.gpus if isinstance(gpu.pci, Known)}
    ends = (link.remote_pci.value for link in down if isinstance(link.remote_pci, Known))
    return tuple(sorted({by_pci[end] for end in ends if end in by_pci} - {unit.parent}))


def _clocks(unit: Unit, _: Snapshot, __: Policy) -> Condition | None:
    match unit.gpu.clocks_reasons:
        case Known(reasons) if slow := _SLOW & set(reasons):
            return _degraded(CLOCKS, f"clocks are held down: {named(slow)}")
        case _:
            return None


def _licence(unit: Unit, snapshot: Snapshot, _: Policy) -> Condition | None:
    match unit.gpu.licence:
        case Known(licence):
            expired = licence.expiry is not None and licence.expiry <= snapshot.now
            if licence.licensed and not expired:
                return None
            return _degraded(UNLICENSED, "its licence has expired" if expired else "it has no licence: throttled")
        case _:
            return None


def _fabric(unit: Unit, _: Snapshot, __: Policy) -> Condition | None:
    match unit.gpu.fabric:
        case Known(fabric) if fabric.state is planes.FabricState.COMPLETED:
            pass
        case _:
            return None
    faults = [name for name in _FABRIC_FAULTS if fabric.health.get(name) == "true"]
    if isinstance(fabric.summary, Known) and fabric.summary.value in _SUMMARIES:
        faults.append(f"summary {fabric.summary.value.value}")
    return _degraded(FABRIC, f"the fabric says {named(faults)}") if faults else None


def _ecc(unit: Unit, _: Snapshot, __: Policy) -> Condition | None:
    """DRAM errors are followed by the row remap (faults.md B6); SRAM has none."""
    match unit.gpu.ecc:
        case Known(ecc):
            pass
        case _:
            return None
    match ecc.sram_uncorrected:
        case Known(count) if count > 0:
            return _degraded(ECC, f"{count} uncorrected SRAM errors")
        case _:
            return None


def _xid(unit: Unit, snapshot: Snapshot, policy: Policy) -> Condition | None:
    """Ask the Xid table, and only where the driver itself does not say what it wants."""
    if is_answered(unit.gpu):
        return None
    events = events_of(unit, snapshot)
    codes = [event.code for event in events if policy.xid(event.code).severity is xid.Severity.DEGRADED]
    return _degraded(XID, xid_text(codes, policy)) if codes else None


def is_answered(gpu: planes.Gpu) -> bool:
    """True if the driver says by itself what it wants done about the GPU (agent.model.xid)."""
    match gpu.recovery_action:
        case Known(action):
            return action is not planes.RecoveryAction.UNSUPPORTED
        case _:
            return False


def events_of(unit: Unit, snapshot: Snapshot) -> tuple[planes.Xid, ...]:
    """Return the Xids that are the whole GPU's, or this instance's (agents.md b2: MIG attribution)."""
    return tuple(
        event
        for event in snapshot.xids.get(unit.parent, ())
        if event.gi is None or not unit.is_mig or event.gi == unit.gi
    )


def xid_text(codes: list[int], policy: Policy) -> str:
    """Return the codes and where the policy on them comes from."""
    codes_named = named(str(code) for code in codes)
    return f"Xid {codes_named}: {policy.xid(min(codes)).source} (Xid policy {xid.VERSION})"


_CHECKS: tuple[Callable[[Unit, Snapshot, Policy], Condition | None], ...] = (
    _links,
    _clocks,
    _licence,
    _fabric,
    _ecc,
    _xid,
)
