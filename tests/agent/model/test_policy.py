"""The policy's page says what the policy is."""

import dataclasses
import json
import pathlib
import re

import pytest

from agent.model import xid
from agent.model.policy import Policy
from muster.model import jsonform

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "policy.md").read_text("utf-8")


def test_the_page_has_every_key_of_the_file_and_no_other():
    keys = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Xids")[0], re.MULTILINE)
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(Policy))


def test_the_page_names_every_default_of_a_list():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
    for field in dataclasses.fields(Policy):
        default = getattr(Policy(), field.name)
        if isinstance(default, tuple):
            assert tuple(re.findall(r"`([^`]+)`", rows[field.name])) == default


def test_the_example_on_the_page_is_a_policy():
    (example,) = re.findall(r"```json\n(.+?)\n```", PAGE, re.DOTALL)
    assert jsonform.from_json(Policy, json.loads(example)).xid(74).severity is xid.Severity.FATAL


def test_the_page_has_the_xid_table():
    rows = re.findall(r"^\| ([\d, ]+) \| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    told = {int(code): (severity, source) for codes, severity, source in rows for code in codes.split(", ")}
    assert told == {code: (row.severity.value, row.source) for code, row in xid.POLICY.items()}
    assert f"version {xid.VERSION} of the table" in PAGE


@pytest.mark.parametrize("code", [13, 31, 43, 48, 79, 94, 109, 119, 154, 4711])
def test_an_operators_word_beats_the_row_and_says_whose_it_is(code):
    policy = Policy(xids={str(code): xid.Severity.READ_STATE})
    assert policy.xid(code) == xid.XidPolicy(severity=xid.Severity.READ_STATE, source="the operator's policy")
    assert Policy().xid(code) == xid.policy_of(code)
