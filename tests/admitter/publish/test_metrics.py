"""The metrics page is a view of the last pass, and docs/metrics-admitter.md lists all of it."""

import dataclasses
import pathlib
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from admitter.core import lifecycle
from admitter.core.observe import Tally
from admitter.core.outage import Outage, OutagePolicy
from admitter.model.decision import Explanation
from admitter.publish.figures import PASS_BOUNDS, Figures, Histogram, Scene
from admitter.publish.metrics import Collector
from muster.model.report import Verdict
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_lease, a_node, a_resource, a_view

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "metrics-admitter.md"


def a_collector(figures):
    return Collector(
        figures,
        refused=lambda: {"UnknownBase": 2},
        accepted=lambda: {"delta": 5},
        streams=lambda: 3,
        lost_lines=lambda: 0,
        outage=Outage(OutagePolicy(), a_view),
        tally=Tally(),
    )


@pytest.fixture
def figures():
    figures = Figures()
    view = a_view(
        a_node("n1", 8), a_node("n2", a_resource(0, verdict=Verdict.OVER, reason="GpuLost")), a_node("n3", 8, heard=0.0)
    )
    leases = {"n1": (a_lease(3),)}
    view = with_ages(view, "n1", nvml=2500, strange=9000)
    waiting = lifecycle.opened(a_gang(), "client", 1, NOW - 60)
    why = Explanation(reason=WaitReason.TOPOLOGY, summary="no island of 8", position=1)
    records = (lifecycle.refused(waiting, why),)
    figures.scene = Scene(view=view, records=records, leases=leases, orphans=1, term=4, is_open=True, at=NOW)
    figures.decisions["opened"] += 1
    figures.passes.observe(0.002)
    return figures


def with_ages(view, name, **ages):
    state = dataclasses.replace(view.nodes[name], plane_age_ms=ages, heard_at=NOW - 1)
    return dataclasses.replace(view, nodes={**view.nodes, name: state})


def samples(figures):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in a_collector(figures).collect()
        for sample in family.samples
    }


def test_the_page_shows_the_last_pass(figures):
    shown = samples(figures)
    assert shown["muster_admitter_nodes", (("verdict", "OK"),)] == 1
    assert shown["muster_admitter_nodes", (("verdict", "OVER"),)] == 1
    assert shown["muster_admitter_nodes", (("verdict", "STALE"),)] == 1
    assert shown["muster_admitter_admissible_units", (("resource", GPU),)] == 5
    assert shown["muster_admitter_leased_units", (("resource", GPU),)] == 3
    assert shown["muster_admitter_gangs", (("state", "waiting"),)] == 1
    assert shown["muster_admitter_feed_refusals_total", (("reason", "UnknownBase"),)] == 2
    assert shown["muster_admitter_pass_seconds_bucket", (("le", "0.0025"),)] == 1
    assert shown["muster_admitter_term", ()] == 4
    assert shown["muster_admitter_plane_age_seconds", (("plane", "nvml"),)] == 3.5
    assert shown["muster_admitter_oldest_wait_seconds", (("reason", "Topology"),)] == 60
    assert shown["muster_admitter_node_findings", (("reason", "GpuLost"), ("verdict", "OVER"))] == 1


def test_words_that_only_an_agent_knows_make_no_series_of_their_own(figures):
    """A taken agent's token may say anything; the page stays small."""
    odd = a_resource(0, verdict=Verdict.OVER, reason="SomethingNew")
    figures.scene = dataclasses.replace(figures.scene, view=with_ages(a_view(a_node("n1", odd)), "n1", what=1000))
    shown = samples(figures)
    assert shown["muster_admitter_node_findings", (("reason", "other"), ("verdict", "OVER"))] == 1
    assert shown["muster_admitter_plane_age_seconds", (("plane", "other"),)] == 2.0


def test_what_is_only_observed_is_no_finding_of_the_fleet(figures):
    node = a_node("n1", a_resource(0, verdict=Verdict.OVER, reason="GpuLost"))
    (finding,) = node.report.resources[GPU].findings
    resource = dataclasses.replace(
        node.report.resources[GPU], findings=(dataclasses.replace(finding, observed=True),), verdict=Verdict.OK
    )
    report = dataclasses.replace(node.report, resources={GPU: resource})
    figures.scene = dataclasses.replace(figures.scene, view=a_view(dataclasses.replace(node, report=report)))
    assert not [name for name, _ in samples(figures) if name == "muster_admitter_node_findings"]


def test_a_resource_that_is_gone_is_gone_from_the_page(figures):
    before = samples(figures)
    scene = figures.scene
    figures.scene = Scene(view=a_view(), records=(), leases={}, orphans=0, term=scene.term, is_open=True, at=NOW)
    gone = before.keys() - samples(figures).keys()
    assert {name for name, _ in gone} == {
        "muster_admitter_admissible_units",
        "muster_admitter_leased_units",
        "muster_admitter_node_findings",
        "muster_admitter_oldest_wait_seconds",
        "muster_admitter_plane_age_seconds",
    }


def test_before_the_first_pass_there_are_only_our_own_figures():
    registry = CollectorRegistry(auto_describe=False)
    registry.register(a_collector(Figures()))
    page = generate_latest(registry).decode()
    assert "muster_admitter_cpu_seconds_total" in page
    assert "muster_admitter_nodes" not in page


def test_every_metric_and_label_is_in_the_docs(figures):
    shown = {}
    for family in a_collector(figures).collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        shown[name] = (family.type, ", ".join(sorted(labels)))
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE)
    assert {name: (kind, labels.strip().replace("`", "")) for name, kind, labels in rows} == shown


def test_buckets_are_cumulative():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.total == 12.0
    assert sorted(PASS_BOUNDS) == list(PASS_BOUNDS)
