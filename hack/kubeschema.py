"""Check a Kubernetes object strictly against the API's schema, without a cluster.

Input: an object as YAML gives it. Output: every problem, each with its path: a field the API does not know, a value of
another type, a required field that is not there.

Invariant: nothing passes because it was not looked at; a type that this file cannot judge raises instead.

Why this way: the schemas are the structs of lightkube-models, generated from the API server's own OpenAPI document and
already a dependency of the admitter. Its own `from_dict` ignores unknown fields, as an API server does with a misspelt one
unless asked.

Not here: what the API server validates beyond types, and our own rules (check_manifests.py).
"""

import datetime
import importlib
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

_SCALARS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    datetime.datetime: lambda value: isinstance(value, str | datetime.datetime),
}


def schema_of(api_version: str, kind: str) -> type | None:
    """Return the struct of a kind, or None where the API has none by that name."""
    group, _, version = api_version.rpartition("/")
    short = group.removesuffix(".k8s.io").removesuffix(".authorization").replace(".", "_") or "core"
    try:
        module = importlib.import_module(f"lightkube.models.{short}_{version}")
    except ModuleNotFoundError:
        return None
    found = getattr(module, kind, None)
    return found if isinstance(found, type) and issubclass(found, msgspec.Struct) else None


def problems(value: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with one object, each with the field's path."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    schema = schema_of(str(api_version), str(kind))
    if schema is None:
        yield f"apiVersion {api_version!r} has no kind {kind!r}"
    else:
        yield from _struct(value, schema, "")


def _struct(value: Any, schema: type, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: is {_kind(value)}, not an object ({schema.__name__})"
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(schema)}
    for name in sorted(value.keys() - fields.keys()):
        yield f"{_join(path, name)}: {schema.__name__} has no such field"
    for name, field in fields.items():
        if name in value:
            yield from _value(value[name], field.type, _join(path, name))
        elif field.required:
            yield f"{_join(path, name)}: is required"


def _value(value: Any, hint: Any, path: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return
    if origin in (typing.Union, types.UnionType):
        yield from _union(value, arguments, path)
    elif origin is list:
        yield from _list(value, arguments[0], path)
    elif dict in (hint, origin):
        # The generated structs say `dict` where the API says a map of texts: labels, selectors, quantities.
        yield from _texts(value, path)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield from _struct(value, hint, path)
    elif not _SCALARS[hint](value):
        yield f"{path}: is {_kind(value)}, not {hint.__name__}"


def _list(value: Any, hint: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: is {_kind(value)}, not a list"
        return
    for number, item in enumerate(value):
        yield from _value(item, hint, f"{path}[{number}]")


def _texts(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: is {_kind(value)}, not a mapping"
        return
    for name, item in value.items():
        if not (isinstance(name, str) and isinstance(item, str)):
            yield f"{path}[{name!r}]: is {_kind(item)}, not str"


def _union(value: Any, hints: tuple[Any, ...], path: str) -> Iterator[str]:
    """None is refused even where the struct has it as default: in YAML it is a field somebody forgot to fill."""
    tries = [list(_value(value, hint, path)) for hint in hints if hint is not types.NoneType]
    if all(tries):
        yield from tries[0]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind(value: Any) -> str:
    return "null" if value is None else f"{type(value).__name__} {value!r}"[:60]
