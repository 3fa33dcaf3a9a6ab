"""Read one GPU whole: the facts that change on every pass, the static ones and the processes when asked.

Input: an enumeration index of this very moment. Output: planes.Gpu.

Invariant: a fact that could not be read is Unknown and leaves all others as they were read; only a failed identifying
query (handle, UUID, bus address), or an answer that speaks of the whole device, sets `error`. A GPU that could not be
identified has an empty UUID here; session.py knows whom it was.

Why by group: the hot path costs about twenty calls a GPU, none of them slow. Process lists and link walks are not among
them, fans never are (design.md section 7).
"""

import dataclasses
import datetime
import pathlib
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agent.core import nvml_codes
from agent.model import planes
from agent.reader import fabric, mig, nvml, processes
from muster.model.reading import Known, Reading, Unknown

A = TypeVar("A")
B = TypeVar("B")

RECOVERY_ACTIONS: Mapping[int, planes.RecoveryAction] = types.MappingProxyType(
    {
        0: planes.RecoveryAction.NONE,
        1: planes.RecoveryAction.RESET,
        2: planes.RecoveryAction.NODE_REBOOT,
        3: planes.RecoveryAction.DRAIN_P2P,
        4: planes.RecoveryAction.DRAIN_AND_RESET,
        5: planes.RecoveryAction.RECOVER_IMEX_DOMAIN,
        6: planes.RecoveryAction.BUS_RESET,
        7: planes.RecoveryAction.SYSTEM_REBOOT,
    }
)
LINK_STATES: Mapping[int, planes.LinkState] = types.MappingProxyType(
    {
        0: planes.LinkState.INACTIVE,
        1: planes.LinkState.ACTIVE,
        2: planes.LinkState.SLEEP,
        3: planes.LinkState.TRAFFIC_DISABLED,
    }
)
LINK_REMOTES: Mapping[int, planes.LinkRemote] = types.MappingProxyType(
    {0: planes.LinkRemote.GPU, 1: planes.LinkRemote.NPU, 2: planes.LinkRemote.SWITCH, 255: planes.LinkRemote.UNKNOWN}
)
STATIC = ("product", "memory_bytes", "numa_node", "nvlinks", "events_supported", "persistence", "licence")
"""Fields that `read_static` fills."""
_NUMA_WORDS = 4
"""256 NUMA nodes; a GB200 node has 34 (topology.md section 2)."""


def read(index: int) -> planes.Gpu:
    """Return the GPU at an index, with the facts that change."""
    uuid = ""
    try:
        device = nvml.handle(index)
        uuid = nvml.uuid(device)
        pci = nvml.pci_address(device)
    except nvml.NvmlError as error:
        return planes.Gpu(uuid=uuid, index=Known(index), error=error.reason)
    gpu = planes.Gpu(uuid=uuid, pci=Known(pci), index=Known(index), **_hot(device, pci))
    return dataclasses.replace(gpu, error=whole_device_error(gpu))


def read_static(index: int, uuid: str) -> Mapping[str, Any]:
    """Return the fields that do not change in a generation; none if another GPU is at the index by now."""
    device = _handle_of(index, uuid)
    return {} if device is None else _static(device)


def read_processes(index: int, uuid: str, proc_root: pathlib.Path) -> Mapping[str, Any]:
    """Return the process list as a field; none if another GPU is at the index by now."""
    device = _handle_of(index, uuid)
    return {} if device is None else {"processes": processes_of(device, proc_root)}


def _handle_of(index: int, uuid: str) -> nvml.Handle | None:
    try:
        device = nvml.handle(index)
        return device if nvml.uuid(device) == uuid else None
    except nvml.NvmlError:
        return None


def whole_device_error(gpu: planes.Gpu) -> str:
    """Return the gravest reason of any fact that speaks of the whole GPU (they sort by gravity), or empty."""
    values = (getattr(gpu, field.name) for field in dataclasses.fields(gpu))
    return min((v.reason for v in values if isinstance(v, Unknown) and v.reason in nvml_codes.WHOLE_DEVICE), default="")


def _hot(device: nvml.Handle, pci: str) -> dict[str, Any]:
    memory = nvml.reading(lambda: nvml.memory(device))
    return {
        "memory_used_bytes": then(memory, lambda sizes: sizes[1]),
        "utilization_percent": nvml.reading(lambda: nvml.utilization_percent(device)),
        "mig": mig.read(device, then(memory, lambda sizes: sizes[0])),
        "recovery_action": _recovery_action(device),
        "remap": then(nvml.reading(lambda: nvml.remapped_rows(device)), _remap),
        "retired_pages_pending": nvml.reading(lambda: nvml.retired_pages_pending(device)),
        "ecc": _ecc(device),
        "fabric": fabric.read(device),
        "clocks_reasons": nvml.reading(lambda: nvml.clocks_reasons(device)),
        "temperature_c": nvml.reading(lambda: nvml.temperature_c(device)),
        "power_mw": nvml.reading(lambda: nvml.power_milliwatts(device)),
        "drain": nvml.reading(lambda: nvml.drain_state(pci)),
    }


def _static(device: nvml.Handle) -> dict[str, Any]:
    memory = nvml.reading(lambda: nvml.memory(device))
    return {
        "product": nvml.reading(lambda: nvml.name(device)),
        "memory_bytes": then(memory, lambda sizes: sizes[0]),
        "numa_node": _numa_node(device),
        "nvlinks": _nvlinks(device),
        "events_supported": supported(nvml.reading(lambda: nvml.supported_events(device)), ()),
        "persistence": nvml.reading(lambda: nvml.persistence(device)),
        "licence": then(nvml.reading(lambda: nvml.licence(device)), _licence),
    }


