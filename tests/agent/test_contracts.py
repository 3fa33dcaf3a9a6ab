"""The schemas that the agent carries are valid, and are those of the contract they were copied from."""

import importlib.resources
import json
import pathlib

import jsonschema
import pytest

NAMES = ("capture.schema.json", "verdict.schema.json")
SOURCE = pathlib.Path(__file__).parents[3] / "shared" / "contracts"


def copy_of(name):
    return (importlib.resources.files("agent") / "contracts" / name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_copy_is_a_valid_schema(name):
    schema = json.loads(copy_of(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.skipif(not SOURCE.is_dir(), reason="the contract lies beside this checkout only where it is kept")
@pytest.mark.parametrize("name", NAMES)
def test_the_copy_is_what_the_contract_says_now(name):
    assert copy_of(name) == (SOURCE / name).read_bytes()
