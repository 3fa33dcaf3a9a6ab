"""Read a model class's annotations once, into shapes that jsonform and pbform walk.

Known forms: str, int, float, bool, datetime, StrEnum, a dataclass, `X | None`, `Reading[X]`, `tuple[X, ...]` and
`Mapping[str, X]`. Anything else raises when the class is first used, so a field without a spelling cannot ship.
"""

import dataclasses
import datetime
import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

from muster.model.codec import Shape
from muster.model.reading import Known, Unknown


def fields_of(cls: Any) -> tuple[tuple["dataclasses.Field[Any]", Shape], ...]:
    """Return the class's fields with their shapes, in order of definition."""
    return _read_once(cls)


@functools.cache
def _read_once(cls: Any) -> tuple[tuple["dataclasses.Field[Any]", Shape], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((field, shape_of(hints[field.name])) for field in dataclasses.fields(cls))


def shape_of(hint: Any) -> Shape:
    """Return the shape of one annotation; TypeError for a form that has no spelling."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _shape_of_union(hint, arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return Shape("list", None, shape_of(arguments[0]))
    if origin is Mapping and arguments[0] is str:
        return Shape("map", None, shape_of(arguments[1]))
    if isinstance(hint, type):
        return _shape_of_class(hint)
    raise TypeError(f"no spelling for {hint}")


def _shape_of_union(hint: Any, arguments: tuple[Any, ...]) -> Shape:
    if Unknown in arguments and len(arguments) == 2:
        known = next(argument for argument in arguments if argument is not Unknown)
        if typing.get_origin(known) is Known:
            return Shape("reading", None, shape_of(typing.get_args(known)[0]))
    if types.NoneType in arguments and len(arguments) == 2:
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return Shape("optional", None, shape_of(inner))
    raise TypeError(f"no spelling for {hint}")


def _shape_of_class(cls: type) -> Shape:
    if dataclasses.is_dataclass(cls):
        return Shape("object", cls)
    if issubclass(cls, enum.StrEnum):
        return Shape("enum", cls)
    if issubclass(cls, datetime.datetime):
        return Shape("time", cls)
    if cls in (str, int, float, bool):
        return Shape("value", cls)
    raise TypeError(f"no spelling for {cls}")
