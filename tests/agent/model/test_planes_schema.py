"""The model has exactly the fields of the two schemas: none is missing, none is invented."""

import json
import pathlib

import pytest

import agent
from agent.model import planes
from muster.model import codec, report, shapes

CONTRACTS = pathlib.Path(agent.__file__).parent / "contracts"
CAPTURE = json.loads((CONTRACTS / "capture.schema.json").read_text())
VERDICT = json.loads((CONTRACTS / "verdict.schema.json").read_text())


def described(schema, node):
    """Return the schema's part that says what a value is, without the ways to say that there is none."""
    while True:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in node:
            node = next(
                part for part in node["anyOf"] if part.get("type") != "null" and part.get("$ref") != "#/$defs/error"
            )
        else:
            return node


def differences(schema, node, cls, path):
    """Yield every path where the model's fields and the schema's differ."""
    node = described(schema, node)
    fields = {codec.wire_name(f): shape for f, shape in shapes.fields_of(cls) if not codec.mark_of(f).feed_only}
    named = set(node.get("properties", {})) - ({"unknown"} if cls is report.ResourceReport else set())
    yield from sorted(f"{path}.{name}" for name in named ^ fields.keys())
    for name in sorted(named & fields.keys()):
        shape, part = fields[name], described(schema, node["properties"][name])
        while shape.item is not None:
            if shape.kind == "list":
                part = described(schema, part["items"])
            if shape.kind == "map" and isinstance(part.get("additionalProperties"), dict):
                part = described(schema, part["additionalProperties"])
            shape = shape.item
        # node_findings has no shape of its own in the schema: "same keys as findings".
        if shape.kind == "object" and part.get("properties"):
            yield from differences(schema, part, shape.type, f"{path}.{name}")


@pytest.mark.parametrize(
    ("schema", "cls"), [(CAPTURE, planes.Observation), (VERDICT, report.NodeReport)], ids=["capture", "verdict"]
)
def test_the_model_and_the_schema_have_the_same_fields(schema, cls):
    assert list(differences(schema, schema, cls, "$")) == []


def test_a_difference_is_seen_where_it_is():
    changed = json.loads(json.dumps(CAPTURE))
    changed["$defs"]["gpu"]["properties"]["colour"] = {"type": "string"}
    assert list(differences(changed, changed, planes.Observation, "$")) == ["$.nvml.devices.colour"]
