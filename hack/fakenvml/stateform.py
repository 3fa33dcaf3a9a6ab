"""The state file's text: a State, checked, to lines and back.

In: a State, or the text of a file. Out: the other one. Raises Invalid with every error at once, each with its path.

Invariant: `from_text(to_text(state)) == state`; the keys are the dataclass fields themselves.

Why one line a record with every key written out: parse.c needs no defaults, so a missing key is an error there too.

Not here: what may be in a state (statechecks.py); files, sessions and resets (store.py).
"""

import dataclasses
import urllib.parse
from typing import Any

from hack.fakenvml import state as state_module
from hack.fakenvml import statechecks
from hack.fakenvml.state import State
from hack.fakenvml.statechecks import KINDS, NESTED

HEADER = "fakenvml 1"
PLACES = frozenset({"index", "gpu", "link"})
"""Keys that say which GPU or link a line is about, where the value itself does not hold that."""
CODE_NAMES = {code: name for name, code in state_module.NVML_CODES.items()}


class Invalid(ValueError):
    """The state or the file is wrong; `args` are the errors, one a line."""

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.args)


def to_text(state: State) -> str:
    """Write the checked state out; raise Invalid with all that is wrong."""
    wrong = statechecks.problems(state)
    if wrong:
        raise Invalid(*wrong)
    lines = [HEADER, _line("system", state)]
    for index, gpu in enumerate(state.gpus):
        lines.append(_line("gpu", gpu, index=index))
        lines += [_line("link", link, gpu=index, link=number) for number, link in enumerate(gpu.links)]
        lines += [_line("mig", instance, gpu=index) for instance in gpu.mig]
        lines += [_line("process", process, gpu=index) for process in gpu.processes]
    for kind, records in statechecks.own_lines(state):
        lines += [_line(kind, record) for record in records]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> State:
    """Read what `to_text` wrote; raise Invalid with the first line that does not fit."""
    lines = text.splitlines()
    if not lines or lines[0] != HEADER:
        raise Invalid(f"line 1: must be `{HEADER}`")
    system: dict[str, Any] = {}
    gpus: list[dict[str, Any]] = []
    rows: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(lines[1:], start=2):
        kind, _, rest = line.partition(" ")
        values = {key: value for key, _, value in (pair.partition("=") for pair in rest.split(" "))}
        try:
            if kind == "system":
                system = _typed(State, values)
            elif kind == "gpu":
                gpus.append({**_typed(state_module.Gpu, values), "links": [], "mig": [], "processes": []})
            else:
                place = gpus[int(values["gpu"])][NESTED[kind]] if kind in NESTED else rows[kind]
                place.append(KINDS[kind](**_typed(KINDS[kind], values)))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise Invalid(f"line {number}: {error!r}") from error
    try:
        plural: dict[str, Any] = {f"{kind}s": tuple(rows[kind]) for kind in ("fault", "field", "event")}
        return State(**system, gpus=tuple(_gpu(values) for values in gpus), **plural)
    except TypeError as error:
        raise Invalid(f"system, gpu: {error}") from error


def _line(kind: str, record: Any, **places: int) -> str:
    pairs = [f"{key}={value}" for key, value in places.items()]
    pairs += [f"{key}={_text(key, getattr(record, key))}" for key in statechecks.keys_of(kind)]
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
    own = {key: text for key, text in values.items() if key in types or key not in PLACES}
    return {key: _value(key, types[key], text) for key, text in own.items()}


def _value(key: str, kind: Any, text: str) -> Any:
    if kind == tuple[int, ...]:
        return () if text == "-" else tuple(int(item) for item in text.split(","))
    if key == "error":
        return None if text == "-" else CODE_NAMES[int(text)]
    if kind is str:
        return urllib.parse.unquote(text)
    if text == "-":
        return None
    return {"0": False, "1": True}[text] if kind is bool else int(text)
