"""The state file's text: a State, checked, to lines and back.

In: a State, or the text of a file. Out: the other one. Raises Invalid with every error at once, each with its path.

Invariant: `from_text(to_text(state)) == state`, and what passes `problems` is what parse.c takes: the keys are the
dataclass fields themselves, the bounds are compared with parse.c's tables by a test.

Why one line a record with every key written out: parse.c needs no defaults, so a missing key is an error there too.

Not here: files, sessions and resets (store.py).
"""

import dataclasses
import pathlib
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from hack.fakenvml import state as state_module
from hack.fakenvml.state import State

HEADER = "fakenvml 1"
LARGEST = 2**63 - 1
U32 = 2**32 - 1
TEXT_BYTES = 95
"""TEXT_SIZE of state.h less the final zero."""
MAX_GPUS = 32
FUNCTIONS = frozenset(
    re.findall(r"^FUNCTION\((\w+)\)$", (pathlib.Path(__file__).parent / "functions.def").read_text(), re.MULTILINE)
)
CODE_NAMES = {code: name for name, code in state_module.NVML_CODES.items()}

KINDS: dict[str, type[Any]] = {
    "gpu": state_module.Gpu,
    "link": state_module.Link,
    "mig": state_module.MigInstance,
    "profile": state_module.MigProfile,
    "process": state_module.Process,
    "pair": state_module.Pair,
    "fault": state_module.Fault,
    "field": state_module.FieldValue,
    "event": state_module.Event,
}
NESTED = {"link": "links", "mig": "mig", "process": "processes"}
"""Lines that belong to a GPU, and the Gpu field that holds them."""
LIMITS = {"link": 36, "mig": 16, "profile": 18, "process": 512, "pair": 1024, "fault": 128, "field": 128, "event": 512}
"""Array sizes of state.h; link and mig a GPU, the others in all."""

BOUNDS: dict[str, dict[str, tuple[int, int]]] = {
    "system": {"counted": (0, MAX_GPUS), "cuda": (0, U32)},
    "gpu": {
        "minor": (0, 255), "pci_device": (0, U32), "pci_subsystem": (0, U32), "busy": (0, 100), "memory_busy": (0, 100),
        "persistence": (0, 1), "mig_current": (0, 1), "mig_pending": (0, 1), "mig_max": (0, 16),
        "recovery_action": (0, 7), "remap_correctable": (0, U32), "remap_uncorrectable": (0, U32),
        "remap_pending": (0, 1), "remap_failed": (0, 1), "retired_pending": (0, 1), "sram_threshold": (0, 1),
        "fabric_version": (0, 3), "fabric_state": (0, 3), "fabric_status": (0, 999), "fabric_clique": (0, U32),
        "fabric_mask": (0, U32), "fabric_summary": (0, 3), "nvlinks": (0, 36), "nvlink_mbps": (0, U32),
        "numa_node": (-1, 1023), "numa_id": (0, 1023), "temperature": (-100, 200), "power_mw": (0, U32),
        "drain": (0, 1), "licence": (0, 1),
    },
    "link": {"state": (0, 3), "remote": (0, 255), "remote_link": (0, 36)},
    "mig": {
        "slot": (0, 15), "gi": (0, 63), "ci": (0, 7), "profile": (0, 255), "start": (0, 11), "size": (1, 12),
        "compute_slices": (1, 8), "gpu_slices": (1, 8), "sm": (1, U32), "memory_mib": (1, LARGEST),
    },
    "profile": {
        "id": (0, 255), "number": (0, 17), "slices": (1, 8), "instances": (1, 12), "sm": (1, U32),
        "memory_mib": (1, LARGEST), "size": (1, 12),
    },
    "process": {"pid": (1, U32), "gi": (0, U32), "ci": (0, U32)},
    "pair": {"a": (0, MAX_GPUS - 1), "b": (0, MAX_GPUS - 1), "level": (0, 50)},
    "fault": {"gpu": (0, MAX_GPUS - 1), "slow_ms": (1, LARGEST), "times": (1, LARGEST)},
    "field": {"gpu": (0, MAX_GPUS - 1), "id": (1, U32), "scope": (0, U32), "value": (-LARGEST, LARGEST)},
    "event": {
        "seq": (1, LARGEST), "gpu": (0, MAX_GPUS - 1), "type": (1, LARGEST), "gi": (0, U32), "ci": (0, U32),
    },
}  # fmt: skip
"""What parse.c takes; a number that is not named here is 0 or more."""


class Invalid(ValueError):
    """The state or the file is wrong; `args` are the errors, one a line."""

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.args)


def keys_of(kind: str) -> list[str]:
    """List a line's keys in writing order, less those that say which GPU it belongs to."""
    record = State if kind == "system" else KINDS[kind]
    plural = {*NESTED.values(), "gpus", "profiles", "pairs", "faults", "fields", "events"}
    nested = plural - {"events"} if kind == "gpu" else plural  # Gpu.events is a mask
    return [field.name for field in dataclasses.fields(record) if field.name not in nested]


