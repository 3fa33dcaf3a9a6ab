"""The NVML binding, seen through typed functions: the only module that imports pynvml.

Each function makes one NVML call (or the older form of it, on an older driver) and returns plain values or raises
NvmlError, which carries NVML's name of the return code.

Invariant: the traps of topology.md section 1.1 end here. No caller sees a ctypes object other than an opaque handle,
and no value depends on a default buffer that two threads could share.

Why one function a call, in one file longer than most: the fake driver exports what this file calls, and a test
compares the two.

Not here: which calls make up a GPU (gpu.py, mig.py, fabric.py), on which thread they run and for how long
(workers.py), and when the session is open (session.py).
"""

import ctypes
import dataclasses
import datetime
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import pynvml

from agent.core import nvml_codes
from muster.model.reading import Known, Reading, Unknown

T = TypeVar("T")
Handle: TypeAlias = Any
"""Opaque: a device, MIG device or event set of the library. Never kept over a cycle: MIG handles are reused."""

_WHOLE_GPU = 0xFFFFFFFF
FIELD_LINK_COUNT = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
FIELD_RECOVERY_ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_FIELD_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Union member by value type."""

_WANTED = sum(bit for bit, name in nvml_codes.EVENTS.items() if name not in ("ecc_single", "ecc_single_storm"))


class NvmlError(Exception):
    """An NVML call did not return success. `reason` is NVML's name of the code."""

    def __init__(self, reason: str, call: str) -> None:
        super().__init__(f"{call}: {reason}")
        self.reason = reason
        self.call = call


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    device: int
    """Address of the parent's handle: compare with `address`."""
    kind: str
    data: int
    """For `xid`: the code."""
    gi: int | None
    ci: int | None


def reading(read: Callable[[], T]) -> Reading[T]:
    """Return what `read` returns, or the reason why NVML did not say."""
    try:
        return Known(read())
    except NvmlError as error:
        return Unknown(error.reason, error.call)


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(nvml_codes.reason(int(error.value)), call.__name__) from error


def first_known(*forms: Callable[[], T]) -> T:
    """Return the newest form of a call that this driver has; the last form's error is the answer."""
    for form in forms[:-1]:
        try:
            return form()
        except NvmlError as error:
            if error.reason not in nvml_codes.OLDER_DRIVER:
                raise
    return forms[-1]()


def load(library: pathlib.Path) -> None:
    """Load the driver's library, so that the binding finds it by its soname (style.md section 7)."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise NvmlError(nvml_codes.LIBRARY_NOT_FOUND, f"dlopen {library}") from error


def init() -> None:
    """Open the session. NVML counts opens: one `shutdown` for each."""
    _ask(pynvml.nvmlInit)


def shutdown() -> None:
    """Close the session; the library stays loaded, its function pointers stay cached in the binding."""
    _ask(pynvml.nvmlShutdown)


def driver_version() -> str:
    """Return the library's driver version."""
    return str(_ask(pynvml.nvmlSystemGetDriverVersion))


def device_count() -> int:
    """Return how many devices the driver enumerates."""
    return int(_ask(pynvml.nvmlDeviceGetCount))


def handle(index: int) -> Handle:
    """Return a device's handle; this touches the GPU and may block on a sick one."""
    return _ask(pynvml.nvmlDeviceGetHandleByIndex, index)


def address(device: Handle) -> int:
    """Return the handle's address, by which events name their device."""
    return int(ctypes.cast(device, ctypes.c_void_p).value or 0)


def uuid(device: Handle) -> str:
    """Return the UUID of a device or MIG device."""
    return str(_ask(pynvml.nvmlDeviceGetUUID, device))


def pci_address(device: Handle) -> str:
    """Return the bus address as the kernel spells it."""
    return _spelled(_ask(pynvml.nvmlDeviceGetPciInfo, device))


def _spelled(info: Any) -> str:
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def name(device: Handle) -> str:
    """Return the product name."""
    return str(_ask(pynvml.nvmlDeviceGetName, device))


def memory(device: Handle) -> tuple[int, int]:
    """Return (total, used) bytes; `used` leaves the driver's own reserve out where the driver can tell."""
    info = first_known(
        lambda: _ask(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2),
        lambda: _ask(pynvml.nvmlDeviceGetMemoryInfo, device),
    )
    return int(info.total), int(info.used)


def utilization_percent(device: Handle) -> int:
    """Return the GPU's utilisation."""
    return int(_ask(pynvml.nvmlDeviceGetUtilizationRates, device).gpu)


def temperature_c(device: Handle) -> int:
    """Return the die's temperature."""
    return int(
        first_known(
            lambda: _ask(pynvml.nvmlDeviceGetTemperatureV, device, pynvml.NVML_TEMPERATURE_GPU),
            lambda: _ask(pynvml.nvmlDeviceGetTemperature, device, pynvml.NVML_TEMPERATURE_GPU),
        )
    )


