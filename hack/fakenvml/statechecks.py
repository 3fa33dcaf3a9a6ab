"""What may be in a state: the bounds of every number, and what no machine could show.

In: a State. Out: every problem at once, each with its path.

Invariant: what passes here is what parse.c takes. Keys and bounds are compared with its tables by a test, and a property
test feeds it whatever passed.

Why twice: a typo must fail where it was made, and a hand-written file must not load as a healthy machine either.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from hack.fakenvml import state as state_module
from hack.fakenvml.state import State

LARGEST = 2**63 - 1
U32 = 2**32 - 1
TEXT_BYTES = 95
"""TEXT_SIZE of state.h less the final zero."""
MOST_ITEMS = 64
"""MAX_LIST of state.h."""
MAX_GPUS = 32
FUNCTIONS = frozenset(
    re.findall(r"^FUNCTION\((\w+)\)$", (pathlib.Path(__file__).parent / "functions.def").read_text(), re.MULTILINE)
)

KINDS: dict[str, type[Any]] = {
    "gpu": state_module.Gpu,
    "link": state_module.Link,
    "mig": state_module.MigInstance,
    "process": state_module.Process,
    "fault": state_module.Fault,
    "field": state_module.FieldValue,
    "event": state_module.Event,
}
NESTED = {"link": "links", "mig": "mig", "process": "processes"}
"""Lines that belong to a GPU, and the Gpu field that holds them."""
LIMITS = {"link": 36, "mig": 16, "process": 512, "fault": 128, "field": 128, "event": 512}
"""Array sizes of state.h; link and mig a GPU, the others in all."""

BOUNDS: dict[str, dict[str, tuple[int, int]]] = {
    "system": {"counted": (0, MAX_GPUS)},
    "gpu": {
        "minor": (0, 255), "pci_device": (0, U32), "pci_subsystem": (0, U32), "busy": (0, 100), "memory_busy": (0, 100),
        "persistence": (0, 1), "mig_current": (0, 1), "mig_pending": (0, 1), "mig_max": (0, 16),
        "recovery_action": (0, 7), "remap_correctable": (0, U32), "remap_uncorrectable": (0, U32),
        "remap_pending": (0, 1), "remap_failed": (0, 1), "retired_pending": (0, 1), "sram_threshold": (0, 1),
        "fabric_version": (0, 3), "fabric_state": (0, 3), "fabric_status": (0, 999), "fabric_clique": (0, U32),
        "fabric_mask": (0, U32), "fabric_summary": (0, 3), "nvlinks": (0, 36), "nvlink_mbps": (0, U32),
        "numa_node": (-1, 1023), "temperature": (-100, 200), "power_mw": (0, U32),
        "drain": (0, 1), "licence": (0, 1),
    },
    "link": {"state": (0, 3), "remote": (0, 255), "remote_link": (0, 36)},
    "mig": {
        "slot": (0, 15), "gi": (0, 63), "ci": (0, 7), "profile": (0, 255), "start": (0, 11), "size": (1, 12),
        "compute_slices": (1, 8), "gpu_slices": (1, 8), "sm": (1, U32), "memory_mib": (1, LARGEST),
    },
    "process": {"pid": (1, U32), "gi": (0, U32), "ci": (0, U32)},
    "fault": {"gpu": (0, MAX_GPUS - 1), "slow_ms": (1, LARGEST), "times": (1, LARGEST)},
    "field": {"gpu": (0, MAX_GPUS - 1), "id": (1, U32), "scope": (0, U32), "value": (-LARGEST, LARGEST)},
    "event": {
        "seq": (1, LARGEST), "gpu": (0, MAX_GPUS - 1), "type": (1, LARGEST), "gi": (0, U32), "ci": (0, U32),
    },
}  # fmt: skip
"""What parse.c takes; a number that is not named here is 0 or more."""


def keys_of(kind: str) -> list[str]:
    """List a line's keys in writing order, less those that say which GPU it belongs to."""
    record = State if kind == "system" else KINDS[kind]
    plural = {*NESTED.values(), "gpus", "faults", "fields", "events"}
    nested = plural - {"events"} if kind == "gpu" else plural  # Gpu.events is a mask
    return [field.name for field in dataclasses.fields(record) if field.name not in nested]


def problems(state: State) -> list[str]:
    """Name everything that parse.c would refuse, and what no machine can show, each with its path.

    Values of a wrong type come alone: what they would mean to the other checks is anybody's guess.
    """
    misfits = [f"{place}: must be {_type_name(kind)}, not {value!r}" for place, kind, value in _misfits(state)]
    return misfits or [*_bad_values(state), *_bad_gpus(state), *_bad_faults(state), *_bad_references(state)]


