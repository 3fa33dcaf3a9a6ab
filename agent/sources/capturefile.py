"""Read a capture: JSON Lines of observations of one node, in time order.

Input: a file. Output: its observations, and whether there is an API server (any line has `node_object` or `pods`).

Invariant: all or nothing. Every line is checked against contracts/capture.schema.json and then read by the model; a file
with anything wrong gives `BadCapture` with all its problems at once, each with line number and path, and no observation.

Why two fences: the schema names every error of a line, the model (muster.model.jsonform) makes sure that what the schema
lets through is a value the core knows.
"""

import dataclasses
import importlib.resources
import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema

from agent.model import planes
from muster.model import codec, jsonform

MAX_BYTES = 1 << 30
"""A node's line is tens of KB; a day of them at one a minute is far below this."""

MAX_PROBLEMS = 100
"""Problems named one by one; the rest is a number."""

MAX_PROBLEM_CHARS = 300
"""A problem quotes the value, which can be a whole line."""


class BadCapture(ValueError):
    """The file is no capture. `problems` holds one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        found = list(problems)
        rest = len(found) - MAX_PROBLEMS
        self.problems = tuple(found[:MAX_PROBLEMS] + ([f"and {rest} more problems"] if rest > 0 else []))
        super().__init__("\n".join(self.problems))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A whole file."""

    observations: tuple[planes.Observation, ...]
    api_server: bool


def read_capture(path: pathlib.Path) -> Capture:
    """Return the capture; BadCapture with everything that is wrong with it."""
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise BadCapture([f"{path}: has more than {MAX_BYTES} bytes"])
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadCapture([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise BadCapture([f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}"]) from error
    return parse(text.splitlines())


def parse(lines: Iterable[str]) -> Capture:
    """Return the capture of these lines; blank ones are skipped."""
    validator = _validator()
    problems: list[str] = []
    observations: list[planes.Observation] = []
    api_server = False
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in numbered:
        try:
            data = json.loads(line, parse_constant=_no_constant, object_pairs_hook=_no_twice)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: is not JSON: {_short(str(error))}")
            continue
        found = [f"line {number}: {text}" for text in _problems(validator, data)]
        problems += found
        if not found:
            api_server = api_server or "node_object" in data or "pods" in data
            observations += _observation(number, data, problems)
    if not numbered:
        problems.append("line 1: the file holds no observation")
    if not problems:
        problems += _sequence_problems(observations)
    if problems:
        raise BadCapture(problems)
    return Capture(observations=tuple(observations), api_server=api_server)


def _validator() -> Any:
    schema = json.loads((importlib.resources.files("agent") / "contracts" / "capture.schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {max(names, key=names.count)!r} stands twice in one object")
    return result


def _problems(validator: Any, data: Any) -> Iterator[str]:
    """Yield `path: problem` for every leaf of the schema's errors."""
    for error in sorted(validator.iter_errors(data), key=lambda item: (str(item.json_path), item.message)):
        for leaf in _leaves(error):
            yield _of_leaf(leaf)


def _leaves(error: Any) -> Iterator[Any]:
    """Yield what is really wrong: under an `anyOf` of a value and an error object, the value's own problems."""
    if not error.context:
        yield error
        return
    by_branch: dict[int, list[Any]] = {}
    for item in error.context:
        by_branch.setdefault(item.schema_path[0], []).append(item)
    meant = [items for items in by_branch.values() if not any(_is_other_kind(error, item) for item in items)]
    for item in min(meant or list(by_branch.values()), key=len):
        yield from _leaves(item)


def _is_other_kind(error: Any, item: Any) -> bool:
    """True if the value is not of this branch's kind at all: of another type, or no error object."""
    if list(item.absolute_path) != list(error.absolute_path):
        return False
    return item.validator == "type" or (item.validator == "required" and "'error'" in item.message)


def _of_leaf(error: Any) -> str:
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        unknown = sorted(set(error.instance) - set(error.schema.get("properties", {})))
        return "; ".join(_short(f"{error.json_path}.{name}: is not a known field") for name in unknown)
    return _short(f"{error.json_path}: {error.message}")


def _short(text: str) -> str:
    return text if len(text) <= MAX_PROBLEM_CHARS else text[: MAX_PROBLEM_CHARS - 1] + "…"


def _observation(number: int, data: Any, problems: list[str]) -> list[planes.Observation]:
    try:
        return [jsonform.from_json(planes.Observation, data)]
    except codec.Malformed as error:
        problems.append(f"line {number}: {_short(str(error))}")
        return []


def _sequence_problems(observations: list[planes.Observation]) -> Iterator[str]:
    for index, (before, here) in enumerate(itertools.pairwise(observations), 2):
        if here.node != before.node:
            yield f"observation {index}: $.node: {_short(here.node)!r} after {_short(before.node)!r}: one file, one node"
        if here.taken_at < before.taken_at:
            yield f"observation {index}: $.taken_at: {jsonform.time_to_text(here.taken_at)} is before the line above"
