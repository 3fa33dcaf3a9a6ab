"""The HTTP endpoint over a real socket."""

import socket
import urllib.error
import urllib.request

import pytest

from agent.publish import metrics, probes
from agent.publish.board import Board


class Ages:
    age = None

    def __call__(self):
        return self.age


@pytest.fixture
def ages():
    return Ages()


@pytest.fixture
def server(ages):
    collector = metrics.Collector(
        Board(), monotonic=lambda: 0.0, calls=metrics.CallFigures, streams=lambda: 0, sent=dict
    )
    made = probes.ProbeServer(("127.0.0.1", 0), collector, age=ages, ready_seconds=15)
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


def test_alive_is_not_ready(server, ages):
    """Ready while a report is younger than three polls."""
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz") == (503, "no report yet\n")
    ages.age = 3.0
    assert get(server, "/readyz") == (200, "last report 3.0 s ago\n")
    ages.age = 15.1
    assert get(server, "/readyz")[0] == 503


def test_metrics_and_nothing_else(server):
    """One page of metrics; other paths are not found."""
    status, text = get(server, "/metrics?name=x")
    assert status == 200
    assert 'muster_agent_events_total{event="cycles"} 0.0' in text
    assert get(server, "/")[0] == 404


def test_a_client_that_says_nothing_blocks_nobody(server):
    """A half-open connection does not stop the next scrape."""
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.sendall(b"GET /met")
        assert get(server, "/healthz")[0] == 200
