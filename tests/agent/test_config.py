"""The agent's configuration: every problem at once, and no scaled time on a real node."""

import datetime

import pytest

from agent import config
from hack import pki
from muster.settings import InvalidSettings


def problems(flags=None, environ=None):
    with pytest.raises(InvalidSettings) as caught:
        config.from_flags(flags or {}, environ or {})
    return "\n".join(caught.value.problems)


def test_a_node_name_is_all_it_takes():
    """Everything else has a default that fits a DaemonSet."""
    made = config.from_flags({}, {"MUSTER_AGENT_NODE": "gpu-a1"})
    assert made.node == "gpu-a1"
    assert made.ready_seconds == 15


def test_all_problems_at_once():
    """Names, addresses and files are told together, each with its flag."""
    said = problems(
        {
            "node": "GPU_A1",
            "admitters": "host-without-port,ok:1",
            "metrics_address": ":99999",
            "tls_ca": "/nowhere/ca.pem",
            "reader_arguments": "'unclosed",
            "log_level": "loud",
        }
    )
    for flag in (
        "--node",
        "--admitters",
        "--metrics-address",
        "--tls-ca",
        "--tls-key",
        "--reader-arguments",
        "--log-level",
    ):
        assert flag in said


def test_scaled_time_needs_a_word():
    """A duration table that runs faster is refused outside tests and demo."""
    assert "--time-scale" in problems({"node": "a", "time_scale": "20"})
    allowed = config.from_flags({"node": "a", "time_scale": "20"}, {config.ALLOW_TIME_SCALE: "1"})
    assert allowed.time_scale == 20


@pytest.mark.parametrize(
    ("text", "parts"),
    [("h:1", ("h", 1)), ("[::1]:9400", ("::1", 9400)), (":80", ("", 80)), ("10.0.0.1:0", ("10.0.0.1", 0))],
)
def test_addresses(text, parts):
    """host:port, with IPv6 in brackets."""
    assert config.split_address(text) == parts


@pytest.mark.parametrize("text", ["h", "h:", "::1:80", "h:70000", "a b:1", "h:1:2"])
def test_what_is_no_address(text):
    """No guessing."""
    with pytest.raises(ValueError, match="host:port"):
        config.split_address(text)


def test_a_socket_does_not_take_the_place_of_a_file(tmp_path):
    """The agent clears its socket's place before it listens; a file of somebody's is not ours to clear."""
    mine = tmp_path / "notes"
    mine.write_text("keep me")
    said = problems({"node": "a", "control_socket": str(mine), "evidence_dir": str(mine)})
    assert said == f"--control-socket: {mine} is there and is no socket\n--evidence-dir: {mine} is no directory"


def test_an_expired_certificate_is_refused_before_anything_starts(tmp_path):
    """The admitter would only close the connection."""
    files = pki.create(tmp_path).issue_node("a", life=datetime.timedelta(minutes=-1))
    said = problems(
        {
            "node": "a",
            "admitters": "127.0.0.1:1",
            "tls_ca": str(files.ca),
            "tls_certificate": str(files.certificate),
            "tls_key": str(files.key),
        }
    )
    assert said == f"--tls-certificate: {files.certificate}: certificate has expired"


def test_a_token_stands_in_place_of_a_certificate(tmp_path):
    files = pki.create(tmp_path).issue_node("a")
    token = tmp_path / "token"
    token.write_text("abc")
    given = {"node": "a", "admitters": "127.0.0.1:1", "tls_ca": str(files.ca), "token_file": str(token)}
    assert config.from_flags(given, {}).token_file == token
    both = problems({**given, "tls_certificate": str(files.certificate), "tls_key": str(files.key)})
    assert both == "--token-file: stands in place of --tls-certificate and --tls-key"
    assert problems({**given, "token_file": str(tmp_path / "none")}).startswith("--token-file:")
    del given["tls_ca"]
    assert problems(given) == "--tls-ca: is required to dial an admitter"