def power_milliwatts(device: Handle) -> int:
    """Return the board's power draw."""
    return int(_ask(pynvml.nvmlDeviceGetPowerUsage, device))


def clocks_reasons(device: Handle) -> tuple[str, ...]:
    """Return why clocks are below the maximum, sorted; bits without a name as `bit_N`."""
    mask = int(
        first_known(
            lambda: _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, device),
            lambda: _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, device),
        )
    )
    bits = [bit for bit in range(64) if mask >> bit & 1]
    return tuple(sorted(nvml_codes.CLOCKS_REASONS.get(1 << bit, f"bit_{bit}") for bit in bits))


def ecc_errors(device: Handle, *, uncorrected: bool, aggregate: bool) -> int:
    """Return one of the four ECC totals; `aggregate` counts over the board's life, else since the driver loaded."""
    return int(_ask(pynvml.nvmlDeviceGetTotalEccErrors, device, int(uncorrected), int(aggregate)))


def sram_errors(device: Handle) -> tuple[int, bool]:
    """Return (uncorrectable SRAM errors since the last reset, whether the threshold over the board's life is exceeded)."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    _ask(pynvml.nvmlDeviceGetSramEccErrorStatus, device, ctypes.byref(status))
    return int(status.volatileUncParity) + int(status.volatileUncSecDed), bool(status.bThresholdExceeded)


def remapped_rows(device: Handle) -> tuple[int, int, bool, bool]:
    """Return (correctable, uncorrectable, pending, failed)."""
    correctable, uncorrectable, pending, failed = _ask(pynvml.nvmlDeviceGetRemappedRows, device)
    return int(correctable), int(uncorrectable), bool(pending), bool(failed)


def retired_pages_pending(device: Handle) -> bool:
    """Return whether a page retirement waits for a reset (boards before row remapping)."""
    return bool(_ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, device))


def persistence(device: Handle) -> bool:
    """Return whether the driver stays initialised without clients."""
    return bool(_ask(pynvml.nvmlDeviceGetPersistenceMode, device))


def memory_nodes(device: Handle, words: int) -> tuple[int, ...]:
    """Return the NUMA nodes of the device's memory affinity, from a mask of `words` 64-bit words."""
    mask = _ask(pynvml.nvmlDeviceGetMemoryAffinity, device, words, 0)
    return tuple(64 * place + bit for place, word in enumerate(mask) for bit in range(64) if int(word) >> bit & 1)


def fields(device: Handle, ids: Sequence[int]) -> Mapping[int, Reading[int]]:
    """Return several fields in one call. The call succeeds if any field did: each has its own code."""
    values = _ask(pynvml.nvmlDeviceGetFieldValues, device, list(ids))
    return {int(value.fieldId): _field(value) for value in values}


def _field(value: Any) -> Reading[int]:
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return Unknown(nvml_codes.reason(int(value.nvmlReturn)), f"field {value.fieldId}")
    member = _FIELD_MEMBERS.get(int(value.valueType))
    if member is None:
        return Unknown("UnknownValueType", f"field {value.fieldId} has type {value.valueType}")
    return Known(int(getattr(value.value, member)))


def link_state(device: Handle, link: int) -> int:
    """Return the state of one NVLink: 0 inactive, 1 active, 2 sleep, 3 traffic disabled."""
    return int(_ask(pynvml.nvmlDeviceGetNvLinkState, device, link))


def link_remote(device: Handle, link: int) -> int:
    """Return what is at the other end: 0 GPU, 1 NPU, 2 switch, 255 unknown."""
    return int(_ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, link))


def link_remote_pci(device: Handle, link: int) -> str:
    """Return the bus address of the other end."""
    return _spelled(_ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link))


def drain_state(pci: str) -> bool:
    """Return whether the driver drains the device at this bus address; needs no handle."""
    domain, bus, slot = pci.split(":")
    info = pynvml.nvmlPciInfo_t()
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(slot.split(".")[0], 16)
    info.busId = pci.encode()
    return bool(_ask(pynvml.nvmlDeviceQueryDrainState, info))


def fabric_info(device: Handle, version: int) -> Any:
    """Return the fabric structure in one of its three versions: 3, 2 or the deprecated 1."""
    if version == 1:
        info = pynvml.c_nvmlGpuFabricInfo_t()
        _ask(pynvml.nvmlDeviceGetGpuFabricInfo, device, ctypes.byref(info))
        return info
    info = pynvml.c_nvmlGpuFabricInfo_v3_t() if version == 3 else pynvml.c_nvmlGpuFabricInfo_v2_t()
    _ask(pynvml.nvmlDeviceGetGpuFabricInfoV, device, ctypes.byref(info))
    return info


