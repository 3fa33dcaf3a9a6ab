"""How a field of the model is spelled on the wire: the markers that jsonform and pbform read.

The model is written once, as frozen dataclasses. Its JSON form (captures, verdicts) and its protobuf form (reader
protocol, feed) follow from the type of each field and, where the contract is irregular, from a marker made here.

Invariant: a value that was not read never becomes a value on the way. Every `Reading` keeps its reason in protobuf, and
in JSON wherever the schema has room for one.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeVar

from muster.model.reading import NOT_COLLECTED

T = TypeVar("T")

_MARK = "muster"


class Malformed(ValueError):
    """The input is not of the contract's form. `path` names the field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Irregular spelling of one field."""

    name: str = ""
    """Name on the wire, when it is a keyword in Python."""
    error: bool = False
    """JSON: `{"error": reason}` may stand in the value's place."""
    null: str = ""
    """JSON: null may stand in the value's place and means Unknown with this reason."""
    counted: bool = False
    """JSON: null, with the reason in the sibling object `unknown`."""
    nullable: bool = False
    """JSON: None is written as null instead of being left out."""
    always: bool = False
    """JSON: written even when it is the default."""
    feed_only: bool = False
    """Not in JSON at all."""
    mixed: bool = False
    """JSON: numbers and booleans may stand among the map's texts; the model keeps them as text."""


_PLAIN = Mark()


def mark_of(field: "dataclasses.Field[Any]") -> Mark:
    """Return the field's mark, or the regular one."""
    mark = field.metadata.get(_MARK, _PLAIN)
    assert isinstance(mark, Mark)
    return mark


def wire_name(field: "dataclasses.Field[Any]") -> str:
    """Return the field's name in JSON and protobuf."""
    return mark_of(field).name or field.name


def reading(*, name: str = "", error: bool = False, null: str = "", counted: bool = False) -> Any:
    """Declare a Reading that is NotCollected by default and irregular in JSON."""
    return dataclasses.field(
        default=NOT_COLLECTED, metadata={_MARK: Mark(name=name, error=error, null=null, counted=counted)}
    )


def nullable() -> Any:
    """Declare an optional field whose None is written as null."""
    return dataclasses.field(default=None, metadata={_MARK: Mark(nullable=True)})


def always(default: T) -> T:
    """Declare a field that is written even when it holds its default."""
    field: Any = dataclasses.field(default=default, metadata={_MARK: Mark(always=True)})
    return field  # type: ignore[no-any-return]


def feed_only(default: T) -> T:
    """Declare a field that the feed carries and JSON does not."""
    field: Any = dataclasses.field(default=default, metadata={_MARK: Mark(feed_only=True)})
    return field  # type: ignore[no-any-return]


def secret() -> Any:
    """Declare a text that the feed carries, and that neither JSON nor a repr shows."""
    return dataclasses.field(default="", repr=False, metadata={_MARK: Mark(feed_only=True)})


EMPTY: Mapping[str, Any] = types.MappingProxyType({})


def mapping(*, mixed: bool = False) -> Any:
    """Declare a read-only mapping that is empty by default."""
    return dataclasses.field(default_factory=lambda: EMPTY, metadata={_MARK: Mark(mixed=mixed)})


def freeze(items: Mapping[str, T]) -> Mapping[str, T]:
    """Return a read-only copy, in key order."""
    return types.MappingProxyType(dict(sorted(items.items())))


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What a type annotation asks for, seen without typing's machinery."""

    kind: str
    """`value`, `enum`, `time`, `object`, `optional`, `reading`, `list` or `map`."""
    type: Any
    """The class, for the first four kinds."""
    item: "Shape | None" = None
    """The shape inside, for the last four."""
