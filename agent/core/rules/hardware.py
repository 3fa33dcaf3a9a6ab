"""GPUs that exist and the driver does not show (faults.md B7), and a count that somebody said to expect.

Input: bus, NVML, the expected count. Output: findings of the node; no number falls, since nobody promises those GPUs.

Invariant: the bus is needed as a plane of its own here: the kubelet and NVML agree with each other and are both short.
"""

from collections.abc import Iterator

from agent.core import absence, kernel_log
from agent.core.context import Context, named
from agent.core.rules.observer import is_gpu_of_driver
from agent.model.finding import Rule, Suspicion
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

ABSENT = Rule(
    id="B7",
    cause="PresentOnBusAbsentInNvml",
    verdict=Verdict.UNDER,
    reason=Reason.PCI_NOT_IN_DRIVER,
    remedy=Remedy.REBOOT_NODE,
    clears_when="NVML lists every GPU that is bound to the driver",
)
FEWER = Rule(
    id="expected-gpus",
    cause="FewerGpusThanExpected",
    verdict=Verdict.UNDER,
    reason=Reason.PCI_NOT_IN_DRIVER,
    remedy=Remedy.INVESTIGATE,
    clears_when="NVML lists as many GPUs as are expected",
)

DRAINED = Rule(
    id="pci-drained",
    cause="GpuDrained",
    verdict=Verdict.OK,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.INVESTIGATE,
    clears_when="the function's drain state is off, or NVML lists it again",
)

RULES = (ABSENT, FEWER, DRAINED)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield GPUs that are missing from the driver."""
    snapshot = context.snapshot
    if isinstance(snapshot.nvml, Unknown) or any(absence.is_refused(gpu) for gpu in snapshot.gpus):
        return  # a partial view proves nothing (faults.md H3)
    away = _drained(context)
    if away:
        yield Suspicion(
            rule=DRAINED, units=len(away), detail=f"taken out of the driver by somebody's drain: {named(away)}"
        )
    missing = tuple(address for address in _not_in_nvml(context) if address not in away)
    if missing:
        yield Suspicion(
            rule=ABSENT,
            units=len(missing),
            until=context.boot_end(),
            detail=f"bound to the driver and not in NVML: {named(missing)}",
        )
    expected = snapshot.observation.expected
    explained = len(snapshot.gpus) + len(missing) + len(away) + _passed_through(context)
    if expected is not None and explained < expected.gpus:
        short = expected.gpus - explained
        yield Suspicion(
            rule=FEWER,
            units=short,
            until=context.boot_end(),
            detail=f"{short} fewer GPUs than the {expected.gpus} expected ({expected.source or 'no source'})",
        )


def _drained(context: Context) -> tuple[str, ...]:
    """Return the bus addresses that NVML does not list because somebody drains them."""
    known = {kernel_log.normalised(gpu.pci.value) for gpu in context.snapshot.gpus if isinstance(gpu.pci, Known)}
    match context.snapshot.observation.pci:
        case Known(functions):
            drained = {kernel_log.normalised(item.address) for item in functions if item.drain == Known(True)}  # noqa: FBT003
            return tuple(sorted(drained - known))
        case Unknown():
            return ()


def _not_in_nvml(context: Context) -> tuple[str, ...]:
    """Return bus addresses; where NVML does not say its GPUs' addresses, as many as the counts differ."""
    match context.snapshot.observation.pci:
        case Known(functions):
            bound = sorted({kernel_log.normalised(item.address) for item in functions if is_gpu_of_driver(item)})
        case Unknown():
            return ()
    seen = [gpu.pci for gpu in context.snapshot.gpus]
    known = {kernel_log.normalised(pci.value) for pci in seen if isinstance(pci, Known)}
    if len(known) < len(seen):
        return tuple(bound[: max(0, len(bound) - len(seen))])
    return tuple(address for address in bound if address not in known)


def _passed_through(context: Context) -> int:
    match context.snapshot.observation.pci:
        case Known(functions):
            return sum(1 for item in functions if (item.driver or "").startswith("vfio"))
        case Unknown():
            return 0
