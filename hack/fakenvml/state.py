"""What the fake driver shows: one frozen State, edited by making a new one.

In: `dataclasses.replace` and the few named edits below. Out: a value that `store.write` checks and writes for the C
library. Field names are the keys of the state file; None is "this board does not support it" (`-` in the file).

Invariant: every edit that a driver could not undo leaves a trace (`boot`, `resets`, `seq`), so that the library can tell
a recovered GPU from a typo.

Why values and not a live object: a test reads as before / after, and the file is always a whole state.

Not here: the text form and its checks (stateform.py), machines (profiles.py), who has the driver open (store.py).
"""

import dataclasses
import enum
from typing import Any

NVML_CODES = {
    "UNINITIALIZED": 1, "INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3, "NO_PERMISSION": 4, "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7, "DRIVER_NOT_LOADED": 9, "TIMEOUT": 10, "FUNCTION_NOT_FOUND": 13, "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16, "OPERATING_SYSTEM": 17, "LIB_RM_VERSION_MISMATCH": 18, "IN_USE": 19, "MEMORY": 20,
    "NO_DATA": 21, "INSUFFICIENT_RESOURCES": 23, "ARGUMENT_VERSION_MISMATCH": 25, "NOT_READY": 27,
    "INVALID_STATE": 29, "UNKNOWN": 999,
}  # fmt: skip
"""NVML's return codes that a fault may inject."""


