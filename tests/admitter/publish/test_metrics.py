"""The metrics page is a view of the last pass, and docs/metrics-admitter.md lists all of it."""

import pathlib
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from admitter.core import lifecycle
from admitter.publish.figures import PASS_BOUNDS, Figures, Histogram, Scene
from admitter.publish.metrics import Collector
from muster.model.report import Verdict
from tests.admitter.clusters import GPU, NOW, a_gang, a_lease, a_node, a_resource, a_view

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "metrics-admitter.md"


def a_collector(figures):
    return Collector(
        figures,
        refused=lambda: {"UnknownBase": 2},
        accepted=lambda: {"delta": 5},
        streams=lambda: 3,
        lost_lines=lambda: 0,
    )


@pytest.fixture
def figures():
    figures = Figures()
    view = a_view(
        a_node("n1", 8), a_node("n2", a_resource(0, verdict=Verdict.OVER, reason="GpuLost")), a_node("n3", 8, heard=0.0)
    )
    leases = {"n1": (a_lease(3),)}
    records = (lifecycle.opened(a_gang(), "client", 1, NOW),)
    figures.scene = Scene(view=view, records=records, leases=leases, orphans=1, term=4, is_open=True, at=NOW)
    figures.decisions["opened"] += 1
    figures.passes.observe(0.002)
    return figures


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


def test_a_resource_that_is_gone_is_gone_from_the_page(figures):
    before = samples(figures)
    scene = figures.scene
    figures.scene = Scene(view=a_view(), records=(), leases={}, orphans=0, term=scene.term, is_open=True, at=NOW)
    gone = before.keys() - samples(figures).keys()
    assert {name for name, _ in gone} == {"muster_admitter_admissible_units", "muster_admitter_leased_units"}


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
