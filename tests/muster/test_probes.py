"""The HTTP endpoint of every program, over a real socket."""

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter

from muster import probes


class Word:
    said = probes.Readiness(is_ready=False, text="no report yet")

    def __call__(self):
        return self.said


@pytest.fixture
def word():
    return Word()


@pytest.fixture
def server(word):
    registry = CollectorRegistry()
    Counter("things", "Counted.", registry=registry)
    made = probes.ProbeServer(("127.0.0.1", 0), registry, word, program="test")
    made.start()
    yield made
    made.close()


def get(server, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_alive_is_not_ready(server, word):
    """healthz says that the process answers, readyz what the program says of itself."""
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz") == (503, "no report yet\n")
    word.said = probes.Readiness(is_ready=True, text="fine")
    assert get(server, "/readyz") == (200, "fine\n")


def test_metrics_and_nothing_else(server):
    """One page of metrics; other paths are not found."""
    status, text = get(server, "/metrics?name=x")
    assert status == 200
    assert "things_total 0.0" in text
    assert get(server, "/")[0] == 404


def test_a_client_that_says_nothing_blocks_nobody(server):
    """A half-open connection does not stop the next scrape."""
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.sendall(b"GET /met")
        assert get(server, "/healthz")[0] == 200
