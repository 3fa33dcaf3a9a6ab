"""The policy file: what does not fit is told with its path, all of it."""

import json

import pytest

from agent import policyfile
from agent.core.rules import table
from agent.model.policy import Mode
from muster.settings import InvalidSettings


def _loaded(tmp_path, content):
    path = tmp_path / "policy.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return policyfile.load(path)


def test_modes_and_names(tmp_path):
    policy = _loaded(tmp_path, {"modes": {"E5": "observe", "B2": "off"}, "resources": ["example.com/gpu"]})
    assert (policy.mode("E5"), policy.mode("B2"), policy.mode("B3")) == (Mode.OBSERVE, Mode.OFF, Mode.ENFORCE)
    assert policy.resources == ("example.com/gpu",)


def test_every_wrong_field_has_a_line_with_its_path(tmp_path):
    wrong = {
        "modes": {"E55": "off", "b2": "observe", "B2": "off"},
        "time_scale": 20,
        "management_bytes": -1,
        "resources": [" "],
    }
    with pytest.raises(InvalidSettings) as caught:
        _loaded(tmp_path, wrong)
    paths = [problem.split(": ")[2] for problem in caught.value.problems]
    assert paths == ["$.modes.E55", "$.modes.b2", "$.time_scale", "$.management_bytes", "$.resources[0]"]


def test_a_word_that_does_not_fit_hides_no_other(tmp_path):
    wrong = {"modes": {"B2": "loud", "E55": "off", "E5": 3}, "management_bytes": "much", "colour": 1, "time_scale": 20}
    with pytest.raises(InvalidSettings) as caught:
        _loaded(tmp_path, wrong)
    paths = [problem.split(": ")[2] for problem in caught.value.problems]
    assert paths == ["$.modes.B2", "$.modes.E5", "$.management_bytes", "$.colour", "$.modes.E55", "$.time_scale"]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"modes": {"B2": "loud"}}, "$.modes.B2"),
        ({"durations": {"gpu-lost": 1}}, "$.durations"),
        ({"modes": []}, "$.modes"),
        ("[", "policy.json"),
        ("\xff", "policy.json"),
    ],
)
def test_what_is_no_policy(tmp_path, content, path):
    with pytest.raises(InvalidSettings, match="--policy") as caught:
        _loaded(tmp_path, content)
    assert path in str(caught.value)


@pytest.mark.parametrize("mode", Mode)
def test_every_rule_can_be_put_into_every_mode(tmp_path, mode):
    policy = _loaded(tmp_path, {"modes": dict.fromkeys(table.ROWS, mode.value)})
    assert {policy.mode(rule) for rule in table.ROWS} == {mode}