def then(value: Reading[A], change: Callable[[A], B]) -> Reading[B]:
    """Return the changed value, or the same reason."""
    match value:
        case Known(known):
            return Known(change(known))
        case Unknown():
            return value


def supported(value: Reading[A], instead: A) -> Reading[A]:
    """Return `instead` where the driver said for certain that this board has no such thing."""
    match value:
        case Unknown(nvml_codes.NOT_SUPPORTED):
            return Known(instead)
        case _:
            return value


def _recovery_action(device: nvml.Handle) -> Reading[planes.RecoveryAction]:
    try:
        value = nvml.fields(device, (nvml.FIELD_RECOVERY_ACTION,))[nvml.FIELD_RECOVERY_ACTION]
    except nvml.NvmlError as error:
        value = Unknown(error.reason, error.call)
    match value:
        case Known(number) if number in RECOVERY_ACTIONS:
            return Known(RECOVERY_ACTIONS[number])
        case Known(number):
            return Unknown("UnknownEnumValue", f"recovery action {number}")
        case Unknown():
            return supported(value, planes.RecoveryAction.UNSUPPORTED)


def _remap(rows: tuple[int, int, bool, bool]) -> planes.Remap:
    correctable, uncorrectable, pending, failed = rows
    return planes.Remap(
        correctable=Known(correctable),
        uncorrectable=Known(uncorrectable),
        pending=Known(pending),
        failed=Known(failed),
    )


def _ecc(device: nvml.Handle) -> Reading[planes.Ecc]:
    def total(*, uncorrected: bool, aggregate: bool) -> Reading[int]:
        return nvml.reading(lambda: nvml.ecc_errors(device, uncorrected=uncorrected, aggregate=aggregate))

    volatile = total(uncorrected=True, aggregate=False)
    if isinstance(volatile, Unknown):  # ECC off or absent: the other totals would say the same.
        return volatile
    sram = nvml.reading(lambda: nvml.sram_errors(device))
    return Known(
        planes.Ecc(
            volatile_corrected=total(uncorrected=False, aggregate=False),
            volatile_uncorrected=volatile,
            aggregate_corrected=total(uncorrected=False, aggregate=True),
            aggregate_uncorrected=total(uncorrected=True, aggregate=True),
            sram_uncorrected=then(sram, lambda values: values[0]),
            sram_threshold_exceeded=then(sram, lambda values: values[1]),
        )
    )


def _numa_node(device: nvml.Handle) -> Reading[int]:
    """The first node near the GPU: sysfs says -1 on some firmware while the driver knows (topology.md section 1.2)."""
    match nvml.reading(lambda: nvml.memory_nodes(device, _NUMA_WORDS)):
        case Known(nodes):
            return Known(nodes[0]) if nodes else Unknown("NoAffinity")
        case Unknown() as unknown:
            return unknown


def _nvlinks(device: nvml.Handle) -> Reading[tuple[planes.NvLink, ...]]:
    """Walk the GPU's links once, up to the count it reports: the binding's constant would probe absent ones."""
    try:
        count = nvml.fields(device, (nvml.FIELD_LINK_COUNT,))[nvml.FIELD_LINK_COUNT]
        match supported(count, 0):
            case Known(number):
                return Known(tuple(link for place in range(number) if (link := _link(device, place)) is not None))
            case Unknown() as unknown:
                return unknown
    except nvml.NvmlError as error:
        return supported(Unknown(error.reason, error.call), ())


def _link(device: nvml.Handle, link: int) -> planes.NvLink | None:
    try:
        state = LINK_STATES.get(nvml.link_state(device, link))
    except nvml.NvmlError as error:
        if error.reason == nvml_codes.NOT_SUPPORTED:
            return None  # Not wired on this board.
        raise
    if state is None:
        raise nvml.NvmlError("UnknownEnumValue", f"state of link {link}")
    if state is planes.LinkState.INACTIVE:
        return planes.NvLink(link=link, state=state)
    remote = nvml.reading(lambda: nvml.link_remote(device, link))
    return planes.NvLink(
        link=link,
        state=state,
        remote=then(remote, lambda kind: LINK_REMOTES.get(kind, planes.LinkRemote.UNKNOWN)),
        remote_pci=nvml.reading(lambda: nvml.link_remote_pci(device, link)),
    )


def _licence(answer: tuple[bool, datetime.datetime | None]) -> planes.Licence:
    licensed, expiry = answer
    return planes.Licence(licensed=licensed, expiry=expiry)


def processes_of(device: nvml.Handle, proc_root: pathlib.Path) -> Reading[tuple[planes.Process, ...]]:
    """Return the compute processes of the whole GPU: in MIG mode that aggregate needs privilege, and says so.

    In a PID namespace of its own the reader is told of its own processes only: an empty list there is no idle GPU.
    """
    if not processes.has_host_view(proc_root):
        return processes.NO_HOST_VIEW
    match nvml.reading(lambda: nvml.compute_processes(device)):
        case Known(found):
            return Known(tuple(_process(entry, proc_root) for entry in sorted(found, key=lambda entry: int(entry.pid))))
        case Unknown() as unknown:
            return unknown


def _process(entry: Any, proc_root: pathlib.Path) -> planes.Process:
    used = entry.usedGpuMemory
    pid = int(entry.pid)
    return planes.Process(
        pid=pid,
        used_bytes=Known(int(used)) if used is not None else Unknown("NotReported"),
        cgroup=processes.read_cgroup(proc_root, pid),
        gi=nvml.instance_id(int(entry.gpuInstanceId)),
        ci=nvml.instance_id(int(entry.computeInstanceId)),
        name=processes.read_name(proc_root, pid),
    )
