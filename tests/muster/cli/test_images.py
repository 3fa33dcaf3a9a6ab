"""A node's images for a person and for a program."""

import dataclasses
import datetime

from rich.console import Console

from muster.cli import images
from muster.model import warmth
from muster.model.admission import NodeCapacity
from muster.model.reading import Known
from muster.model.report import NodeReport, Topology, Verdict

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
COLD = warmth.ImageWarmth(
    digest="sha256:aa",
    reference="registry/ml/cuda:12",
    platform="linux/amd64",
    snapshotter="overlayfs",
    level=warmth.Level.PARTIAL,
    hold=warmth.Hold.NOTHING,
    is_wanted=True,
    bytes_total=8 * 1024**3,
    bytes_missing=6 * 1024**3,
    layers_total=7,
    layers_missing=5,
    pull=warmth.PullState.PAUSED,
    reason="Yielding",
    detail="the kubelet pulls",
)
LAZY = dataclasses.replace(
    COLD,
    digest="sha256:bb",
    is_wanted=False,
    level=warmth.Level.LAZY,
    fetched_fraction=Known(0.25),
    pull=warmth.PullState.IDLE,
)


def a_node(found):
    report = NodeReport(node="n1", taken_at=AT, verdict=Verdict.OK, resources={})
    return NodeCapacity(
        node="n1", report=report, topology=Topology(generation=0), age_seconds=0.1, stale=False, warmth=found
    )


def text_of(table):
    console = Console(width=240, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_wanted_images_come_first_and_say_what_is_missing_and_why():
    found = dataclasses.replace(warmth.NOTHING, images=(LAZY, COLD))
    lines = text_of(images.images_table([a_node(found)])).splitlines()
    assert lines[1].split()[2:7] == ["partial", "nothing", "6.0", "GiB", "2/7"]
    assert lines[1].rstrip().endswith("paused  Yielding: the kubelet pulls")
    assert "lazy 25%" in lines[2]


def test_a_node_without_a_warmer_says_so():
    assert "no warmer has reported" in text_of(images.stores_table([a_node(None)]))
    assert images.warmth_json(None) is None


def test_json_counts_the_layers():
    content = images.warmth_json(dataclasses.replace(warmth.NOTHING, images=(COLD,), layers=(5, 6)))
    assert content["layers"] == 2
    assert content["images"][0]["bytes_missing"] == 6 * 1024**3
