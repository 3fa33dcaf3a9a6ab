"""The metrics page: what is documented is what is exported, and nothing outlives its report."""

import dataclasses
import datetime
import pathlib
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.model import planes
from agent.publish import metrics
from agent.publish.board import Board, Notice
from muster.model import codec
from muster.model.reading import Known, Unknown
from muster.model.report import (
    DeviceReport,
    DeviceState,
    Finding,
    Holder,
    NodeReport,
    PodFinding,
    PodState,
    ResourceReport,
    Verdict,
)

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
FINDING = Finding(verdict=Verdict.OVER, cause="GpuLost", reason="GpuLost", detail="one")
GPU = DeviceReport(uuid="GPU-a", state=DeviceState.LOST, reason="GpuLost", holder=Holder.NONE)
RESOURCE = ResourceReport(
    verdict=Verdict.OVER,
    admit_strict=Known(0),
    admit_lenient=Known(7),
    pick_risk=Known(0.125),
    capacity=Known(8),
    allocatable=Known(8),
    advertised=Known(8),
    present=Known(7),
    allocated=Known(0),
    usable=Known(7),
    free=Known(7),
    findings=(FINDING, FINDING),
)
REPORT = NodeReport(
    node="gpu-a1",
    taken_at=NOW,
    verdict=Verdict.OVER,
    resources=codec.freeze({"nvidia.com/gpu": RESOURCE}),
    node_findings=(FINDING,),
    devices=(GPU,),
    unverified=("pci: ReadFailed",),
    pods=(PodFinding(pod="ml/a", state=PodState.REJECTED, reason="Rejected"),),
)
XID = planes.Xid(code=79, at=NOW)


def a_notice(report=REPORT):
    return Notice(
        report=report,
        observation=planes.Observation(
            node="gpu-a1",
            taken_at=NOW,
            nvml=Known(planes.Nvml(devices=(planes.Gpu(uuid="GPU-a", xids=Known((XID, XID))),))),
        ),
        published_at=90.0,
        read_at={"nvml": 88.0},
        cycle_seconds=0.25,
        attempts=2,
    )


@pytest.fixture
def board():
    made = Board()
    made.notice = a_notice()
    return made


def scraped(board):
    """Return name -> {labels: value} of one scrape, parsed by Prometheus's own parser."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        metrics.Collector(
            board,
            monotonic=lambda: 100.0,
            calls=lambda: metrics.CallFigures(
                nvml_seconds=1.5, nvml_timeouts=2, reader_cpu_seconds=7.5, reader_resident_bytes=4096
            ),
            streams=lambda: 1,
            sent=lambda: {"hello": 1},
            rules={"off": 1, "observe": 2, "enforce": 80},
        )
    )
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def documented():
    rows = re.findall(r"^\| `(muster_\w+)` \| ([^|]*)\|", pathlib.Path("docs/metrics.md").read_text(), re.MULTILINE)
    return {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_the_page_and_the_export_agree(board):
    """Every metric with every label, both ways."""
    exported = {
        name: frozenset(label for labels in series for label, _ in labels) for name, series in scraped(board).items()
    }
    assert exported == documented()


def test_closed_label_values_are_documented():
    """A new event or count shows up in the docs."""
    text = pathlib.Path("docs/metrics.md").read_text()
    said = {value for values in metrics.VALUES.values() for value in values}
    assert [value for value in sorted(said) if f"`{value}`" not in text] == []


def test_values(board):
    """Numbers are the report's, ages the monotonic clock's, equal findings are counted."""
    found = scraped(board)
    assert found["muster_node_units"][("count", "admit_lenient"), ("resource", "nvidia.com/gpu")] == 7
    assert found["muster_agent_plane_age_seconds"][(("plane", "nvml"),)] == 12
    assert found["muster_agent_report_age_seconds"][()] == 10
    assert sorted(found["muster_findings"].values()) == [1, 2]


def test_xids_are_counted_by_gpu_and_code(board):
    assert scraped(board)["muster_gpu_xids"] == {(("uuid", "GPU-a"), ("xid", "79")): 2}


def test_an_xid_of_a_gpu_that_is_no_longer_listed_is_counted_without_a_name(board):
    text = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
    log = Known((planes.KernelRecord(at=NOW, text=text),))
    board.notice = dataclasses.replace(
        a_notice(), observation=planes.Observation(node="gpu-a1", taken_at=NOW, kernel_log=log)
    )
    assert scraped(board)["muster_gpu_xids"] == {(("uuid", ""), ("xid", "79")): 1}


def test_a_log_full_of_made_up_xids_makes_no_page_of_them(board):
    records = tuple(
        planes.KernelRecord(at=NOW, text=f"NVRM: Xid (PCI:0000:1b:00): {code}, made up") for code in range(1000)
    )
    board.notice = dataclasses.replace(
        a_notice(), observation=planes.Observation(node="gpu-a1", taken_at=NOW, kernel_log=Known(records))
    )
    assert len(scraped(board)["muster_gpu_xids"]) == metrics.MAX_XIDS


def test_a_finding_that_is_only_observed_says_so(board):
    board.notice = a_notice(dataclasses.replace(REPORT, node_findings=(dataclasses.replace(FINDING, observed=True),)))
    modes = {dict(labels)["resource"]: dict(labels)["mode"] for labels in scraped(board)["muster_findings"]}
    assert modes == {"": "observe", "nvidia.com/gpu": "enforce"}


def test_an_unread_check_is_named_with_its_reason(board):
    assert scraped(board)["muster_unverified_checks"] == {(("check", "pci"), ("reason", "ReadFailed")): 1}


def test_what_is_gone_has_no_series(board):
    """A vanished GPU, a vanished resource and an unknown count leave nothing behind."""
    blind = dataclasses.replace(RESOURCE, admit_strict=Unknown("Blind"), pick_risk=Unknown("Blind"))
    report = dataclasses.replace(REPORT, devices=(), resources=codec.freeze({"nvidia.com/gpu": blind}))
    board.notice = a_notice(report)
    found = scraped(board)
    assert "muster_gpu_state" not in found
    assert "muster_resource_pick_risk" not in found
    assert (("count", "admit_strict"), ("resource", "nvidia.com/gpu")) not in found["muster_node_units"]
    board.notice = a_notice(dataclasses.replace(REPORT, resources=codec.EMPTY))
    assert "muster_node_units" not in scraped(board)


def test_before_the_first_report_only_our_own_figures_are_there():
    """Nothing is said about the node."""
    assert not any(name.startswith(("muster_node", "muster_gpu", "muster_resource")) for name in scraped(Board()))


def test_memory_of_a_kernel_without_rollup(tmp_path):
    """A kind that the kernel does not tell is missing, not zero."""
    assert metrics.read_memory_bytes(tmp_path) == {}
    (tmp_path / "smaps_rollup").write_text("00400000 ---p\nRss:     100 kB\nPss:      40 kB\nShared_Clean: 3 kB\n")
    assert metrics.read_memory_bytes(tmp_path) == {"rss": 102400, "pss": 40960}
