"""What our exporters really put on their pages: every capture as an agent would show it, and an admitter with a fleet."""

import dataclasses
import functools
import urllib.request

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from admitter.core import lifecycle
from admitter.core.observe import Tally
from admitter.core.outage import Outage, OutagePolicy
from admitter.model.decision import Explanation
from admitter.model.ruling import Ground, Hold, Ruling
from admitter.publish import metrics as admitter_metrics
from admitter.publish.figures import Figures, Scene
from admitter.publish.nodefigures import NodeFigures, NodeScene
from admitter.publish.nodemetrics import NodeCollector
from agent.model import planes
from agent.model.policy import Policy
from agent.publish import metrics as agent_metrics
from agent.publish.board import Board, Notice
from hack.matrix import captures
from muster.model.reading import Known
from muster.model.report import Verdict
from muster.model.vocabulary import WaitReason
from muster.probes import ProbeServer, Readiness
from tests import builders
from tests.admitter.clusters import NOW, a_gang, a_lease, a_node, a_resource, a_view


def a_registry(*collectors):
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry


def an_agent(report, observation, *, session="open"):
    """Return the registry of an agent that has just published this report."""
    board = Board()
    board.notice = Notice(
        report=report, observation=observation, published_at=90.0, read_at={"nvml": 88.0}, nvml_session=session
    )
    collector = agent_metrics.Collector(
        board,
        monotonic=lambda: 100.0,
        calls=lambda: agent_metrics.CallFigures(nvml_seconds=1.5, reader_cpu_seconds=7.5, reader_resident_bytes=4096),
        streams=lambda: 1,
        sent=lambda: {"snapshot": 1, "delta": 2, "heartbeat": 3},
        rules={"off": 1, "observe": 2, "enforce": 80},
    )
    return a_registry(collector)


def an_admitter():
    """Return the registry of an admitter with a fleet: a lost GPU, a silent node, a gang that waits, a rule that is held."""
    figures, nodes = Figures(), NodeFigures()
    ages = dict.fromkeys(admitter_metrics.PLANES, 2500)
    view = a_view(
        dataclasses.replace(a_node("n1", 8), plane_age_ms=ages),
        a_node("n2", a_resource(0, verdict=Verdict.OVER, reason="GpuLost")),
        a_node("n3", 8, heard=0.0),
    )
    why = Explanation(reason=WaitReason.TOPOLOGY, summary="no island of 8", position=1)
    records = (lifecycle.refused(lifecycle.opened(a_gang(), "client", 1, NOW - 60), why),)
    figures.scene = Scene(
        view=view, records=records, leases={"n1": (a_lease(3),)}, orphans=0, term=4, is_open=True, at=NOW
    )
    nodes.scene = NodeScene()
    hold = Hold(ground=Ground.RULE, culprit="B2/1", since=0.0, nodes=frozenset({"n2"}))
    own = admitter_metrics.Collector(
        figures,
        refused=lambda: {"UnknownBase": 2},
        accepted=lambda: {"delta": 5},
        streams=lambda: 3,
        lost_lines=lambda: 0,
        outage=Outage(OutagePolicy(), a_view),
        tally=Tally(),
    )
    return a_registry(own, NodeCollector(nodes, lambda: Ruling(holds=(hold,))))


def page_of(registry):
    """Return the page as the program serves it, fetched over HTTP."""
    server = ProbeServer(("127.0.0.1", 0), registry, lambda: Readiness(is_ready=True, text="ready"), program="test")
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            return answer.read().decode()
    finally:
        server.close()


def series_of(text):
    """Return every series of a page: name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def a_gpu_that_nvml_no_longer_lists():
    """Return a report and its observation: an Xid in the log, at an address that no GPU has."""
    record = planes.KernelRecord(at=builders.NOW, text="NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.")
    observation = builders.a_node(kernel_log=Known((record,)))
    return builders.reports_of(observation, (0,))[0], observation


@functools.cache
def all_series():
    """Return the series of an admitter, of every line of every capture, and of what no capture is about."""
    found = series_of(page_of(an_admitter()))
    found |= series_of(page_of(an_agent(*a_gpu_that_nvml_no_longer_lists(), session="closed")))
    for capture in captures.load_all():
        for observation, report in zip(capture.observations, captures.replay(capture, Policy()), strict=True):
            found |= series_of(generate_latest(an_agent(report, observation)).decode())
    return frozenset(found)
