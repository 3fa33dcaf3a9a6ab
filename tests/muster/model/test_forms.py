"""The model has three spellings, and they agree."""

import json
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.model import planes
from muster.model import codec, delta, jsonform, kube, pbform, report, shapes, warmth
from muster.model.reading import NOT_COLLECTED, Known, Unknown
from muster.pb.muster.reader.v1 import reader_pb2
from muster.pb.muster.v1 import feed_pb2, planes_pb2, report_pb2, warmth_pb2
from tests import values

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "contracts" / "examples").glob("*.jsonl"))

ON_THE_WIRE = [
    (report.NodeReport, report_pb2.NodeReport),
    (report.Topology, report_pb2.Topology),
    (delta.Delta, feed_pb2.Delta),
    (kube.NodeSlice, feed_pb2.NodeSlice),
    (warmth.ImageWarmth, warmth_pb2.ImageWarmth),
    (warmth.ImageStore, warmth_pb2.ImageStore),
    (planes.Gpu, planes_pb2.Gpu),
    (planes.PciFunction, planes_pb2.PciFunction),
    (planes.DeviceNode, planes_pb2.DeviceNode),
    (planes.KernelRecord, planes_pb2.KernelRecord),
    (planes.Mps, planes_pb2.Mps),
    (planes.CdiSpec, planes_pb2.CdiSpec),
    (planes.Boot, planes_pb2.Boot),
]


@pytest.mark.parametrize(("cls", "message"), ON_THE_WIRE, ids=lambda item: item.__name__)
@hypothesis.given(data=st.data())
def test_protobuf_gives_back_what_it_was_given(cls, message, data):
    """from_pb(fill(x)) == x, through the bytes."""
    value = data.draw(values.of(cls))
    assert pbform.from_pb(cls, message.FromString(pbform.fill(message(), value).SerializeToString())) == value


@pytest.mark.parametrize("cls", [report.NodeReport, planes.Observation], ids=lambda item: item.__name__)
@hypothesis.given(data=st.data())
def test_json_gives_back_what_it_has_room_for(cls, data):
    """from_json(to_json(x)) keeps every value; a second pass changes nothing."""
    text = json.dumps(jsonform.to_json(data.draw(values.of(cls))))
    again = jsonform.from_json(cls, json.loads(text))
    assert json.dumps(jsonform.to_json(again)) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_of_the_contract_read_and_write_alike(path):
    for line in path.read_text().splitlines():
        data = json.loads(line)
        assert jsonform.to_json(jsonform.from_json(planes.Observation, data)) == data


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"schema": planes.SCHEMA, "node": "n"}, "$.taken_at"),
        ({"schema": planes.SCHEMA, "node": "n", "taken_at": "2026-12-01T10:00:00"}, "$.taken_at"),
        ({"schema": planes.SCHEMA, "node": "n", "taken_at": "2026-12-01T10:00:00Z", "gpus": 8}, "$.gpus"),
        ({"schema": planes.SCHEMA, "node": "n", "taken_at": "2026-12-01T10:00:00Z", "nvml": {"devices": [{}]}},
         "$.nvml.devices[0].uuid"),
        ({"schema": planes.SCHEMA, "node": "n", "taken_at": "2026-12-01T10:00:00Z", "pods": {"error": 4}},
         "$.pods.error"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(data, path):
    with pytest.raises(codec.Malformed) as caught:
        jsonform.from_json(planes.Observation, data)
    assert caught.value.path == path


def test_only_the_fabrics_health_mixes_numbers_among_texts():
    fabric = jsonform.from_json(planes.Fabric, {"state": "completed", "health": {"a": 1, "b": True, "c": "x"}})
    assert dict(fabric.health) == {"a": "1", "b": "true", "c": "x"}
    with pytest.raises(codec.Malformed, match="expected str"):
        jsonform.from_json(planes.Boot, {"id": 7, "at": "2026-12-01T10:00:00Z"})


def test_an_unknown_enum_number_is_unknown_where_the_model_has_room():
    message = planes_pb2.Gpu(uuid="GPU-1")
    message.recovery_action = 77
    assert pbform.from_pb(planes.Gpu, message).recovery_action == Unknown(
        "UnknownEnumValue", "RecoveryAction has no value 77 here"
    )


def test_an_unspecified_enum_is_refused_where_it_has_not():
    with pytest.raises(codec.Malformed, match="state"):
        pbform.from_pb(planes.Fabric, planes_pb2.Fabric())


def test_a_reading_has_no_truth_value():
    with pytest.raises(TypeError, match="truth"):
        bool(Known(0))
    with pytest.raises(TypeError, match="truth"):
        bool(NOT_COLLECTED)


def test_a_field_without_a_spelling_cannot_ship():
    with pytest.raises(TypeError, match="no spelling"):
        shapes.shape_of(complex)


def test_the_reader_names_every_plane_it_answers_with():
    asked = {field.name for field in reader_pb2.ReadRequest.DESCRIPTOR.oneofs_by_name["plane"].fields}
    answered = {field.name for field in reader_pb2.ReadResponse.DESCRIPTOR.oneofs_by_name["plane"].fields}
    assert asked == answered