def own_lines(state: State) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the records that belong to no GPU, by kind."""
    return (
        ("fault", state.faults),
        ("field", state.fields),
        ("event", state.events),
    )


def _records(state: State) -> Iterator[tuple[str, str, Any]]:
    """Every record with its path and kind."""
    yield "system", "system", state
    for index, gpu in enumerate(state.gpus):
        yield f"gpus[{index}]", "gpu", gpu
        for kind, name in NESTED.items():
            for number, record in enumerate(getattr(gpu, name)):
                yield f"gpus[{index}].{name}[{number}]", kind, record
    for kind, records in own_lines(state):
        for number, record in enumerate(records):
            yield f"{kind}s[{number}]", kind, record


def _values(state: State) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Every value with its path, its line's kind, its key and its declared type."""
    for path, kind, record in _records(state):
        types = {field.name: field.type for field in dataclasses.fields(record)}
        for key in keys_of(kind):
            yield path, kind, key, types[key], getattr(record, key)


def _misfits(state: State) -> Iterator[tuple[str, Any, Any]]:
    for path, _, key, declared, value in _values(state):
        if not _has_type(value, declared):
            yield f"{path}.{key}", declared, value


def _has_type(value: Any, declared: Any) -> bool:
    if declared == tuple[int, ...]:
        return isinstance(value, tuple) and all(isinstance(item, int) for item in value)
    return isinstance(value, declared)


def _type_name(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared)


def _bad_values(state: State) -> Iterator[str]:
    for path, kind, key, _, value in _values(state):
        low, high = BOUNDS[kind].get(key, (0, LARGEST))
        match value:
            case str() if key != "error" and ("\0" in value or len(value.encode()) > TEXT_BYTES):
                yield f"{path}.{key}: must be text of at most {TEXT_BYTES} bytes without a zero byte"
            case tuple() if len(value) > MOST_ITEMS or any(not 0 <= item <= LARGEST for item in value):
                yield f"{path}.{key}: must be at most {MOST_ITEMS} numbers of 0 or more"
            case int() if not low <= value <= high:
                yield f"{path}.{key}: must be from {low} to {high}, not {value}"
            case _:
                pass


def _bad_gpus(state: State) -> Iterator[str]:
    if len(state.gpus) > MAX_GPUS:
        yield f"gpus: at most {MAX_GPUS}"
    uuids = [gpu.uuid for gpu in state.gpus] + [instance.uuid for gpu in state.gpus for instance in gpu.mig]
    for uuid in sorted({uuid for uuid in uuids if uuids.count(uuid) > 1 or not uuid}):
        yield f"gpus: uuid {uuid!r} is empty or given twice"
    for index, gpu in enumerate(state.gpus):
        path = f"gpus[{index}]"
        if not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", gpu.pci):
            yield f"{path}.pci: must look like 0000:1b:00.0, not {gpu.pci!r}"
        if not re.fullmatch(r"[0-9a-f]{32}", gpu.fabric_uuid):
            yield f"{path}.fabric_uuid: must be 32 hex digits"
        if len(gpu.links) != gpu.nvlinks:
            yield f"{path}.links: must be as many as nvlinks, {gpu.nvlinks}"
        slots = [instance.slot for instance in gpu.mig]
        if len(set(slots)) != len(slots) or any(slot >= gpu.mig_max for slot in slots):
            yield f"{path}.mig: slots must differ and be below mig_max, {gpu.mig_max}"
        if gpu.mig and gpu.mig_current != 1:
            yield f"{path}.mig: instances need MIG mode on"


def _bad_faults(state: State) -> Iterator[str]:
    for number, fault in enumerate(state.faults):
        path = f"faults[{number}]"
        if fault.fn != "*" and fault.fn not in FUNCTIONS:
            yield f"{path}.fn: no such function: {fault.fn!r}"
        if fault.error is not None and fault.error not in state_module.NVML_CODES:
            yield f"{path}.error: no such NVML error: {fault.error!r}"
        effects = (fault.error is not None, fault.slow_ms is not None, fault.hang, fault.segfault, fault.grow)
        if sum(effects) != 1:
            yield f"{path}: exactly one of error, slow_ms, hang, segfault, grow"
    for number, field in enumerate(state.fields):
        if field.error is not None and field.error not in state_module.NVML_CODES:
            yield f"fields[{number}].error: no such NVML error: {field.error!r}"


def _bad_references(state: State) -> Iterator[str]:
    for path, kind, record in _records(state):
        places = {"fault": ("gpu",), "field": ("gpu",), "event": ("gpu",)}.get(kind, ())
        for key in places:
            index = getattr(record, key)
            if index is not None and index >= len(state.gpus):
                yield f"{path}.{key}: no such GPU: {index}"
    for kind, records in own_lines(state):
        if len(records) > LIMITS[kind]:
            yield f"{kind}s: at most {LIMITS[kind]}"
    if sum(len(gpu.processes) for gpu in state.gpus) > LIMITS["process"]:
        yield f"processes: at most {LIMITS['process']} in all"
    seqs = [event.seq for event in state.events]
    if seqs != sorted(set(seqs)):
        yield "events: seq must rise"