class EventType(enum.IntEnum):
    """NVML event bits (topology.md section 1.3)."""

    SINGLE_BIT_ECC = 0x1
    DOUBLE_BIT_ECC = 0x2
    XID = 0x8
    MIG_CONFIG_CHANGE = 0x100
    GPU_UNAVAILABLE = 0x4000
    RECOVERY_ACTION = 0x8000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    state: int | None = 1
    """0 inactive, 1 active, 2 sleep, 3 traffic disabled."""
    remote: int | None = 2
    """0 GPU, 1 NPU, 2 switch, 255 unknown."""
    remote_link: int | None = None
    """The link's number at the other end."""
    remote_pci: str = ""
    """Empty: the driver does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    slot: int
    """NVML's MIG index; a slot that nobody has is a hole."""
    uuid: str
    gi: int
    ci: int = 0
    profile: int
    """Profile id (19, 14, 9, ...), not the enum."""
    name: str
    start: int
    size: int
    compute_slices: int
    gpu_slices: int
    sm: int
    memory_mib: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    used: int | None = 1 << 30
    gi: int | None = None
    ci: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong; exactly one of error, slow_ms, hang, segfault, grow."""

    fn: str = "*"
    """A name of functions.def, or `*`."""
    gpu: int | None = None
    """None: every GPU, and calls that are about none."""
    error: str | None = None
    """A key of NVML_CODES."""
    slow_ms: int | None = None
    hang: bool = False
    segfault: bool = False
    grow: bool = False
    """The process list outgrows the caller's buffer between two calls."""
    times: int | None = None
    """How often in each process; None: always."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldValue:
    """Overrides one field of GetFieldValues."""

    gpu: int
    id: int
    scope: int = 0
    value: int = 0
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seq: int
    gpu: int
    type: int
    data: int = 0
    gi: int | None = None
    ci: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    uuid: str
    name: str
    pci: str
    """As sysfs writes it: 0000:1b:00.0"""
    minor: int
    pci_device: int
    """Device id << 16 | 0x10de."""
    pci_subsystem: int = 0
    memory: int
    used: int = 0
    reserved: int = 0
    busy: int | None = 0
    memory_busy: int | None = 0
    persistence: int | None = 1
    mig_current: int | None = None
    mig_pending: int | None = None
    mig_max: int = 0
    lost: bool = False
    reset_required: bool = False
    needs_reboot: bool = False
    """A reset will be refused; only a reboot helps."""
    resets: int = 0
    recovery_action: int | None = 0
    remap_correctable: int | None = 0
    remap_uncorrectable: int | None = 0
    remap_pending: int | None = 0
    remap_failed: int | None = 0
    retired_pending: int | None = None
    ecc_volatile_corrected: int | None = 0
    ecc_volatile_uncorrected: int | None = 0
    ecc_aggregate_corrected: int | None = 0
    ecc_aggregate_uncorrected: int | None = 0
    sram_uncorrected: int | None = 0
    """Over the board's life; no reset clears it."""
    sram_volatile: int | None = 0
    """Since the last reset."""
    sram_threshold: int | None = 0
    fabric_version: int = 3
    """Highest struct version that the driver takes; above it ARGUMENT_VERSION_MISMATCH."""
    fabric_state: int | None = None
    """None NotSupported; 0 unsupported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: int = 0
    fabric_uuid: str = "0" * 32
    """32 hex digits."""
    fabric_clique: int = 0
    fabric_mask: int = 0
    """Health mask; in its 2-bit fields 0 is not supported, 1 true, 2 false (topology.md section 1.2)."""
    fabric_summary: int = 0
    nvlinks: int = 0
    nvlink_mbps: int = 0
    """Per direction."""
    numa_node: int = 0
    """Home node as sysfs gives it; NVML has no call for it."""
    numa_memory: tuple[int, ...] = (0,)
    """Nodes of nvmlDeviceGetMemoryAffinity; empty: NotSupported."""
    clocks: int | None = 0
    temperature: int | None = 35
    power_mw: int | None = 70_000
    events: int = 0
    """Supported event types."""
    drain: int | None = 0
    licence: int | None = None
    licence_expiry: int | None = None
    """Unix seconds."""
    links: tuple[Link, ...] = ()
    mig: tuple[MigInstance, ...] = ()
    processes: tuple[Process, ...] = ()

    @property
    def is_broken(self) -> bool:
        return self.lost or self.reset_required or self.needs_reboot

    def after_reset(self) -> "Gpu":
        """Return the GPU as a reset leaves it: counters cleared, MIG mode applied, instances and processes gone."""
        return dataclasses.replace(
            self,
            lost=False,
            reset_required=False,
            needs_reboot=False,
            resets=self.resets + 1,
            recovery_action=None if self.recovery_action is None else 0,
            remap_pending=None if self.remap_pending is None else 0,
            retired_pending=None if self.retired_pending is None else 0,
            ecc_volatile_corrected=None if self.ecc_volatile_corrected is None else 0,
            ecc_volatile_uncorrected=None if self.ecc_volatile_uncorrected is None else 0,
            sram_volatile=None if self.sram_volatile is None else 0,
            mig_current=self.mig_pending,
            mig=(),
            processes=(),
            used=0,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    driver: str
    boot: int = 1
    counted: int | None = None
    """What the driver counts where that differs from the GPUs here: fewer hide the last (a drained GPU), more are not found."""
    gpus: tuple[Gpu, ...]
    faults: tuple[Fault, ...] = ()
    fields: tuple[FieldValue, ...] = ()
    events: tuple[Event, ...] = ()

    def index_of(self, uuid: str) -> int:
        return [gpu.uuid for gpu in self.gpus].index(uuid)

    def with_gpu(self, index: int, **changes: Any) -> "State":
        gpus = list(self.gpus)
        gpus[index] = dataclasses.replace(gpus[index], **changes)
        return dataclasses.replace(self, gpus=tuple(gpus))

    def with_every_gpu(self, **changes: Any) -> "State":
        return dataclasses.replace(self, gpus=tuple(dataclasses.replace(gpu, **changes) for gpu in self.gpus))

    def with_fault(self, fn: str = "*", **what: Any) -> "State":
        """Add a fault: `with_fault("nvmlDeviceGetUUID", gpu=3, error="TIMEOUT")`."""
        return dataclasses.replace(self, faults=(*self.faults, Fault(fn=fn, **what)))

    def without_faults(self, gpu: int | None = None) -> "State":
        """Drop injected faults: of one GPU, or all."""
        kept = tuple(fault for fault in self.faults if gpu is not None and fault.gpu != gpu)
        return dataclasses.replace(self, faults=kept)

    def with_init_error(self, error: str) -> "State":
        """Refuse new sessions: DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH, NO_PERMISSION. Open ones go on."""
        return self.with_fault("nvmlInitWithFlags", error=error)

    def with_event(self, gpu: int, type: int, data: int = 0, gi: int | None = None, ci: int | None = None) -> "State":  # noqa: A002
        """Add one occurrence: each event set that was registered before gets it once."""
        seq = self.events[-1].seq + 1 if self.events else 1
        event = Event(seq=seq, gpu=gpu, type=type, data=data, gi=gi, ci=ci)
        return dataclasses.replace(self, events=(*self.events, event)[-256:])

    def with_xid(self, gpu: int, code: int, gi: int | None = None, ci: int | None = None) -> "State":
        return self.with_event(gpu, EventType.XID, code, gi, ci)

    def with_process(self, gpu: int, process: Process) -> "State":
        return self.with_gpu(gpu, processes=(*self.gpus[gpu].processes, process))

    def without_process(self, pid: int) -> "State":
        gpus = (
            dataclasses.replace(gpu, processes=tuple(process for process in gpu.processes if process.pid != pid))
            for gpu in self.gpus
        )
        return dataclasses.replace(self, gpus=tuple(gpus))

    def with_links_down(self, gpu: int) -> "State":
        """All links of one GPU inactive (open-gpu-kernel-modules#1150)."""
        links = tuple(dataclasses.replace(link, state=0) for link in self.gpus[gpu].links)
        return self.with_gpu(gpu, links=links)

    def with_reset(self, gpu: int) -> "State":
        """What a completed reset leaves; `store.reset` also asks whether it may."""
        gpus = list(self.gpus)
        gpus[gpu] = gpus[gpu].after_reset()
        return dataclasses.replace(self, gpus=tuple(gpus)).without_faults(gpu)

    def rebooted(self) -> "State":
        """Boot anew: every device reset and no faults; MIG mode survives, instances do not (faults.md S19).

        Events stay, since their numbers must rise; a set that is registered after the boot does not see them.
        """
        gpus = tuple(gpu.after_reset() for gpu in self.gpus)
        return dataclasses.replace(self, boot=self.boot + 1, gpus=gpus, faults=(), counted=None)
