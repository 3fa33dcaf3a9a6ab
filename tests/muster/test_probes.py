"""Three pages of plain HTTP, from a thread of their own."""

import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from muster.probes import ProbeServer, Readiness


class Collector:
    def collect(self):
        yield GaugeMetricFamily("muster_test", "A test.", value=4)


class Program:
    word = Readiness(is_ready=True, text="all is well")
    part = Readiness(is_ready=True, text="the part is well")


@pytest.fixture
def server():
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    server = ProbeServer(
        ("127.0.0.1", 0), registry, lambda: Program.word, program="muster-test", parts={"/partz": lambda: Program.part}
    )
    server.start()
    yield server
    server.close()


def ask(server, page):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{page}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_pages(server):
    assert ask(server, "healthz") == (200, "ok\n")
    assert ask(server, "readyz?verbose") == (200, "all is well\n")
    status, page = ask(server, "metrics")
    assert (status, "muster_test 4.0" in page) == (200, True)
    assert ask(server, "secrets")[0] == 404


def test_not_ready_is_said_with_its_reason(server, monkeypatch):
    monkeypatch.setattr(Program, "word", Readiness(is_ready=False, text="no pass yet"))
    assert ask(server, "readyz") == (503, "no pass yet\n")
    assert ask(server, "healthz") == (200, "ok\n")


def test_a_part_has_a_page_of_its_own(server, monkeypatch):
    """Who probes one container must not hear of another."""
    assert ask(server, "partz") == (200, "the part is well\n")
    monkeypatch.setattr(Program, "part", Readiness(is_ready=False, text="it is silent"))
    assert ask(server, "partz") == (503, "it is silent\n")
    assert ask(server, "readyz") == (200, "all is well\n")