def licence(device: Handle) -> tuple[bool, datetime.datetime | None]:
    """Return (licensed, expiry) of a vGPU guest; NOT_SUPPORTED where no licence is needed.

    `featureEnabled` says what the guest runs as and so needs a licence for, `featureState` whether it has that licence.
    """
    answer = _ask(pynvml.nvmlDeviceGetGridLicensableFeatures_v4, device)
    if not answer.isGridLicenseSupported:
        raise NvmlError(nvml_codes.NOT_SUPPORTED, "nvmlDeviceGetGridLicensableFeatures_v4")
    features = [answer.gridLicensableFeatures[place] for place in range(int(answer.licensableFeaturesCount))]
    enabled = [feature for feature in features if feature.featureEnabled]
    if not enabled:
        raise NvmlError(nvml_codes.NOT_SUPPORTED, "nvmlDeviceGetGridLicensableFeatures_v4")
    expiries = [_expiry(feature.licenseExpiry) for feature in enabled if feature.featureState]
    known = [expiry for expiry in expiries if expiry is not None]
    return all(feature.featureState for feature in enabled), min(known, default=None)


def _expiry(at: Any) -> datetime.datetime | None:
    if int(at.status) != 2:  # NVML_GRID_LICENSE_EXPIRY_VALID, which the binding spells as a tuple.
        return None
    try:
        return datetime.datetime(at.year, at.month, at.day, at.hour, at.min, at.sec, tzinfo=datetime.UTC)
    except ValueError:
        return None


def compute_processes(device: Handle) -> tuple[Any, ...]:
    """Return the process structures of a device. Their number races with the size asked for: retried once."""
    read = pynvml.nvmlDeviceGetComputeRunningProcesses_v3
    try:
        return tuple(_ask(read, device))
    except NvmlError as error:
        if error.reason != nvml_codes.INSUFFICIENT_SIZE:
            raise
        return tuple(_ask(read, device))


def instance_id(number: int) -> int | None:
    """Return a GPU or compute instance id, or None where NVML means the whole GPU."""
    return None if number == _WHOLE_GPU else number


def mig_mode(device: Handle) -> tuple[bool, bool]:
    """Return (current, pending)."""
    current, pending = _ask(pynvml.nvmlDeviceGetMigMode, device)
    return bool(current), bool(pending)


def mig_count(device: Handle) -> int:
    """Return the length of the MIG index, holes included."""
    return int(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, device))


def mig_handle(device: Handle, place: int) -> Handle:
    """Return the handle of a MIG device; NOT_FOUND is a hole in the index."""
    return _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, place)


def mig_ids(mig: Handle) -> tuple[int, int]:
    """Return (GPU instance id, compute instance id)."""
    return int(_ask(pynvml.nvmlDeviceGetGpuInstanceId, mig)), int(_ask(pynvml.nvmlDeviceGetComputeInstanceId, mig))


def mig_attributes(mig: Handle) -> tuple[int, int, int]:
    """Return (GPU instance slices, compute instance slices, memory bytes)."""
    shape = _ask(pynvml.nvmlDeviceGetAttributes, mig)
    return int(shape.gpuInstanceSliceCount), int(shape.computeInstanceSliceCount), int(shape.memorySizeMB) << 20


def gpu_instance_placement(device: Handle, gi: int) -> tuple[int, int]:
    """Return (first memory slice, memory slices) of a GPU instance; privileged."""
    instance = _ask(pynvml.nvmlDeviceGetGpuInstanceById, device, gi)
    placement = _ask(pynvml.nvmlGpuInstanceGetInfo, instance).placement
    return int(placement.start), int(placement.size)


def supported_events(device: Handle) -> tuple[str, ...]:
    """Return the event kinds that the device can report."""
    return _kinds(int(_ask(pynvml.nvmlDeviceGetSupportedEventTypes, device)))


def create_event_set() -> Handle:
    """Return a new event set."""
    return _ask(pynvml.nvmlEventSetCreate)


def register_events(device: Handle, event_set: Handle) -> tuple[str, ...]:
    """Register what is wanted and supported; one unsupported bit would refuse them all, so mask first."""
    mask = int(_ask(pynvml.nvmlDeviceGetSupportedEventTypes, device)) & _WANTED
    if mask:
        _ask(pynvml.nvmlDeviceRegisterEvents, device, mask, event_set)
    return _kinds(mask)


def wait_event(event_set: Handle, milliseconds: int) -> Event | None:
    """Block until an event or the timeout, which is None."""
    try:
        data = _ask(pynvml.nvmlEventSetWait_v2, event_set, milliseconds)
    except NvmlError as error:
        if error.reason == nvml_codes.TIMEOUT:
            return None
        raise
    return Event(
        device=address(data.device),
        kind=nvml_codes.EVENTS.get(int(data.eventType), f"type_{int(data.eventType):#x}"),
        data=int(data.eventData),
        gi=instance_id(int(data.gpuInstanceId)),
        ci=instance_id(int(data.computeInstanceId)),
    )


def free_event_set(event_set: Handle) -> None:
    """Give the event set back."""
    _ask(pynvml.nvmlEventSetFree, event_set)


def _kinds(mask: int) -> tuple[str, ...]:
    return tuple(name for bit, name in nvml_codes.EVENTS.items() if mask & bit)
