"""NVML as a whole does not answer: what its reason says about the next start (faults.md B8, D1, D5).

Input: the reason that NVML gave. Output: one suspicion a resource.

Invariant: total. A reason without a row is BLIND: a driver that cannot be asked is never healthy.

Why BLOCKED for some: they are not blindness but knowledge; with a library that does not fit the module, or no module,
the next container fails to start whatever device it would get.
"""

import datetime
from collections.abc import Iterator, Mapping

from agent.core import maintenance
from agent.core.context import Context, after
from agent.core.rules.observer import NVML
from agent.model.finding import Effect, Rule, Suspicion
from muster.model.reading import NOT_COLLECTED, Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

MISMATCH = Rule(
    id="D1",
    cause="LibraryDriverMismatch",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.DRIVER_LIBRARY_MISMATCH,
    remedy=Remedy.RELOAD_DRIVER,
    clears_when="NVML initialises: the loaded module and the library have the same version",
)
NOT_LOADED = Rule(
    id="driver-not-loaded",
    cause="DriverNotLoaded",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.DRIVER_NOT_LOADED,
    remedy=Remedy.RELOAD_DRIVER,
    clears_when="NVML initialises",
)
STARTING = Rule(
    id="A13-driver",
    cause="NodeReadyBeforeGpu",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.NODE_STARTING,
    remedy=Remedy.WAIT,
    clears_when="NVML initialises",
)
HANG = Rule(
    id="B8-init",
    cause="NvmlHangGsp",
    verdict=Verdict.BLIND,
    effect=Effect.BLIND,
    reason=Reason.DRIVER_UNRESPONSIVE,
    remedy=Remedy.REBOOT_NODE,
    clears_when="NVML initialises within its deadline",
)
UPGRADE_OVERDUE = Rule(
    id="D5-unloaded",
    cause="DriverUpgradeWindow",
    verdict=Verdict.UNDER,
    effect=Effect.BLOCK,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.INVESTIGATE,
    clears_when="NVML initialises, or the upgrade's marker is gone",
)
CLOSED = Rule(
    id="nvml-closed",
    cause="NvmlClosedForMaintenance",
    verdict=Verdict.TRANSIENT,
    effect=Effect.ZERO,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.WAIT,
    clears_when="the maintenance marker or the operator's release is gone and the session is open again",
)

RULES = (MISMATCH, NOT_LOADED, STARTING, HANG, UPGRADE_OVERDUE, CLOSED)

_BY_REASON: Mapping[str, Rule] = {
    "LIB_RM_VERSION_MISMATCH": MISMATCH,
    "DRIVER_NOT_LOADED": NOT_LOADED,
    "TIMEOUT": HANG,
    "MAINTENANCE": CLOSED,
}
_ABSENT_WHILE_BOOTING = ("DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND")


def find(context: Context) -> Iterator[Suspicion]:
    """Yield what an NVML that does not answer means, for every resource."""
    match context.snapshot.nvml:
        case Known():
            return
        case Unknown() as unread:
            if unread == NOT_COLLECTED:
                return
    rule, until = _BY_REASON.get(unread.reason, NVML), None
    if unread.reason in _ABSENT_WHILE_BOOTING and (end := context.boot_end()) is not None:
        rule, until = STARTING, end
    if rule in (MISMATCH, NOT_LOADED) and _is_upgrading(context):
        rule = UPGRADE_OVERDUE
    if rule is CLOSED:
        rule, until = _closed(context)
    detail = f"NVML: {unread.reason}" + (f" ({unread.detail})" if unread.detail else "")
    names = [view.name for view in context.snapshot.resources] or [""]
    for name in names:
        yield Suspicion(rule=rule, resource=name, detail=detail, until=until)


def _is_upgrading(context: Context) -> bool:
    """True under a driver marker, stuck or not: an unloaded module is what the work is about (faults.md D5)."""
    marker = context.history.marker
    return marker is not None and maintenance.is_of_driver(marker.name)


def _closed(context: Context) -> tuple[Rule, datetime.datetime | None]:
    """Return TRANSIENT until the work's deadline, BLIND after it: a session is closed for a bounded time."""
    ends = maintenance.believed_until(context.history.marker, context.now, context.policy)
    if ends is not None:
        return CLOSED, ends
    names = [view.name for view in context.snapshot.resources] or [""]
    since = min((context.seen_since(f"{CLOSED.id}|{name}|") or context.now for name in names), default=context.now)
    ends = after(since, context.wait("maintenance-driver"))
    return (CLOSED, ends) if context.now < ends else (NVML, None)