def to_text(state: State) -> str:
    """Write the checked state out; raise Invalid with all that is wrong."""
    wrong = problems(state)
    if wrong:
        raise Invalid(*wrong)
    lines = [HEADER, _line("system", state)]
    for index, gpu in enumerate(state.gpus):
        lines.append(_line("gpu", gpu, index=index))
        lines += [_line("link", link, gpu=index, link=number) for number, link in enumerate(gpu.links)]
        lines += [_line("mig", instance, gpu=index) for instance in gpu.mig]
        lines += [_line("process", process, gpu=index) for process in gpu.processes]
    for kind, records in _own_lines(state):
        lines += [_line(kind, record) for record in records]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> State:
    """Read what `to_text` wrote."""
    lines = text.splitlines()
    if not lines or lines[0] != HEADER:
        raise Invalid(f"line 1: must be `{HEADER}`")
    gpus: list[dict[str, Any]] = []
    rows: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    system: dict[str, Any] = {}
    for line in lines[1:]:
        kind, _, rest = line.partition(" ")
        values = {key: value for key, _, value in (pair.partition("=") for pair in rest.split(" "))}
        if kind == "system":
            system = _typed(State, values)
        elif kind == "gpu":
            gpus.append({**_typed(state_module.Gpu, values), "links": [], "mig": [], "processes": []})
        elif kind in NESTED:
            gpus[int(values["gpu"])][NESTED[kind]].append(KINDS[kind](**_typed(KINDS[kind], values)))
        else:
            rows[kind].append(KINDS[kind](**_typed(KINDS[kind], values)))
    return State(
        **system,
        gpus=tuple(_gpu(values) for values in gpus),
        profiles=tuple(rows["profile"]),
        pairs=tuple(rows["pair"]),
        faults=tuple(rows["fault"]),
        fields=tuple(rows["field"]),
        events=tuple(rows["event"]),
    )


def problems(state: State) -> list[str]:
    """Name everything that parse.c would refuse, and what no machine can show, each with its path."""
    return [*_bad_values(state), *_bad_gpus(state), *_bad_faults(state), *_bad_references(state)]


def _own_lines(state: State) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return (
        ("profile", state.profiles),
        ("pair", state.pairs),
        ("fault", state.faults),
        ("field", state.fields),
        ("event", state.events),
    )


def _line(kind: str, record: Any, **places: int) -> str:
    pairs = [f"{key}={value}" for key, value in places.items()]
    pairs += [f"{key}={_text(key, getattr(record, key))}" for key in keys_of(kind)]
    return " ".join([kind, *pairs])


def _text(key: str, value: Any) -> str:
    if key == "error" and value is not None:
        return str(state_module.NVML_CODES[value])
    match value:
        case None | ():
            return "-"
        case bool():
            return str(int(value))
        case tuple():
            return ",".join(str(item) for item in value)
        case str():
            return urllib.parse.quote(value, safe=":*.+") if value != "-" else "%2D"
        case _:
            return str(value)


def _gpu(values: dict[str, Any]) -> state_module.Gpu:
    frozen: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return state_module.Gpu(**frozen)


def _typed(record: type[Any], values: dict[str, str]) -> dict[str, Any]:
    types = {field.name: field.type for field in dataclasses.fields(record)}
    return {key: _value(key, types[key], text) for key, text in values.items() if key in types}


def _value(key: str, kind: Any, text: str) -> Any:
    if kind == tuple[int, ...]:
        return () if text == "-" else tuple(int(item) for item in text.split(","))
    if key == "error":
        return None if text == "-" else CODE_NAMES[int(text)]
    if kind is str:
        return urllib.parse.unquote(text)
    if text == "-":
        return None
    return text == "1" if kind is bool else int(text)


def _records(state: State) -> Iterator[tuple[str, str, Any]]:
    """Every record with its path and kind."""
    yield "system", "system", state
    for index, gpu in enumerate(state.gpus):
        yield f"gpus[{index}]", "gpu", gpu
        for kind, name in NESTED.items():
            for number, record in enumerate(getattr(gpu, name)):
                yield f"gpus[{index}].{name}[{number}]", kind, record
    for kind, records in _own_lines(state):
        for number, record in enumerate(records):
            yield f"{kind}s[{number}]", kind, record


def _bad_values(state: State) -> Iterator[str]:
    for path, kind, record in _records(state):
        types = {field.name: field.type for field in dataclasses.fields(record)}
        for key in keys_of(kind):
            value = getattr(record, key)
            wrong = _wrong_with(value, types[key], BOUNDS[kind].get(key, (0, LARGEST)))
            if wrong and key != "error":
                yield f"{path}.{key}: {wrong}, not {value!r}"


def _wrong_with(value: Any, kind: Any, bounds: tuple[int, int]) -> str:
    """What is wrong with one value, or nothing."""
    if kind is str:
        fits = isinstance(value, str) and "\0" not in value and len(value.encode()) <= TEXT_BYTES
        return "" if fits else f"must be text of at most {TEXT_BYTES} bytes"
    if kind is bool:
        return "" if isinstance(value, bool) else "must be true or false"
    if kind == tuple[int, ...]:
        fits = isinstance(value, tuple) and len(value) <= 64 and all(_is_number(item, (0, LARGEST)) for item in value)
        return "" if fits else "must be at most 64 numbers"
    if value is None and kind is not int:
        return ""
    return "" if _is_number(value, bounds) else f"must be a number from {bounds[0]} to {bounds[1]}"


def _is_number(value: Any, bounds: tuple[int, int]) -> bool:
    return isinstance(value, int) and bounds[0] <= value <= bounds[1]


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
        places = {"pair": ("a", "b"), "fault": ("gpu",), "field": ("gpu",), "event": ("gpu",)}.get(kind, ())
        for key in places:
            index = getattr(record, key)
            if index is not None and index >= len(state.gpus):
                yield f"{path}.{key}: no such GPU: {index}"
    for kind, records in _own_lines(state):
        if len(records) > LIMITS[kind]:
            yield f"{kind}s: at most {LIMITS[kind]}"
    if sum(len(gpu.processes) for gpu in state.gpus) > LIMITS["process"]:
        yield f"processes: at most {LIMITS['process']} in all"
    seqs = [event.seq for event in state.events]
    if seqs != sorted(set(seqs)):
        yield "events: seq must rise"
