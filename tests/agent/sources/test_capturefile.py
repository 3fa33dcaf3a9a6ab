"""A capture is read whole, or refused with everything that is wrong with it."""

import json
import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Policy
from agent.sources import capturefile
from agent.sources.capturefile import BadCapture
from muster.model import jsonform
from muster.model.reading import Unknown
from tests import builders


def line(**changes):
    """Return a line of a capture; None takes a key out."""
    data = jsonform.to_json(builders.a_node(1)) | changes
    return json.dumps({key: value for key, value in data.items() if value is not None})


def problems(*lines):
    with pytest.raises(BadCapture) as refused:
        capturefile.parse(lines)
    return list(refused.value.problems)


def test_what_was_captured_is_read_back():
    nodes = (builders.a_node(2), builders.a_node(2, at=5))
    capture = capturefile.parse(json.dumps(jsonform.to_json(node)) for node in nodes)
    assert capture == capturefile.Capture(observations=nodes, api_server=True)


def test_an_api_server_is_there_if_any_line_knows_it():
    bare = line(node_object=None, pods=None)
    assert not capturefile.parse([bare]).api_server
    assert capturefile.parse([bare, line(node_object={"error": "Stale"}, pods=None)]).api_server


def test_an_absent_plane_was_not_collected_and_an_error_says_why():
    (observation,) = capturefile.parse(
        [line(nvml=None, kubelet={"error": "SocketMissing", "detail": "gone"})]
    ).observations
    assert observation.nvml == Unknown("NotCollected")
    assert observation.kubelet == Unknown("SocketMissing", "gone")


def test_blank_lines_are_skipped():
    assert len(capturefile.parse(["", line(), "  ", line()]).observations) == 2


def test_all_problems_come_at_once_with_line_and_path():
    wrong = json.loads(line(taken_at="yesterday", surprise=1))
    wrong["nvml"]["devices"][0]["indexx"] = 3
    wrong["kubelet"]["pods"] = [{"namespace": "ml"}]
    found = problems(line(), json.dumps(wrong), "{", line(node=7))
    assert all(text.startswith(("line 2: $", "line 3: is not JSON", "line 4: $.node: ")) for text in found)
    text = "\n".join(found)
    for place in ("$.surprise: is not a known field", "$.nvml.devices[0].indexx: is not a known field"):
        assert f"line 2: {place}" in text
    assert "line 2: $.kubelet.pods[0]: 'name' is a required property" in text
    assert "line 4: $.node: 7 is not of type 'string'" in text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[]", "line 1: $: [] is not of type 'object'", id="no object"),
        pytest.param('{"a": NaN}', "line 1: is not JSON: NaN is not a JSON value", id="NaN"),
        pytest.param('{"a": 1, "a": 2}', "line 1: is not JSON: key 'a' stands twice in one object", id="a key twice"),
        pytest.param("[" * 100_000, "line 1: is not JSON: ", id="nested too deep"),
        pytest.param(line(taken_at="2026-12-01T10:00:00"), "line 1: $.taken_at: ", id="a time without offset"),
        pytest.param(line(boot={"id": "b", "at": "soon"}), "line 1: $.boot.at: ", id="no time"),
        pytest.param(line(schema="muster.capture/v9"), "line 1: $.schema: ", id="another schema"),
        pytest.param(line(pods=[{"namespace": "a", "name": "b", "uid": "c", "phase": "Odd"}]), "line 1: $.pods[0].phase: ", id="enum"),
        pytest.param(line(nvml={"error": 3}), "line 1: $.nvml", id="an error that is no text"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_observation_is_refused(text, problem):
    assert problems(text)[0].startswith(problem)


def test_one_file_is_one_node_in_time_order():
    found = problems(line(), line(node="gpu-b2"), line(node="gpu-b2", taken_at="2026-11-30T10:00:00Z"))
    assert found == [
        "observation 2: $.node: 'gpu-b2' after 'gpu-a1': one file, one node",
        "observation 3: $.taken_at: 2026-11-30T10:00:00Z is before the line above",
    ]


def test_an_empty_file_is_no_capture():
    assert problems("", "\n") == ["line 1: the file holds no observation"]


def test_problems_are_bounded():
    found = problems(*["{"] * 500)
    assert (len(found), found[-1]) == (capturefile.MAX_PROBLEMS + 1, "and 400 more problems")
    assert all(len(text) < 400 for text in problems(line(node=["x" * 10_000])))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, text in ((tmp_path / "missing", "No such file"), (tmp_path, "Is a directory"), (binary, "not UTF-8")):
        with pytest.raises(BadCapture, match=text):
            capturefile.read_capture(path)


CAPTURES = sorted((pathlib.Path(__file__).parents[2] / "captures").glob("*.jsonl"))
ABSURD = st.one_of(
    st.sampled_from([2**63, 2**64, 10**300, -1, -(2**63), 1e308, 5e-324, "", "x" * 5000, "\ud800", None, True, [], {}]),
    st.sampled_from(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"]),
)


def leaves(data, path=()):
    """Where the plain values of a JSON value stand."""
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        return [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    return [path]


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.data())
def test_an_absurd_value_anywhere_is_refused_with_its_place_or_judged(data):
    """Whatever the answer, it can be written down, and no number in it is below nothing."""
    lines = [json.loads(text) for text in data.draw(st.sampled_from(CAPTURES)).read_text().splitlines() if text.strip()]
    *way, last = data.draw(st.sampled_from(leaves(lines)))
    place = lines
    for key in way:
        place = place[key]
    place[last] = data.draw(ABSURD)
    try:
        capture = capturefile.parse([json.dumps(each) for each in lines])
    except BadCapture:
        assert all(": $" in problem for problem in problems(*map(json.dumps, lines)))
        return
    history = History()
    for observation in capture.observations:
        history, report = judge(history, observation, Policy(), api_server=capture.api_server)[:2]
        json.dumps(jsonform.to_json(report), ensure_ascii=False).encode()
        numbers = [each.admit_lenient for each in report.resources.values()]
        assert all(isinstance(number, Unknown) or number.value >= 0 for number in numbers)
