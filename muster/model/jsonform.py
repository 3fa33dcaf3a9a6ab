"""The model's JSON form: the lines of a capture and the verdict that replay prints.

`to_json(value)` gives plain dicts and lists ready for `json.dumps`; `from_json(cls, data)` is its inverse and raises
`Malformed` with the path of the first field that does not fit. Whoever reads a file validates it against the JSON Schema
first (agent.sources.capturefile), which reports every error at once; this is the second fence.

Time is RFC 3339 in UTC with milliseconds only where there are any.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from muster.model import codec, shapes
from muster.model.codec import Malformed, Shape
from muster.model.reading import NOT_COLLECTED, Known, Unknown

T = TypeVar("T")

_LEAST, _MOST = -(2**63), 2**64 - 1
"""What protobuf's widest numbers hold, and so whatever can be told on; NaN and the infinities are outside too."""


def to_json(value: Any) -> dict[str, Any]:
    """Return the JSON object of a model value. Fields that hold their default are left out, unless marked."""
    result: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for field, shape in shapes.fields_of(type(value)):
        mark, name, content = codec.mark_of(field), codec.wire_name(field), getattr(value, field.name)
        if mark.feed_only:
            continue
        if shape.kind == "reading":
            _put_reading(result, unknown, mark, name, shape, content)
        elif content is None:
            if mark.nullable or _is_required(field):
                result[name] = None
        elif mark.always or mark.nullable or _is_required(field) or content != _default_of(field):
            result[name] = _plain(shape, content)
    if unknown:
        result["unknown"] = dict(sorted(unknown.items()))
    return result


def _put_reading(
    result: dict[str, Any], unknown: dict[str, str], mark: codec.Mark, name: str, shape: Shape, content: Any
) -> None:
    match content:
        case Known(value):
            assert shape.item is not None
            result[name] = _plain(shape.item, value)
        case Unknown(reason, detail):
            if mark.counted:
                result[name], unknown[name] = None, reason
            elif mark.null and reason == mark.null:
                result[name] = None
            elif mark.error and content != NOT_COLLECTED:
                result[name] = {"error": reason} | ({"detail": detail} if detail else {})


def _plain(shape: Shape, content: Any) -> Any:
    if shape.kind == "object":
        return to_json(content)
    if shape.kind == "time":
        return time_to_text(content)
    if shape.kind == "enum":
        return content.value
    if shape.kind == "list":
        assert shape.item is not None
        return [_plain(shape.item, item) for item in content]
    if shape.kind == "map":
        assert shape.item is not None
        return {key: _plain(shape.item, content[key]) for key in sorted(content)}
    if shape.kind == "optional":
        assert shape.item is not None
        return _plain(shape.item, content)
    return content


def from_json(cls: type[T], data: Any, path: str = "$") -> T:
    """Return the model value of a JSON object; Malformed names the path of what does not fit."""
    if not isinstance(data, Mapping):
        raise Malformed(path, f"expected an object, got {type(data).__name__}")
    reasons = data.get("unknown")
    arguments: dict[str, Any] = {}
    known_names = {"unknown"} if any(codec.mark_of(f).counted for f, _ in shapes.fields_of(cls)) else set()
    for field, shape in shapes.fields_of(cls):
        mark, name = codec.mark_of(field), codec.wire_name(field)
        if mark.feed_only:
            continue
        known_names.add(name)
        if name in data:
            arguments[field.name] = _parse_field(mark, shape, data[name], f"{path}.{name}", name, reasons)
        elif _is_required(field):
            raise Malformed(f"{path}.{name}", "is required")
    for name in data:
        if name not in known_names:
            raise Malformed(f"{path}.{name}", "is not a known field")
    return cls(**arguments)


