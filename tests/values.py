"""Hypothesis strategies for model values, derived from the same shapes as the codecs."""

import datetime

from hypothesis import strategies as st

from muster.model import codec, report, shapes, warmth
from muster.model.reading import NOT_COLLECTED, Known, Unknown

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)
_TIMES = st.integers(0, 4_000_000_000_000).map(
    lambda ms: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=ms % 10**11)
)
_VALUES = {
    str: _TEXT,
    int: st.integers(-(2**62), 2**62),
    float: st.floats(0, 1),
    bool: st.booleans(),
}
_UNKNOWN = st.one_of(st.just(NOT_COLLECTED), st.builds(Unknown, _TEXT.filter(bool), _TEXT))


def of(cls):
    """Return a strategy for values of a model class."""
    fields = {}
    for field, shape in shapes.fields_of(cls):
        if field.name == "schema":
            continue
        fields[field.name] = of_shape(shape)
    if cls is report.NodeReport:
        # A report's devices are unique and sorted: it is made so, and checked at the feed's edge.
        fields["devices"] = st.lists(of(report.DeviceReport), max_size=3, unique_by=lambda device: device.uuid).map(
            lambda devices: tuple(sorted(devices, key=lambda device: device.uuid))
        )
    if cls in {warmth.NodeWarmth, warmth.WarmthDelta}:
        # Prefixes of chain ids are unsigned.
        for name in fields.keys() & {"layers", "removed_layers"}:
            fields[name] = st.frozensets(st.integers(0, 2**64 - 1), max_size=3).map(lambda found: tuple(sorted(found)))
    return st.builds(cls, **fields)


def of_shape(shape):
    """Return a strategy for values of one field."""
    if shape.kind == "object":
        return st.deferred(lambda: of(shape.type))
    if shape.kind == "enum":
        return st.sampled_from(list(shape.type))
    if shape.kind == "time":
        return _TIMES
    if shape.kind == "reading":
        return st.one_of(_UNKNOWN, st.builds(Known, of_shape(shape.item)))
    if shape.kind == "optional":
        return st.one_of(st.none(), of_shape(shape.item))
    if shape.kind == "list":
        return st.lists(of_shape(shape.item), max_size=2).map(tuple)
    if shape.kind == "map":
        return st.dictionaries(_TEXT, of_shape(shape.item), max_size=2).map(codec.freeze)
    return _VALUES[shape.type]
