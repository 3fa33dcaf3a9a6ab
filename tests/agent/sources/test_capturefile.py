"""A capture is read whole, or refused with everything that is wrong with it."""

import json

import pytest

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