def _parse_field(mark: codec.Mark, shape: Shape, data: Any, path: str, name: str, reasons: Any) -> Any:
    if mark.mixed and isinstance(data, Mapping):
        data = {key: str(item).lower() if isinstance(item, bool | int) else item for key, item in data.items()}
    if shape.kind != "reading":
        return _parse(shape, data, path)
    assert shape.item is not None
    if data is None and mark.counted:
        reason = reasons.get(name) if isinstance(reasons, Mapping) else None
        return Unknown(reason) if isinstance(reason, str) else NOT_COLLECTED
    if data is None and mark.null:
        return Unknown(mark.null)
    if mark.error and isinstance(data, Mapping) and "error" in data:
        return _parse_error(data, path)
    return Known(_parse(shape.item, data, path))


def _parse_error(data: Mapping[str, Any], path: str) -> Unknown:
    reason, detail = data["error"], data.get("detail", "")
    if not isinstance(reason, str) or not reason:
        raise Malformed(f"{path}.error", "expected a reason")
    if not isinstance(detail, str):
        raise Malformed(f"{path}.detail", "expected text")
    for name in data:
        if name not in ("error", "detail"):
            raise Malformed(f"{path}.{name}", "is not a known field")
    return Unknown(reason, detail)


def _parse(shape: Shape, data: Any, path: str) -> Any:
    if shape.kind == "object":
        return from_json(shape.type, data, path)
    if shape.kind == "time":
        return text_to_time(data, path)
    if shape.kind == "optional":
        assert shape.item is not None
        return None if data is None else _parse(shape.item, data, path)
    if shape.kind == "enum":
        return _parse_enum(shape, data, path)
    if shape.kind == "list":
        return _parse_list(shape, data, path)
    if shape.kind == "map":
        return _parse_map(shape, data, path)
    return _parse_value(shape, data, path)


def _parse_enum(shape: Shape, data: Any, path: str) -> Any:
    try:
        return shape.type(data)
    except ValueError:
        allowed = ", ".join(member.value for member in shape.type)
        raise Malformed(path, f"{data!r} is none of {allowed}") from None


def _parse_list(shape: Shape, data: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise Malformed(path, f"expected a list, got {type(data).__name__}")
    assert shape.item is not None
    return tuple(_parse(shape.item, item, f"{path}[{index}]") for index, item in enumerate(data))


def _parse_map(shape: Shape, data: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise Malformed(path, f"expected an object, got {type(data).__name__}")
    assert shape.item is not None
    inner = shape.item
    for key in data:
        _check_text(key, path)
    return codec.freeze({key: _parse(inner, item, f"{path}.{key}") for key, item in data.items()})


def _parse_value(shape: Shape, data: Any, path: str) -> Any:
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if is_number and not _LEAST <= data <= _MOST:
        raise Malformed(path, "is out of bounds: no number here has more than 64 bits")
    if shape.type is float and is_number:
        return float(data)
    if not isinstance(data, shape.type) or (shape.type is int and not is_number):
        raise Malformed(path, f"expected {shape.type.__name__}, got {type(data).__name__}")
    if isinstance(data, str):
        _check_text(data, path)
    return data


def _check_text(text: str, path: str) -> None:
    """JSON can spell halves of surrogate pairs, which neither protobuf nor a terminal takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Malformed(path, f"{ascii(text)[:80]} is not Unicode text") from None


def time_to_text(instant: datetime.datetime) -> str:
    """Return RFC 3339 in UTC.

    >>> time_to_text(datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC))
    '2026-12-01T10:00:00Z'
    """
    utc = instant.astimezone(datetime.UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")


def text_to_time(data: Any, path: str = "$") -> datetime.datetime:
    """Return the instant of an RFC 3339 text; Malformed if it is none or has no offset."""
    if not isinstance(data, str):
        raise Malformed(path, f"expected a time, got {type(data).__name__}")
    try:
        instant = datetime.datetime.fromisoformat(data)
        if instant.tzinfo is None:
            raise Malformed(path, f"{data!r} has no UTC offset")
        return instant.astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(path, f"{data!r} is not an RFC 3339 time") from error


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
