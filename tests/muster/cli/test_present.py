"""Answers for a person and for a program."""

import dataclasses
import datetime

import pytest
from rich.console import Console

from muster.cli import present
from muster.model.admission import NodeCapacity
from muster.model.reading import Known, Unknown
from muster.model.report import (
    DeviceReport,
    DeviceState,
    Finding,
    Holder,
    MigShape,
    NodeReport,
    PodFinding,
    PodState,
    ResourceReport,
    Topology,
    Verdict,
)
from muster.pb.muster.v1 import admission_pb2, inspect_pb2

GPU = "nvidia.com/gpu"


def a_node(name="n1", verdict=Verdict.OK, *, stale=False, resources=True):
    finding = Finding(verdict=verdict, cause="GpuLostStillPromised", reason="GpuLost", detail="one GPU is lost")
    resource = ResourceReport(
        verdict=verdict,
        advertised=Known(8),
        present=Known(7),
        free=Unknown("PlaneUnreadable"),
        findings=() if verdict is Verdict.OK else (finding,),
    )
    report = NodeReport(
        node=name,
        taken_at=datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC),
        verdict=verdict,
        resources={GPU: resource} if resources else {},
        devices=(
            DeviceReport(uuid="GPU-0", state=DeviceState.HEALTHY, reason="Ok", holder=Holder.NONE),
            DeviceReport(uuid="GPU-1", state=DeviceState.LOST, reason="GpuLost", holder=Holder.POD, pods=("a/b",)),
        ),
    )
    return NodeCapacity(
        node=name,
        report=report,
        topology=Topology(generation=1),
        age_seconds=2.0,
        stale=stale,
        admissible={GPU: 3},
        leased={GPU: 1},
    )


def shown(table):
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines()[1:]]


def test_an_unknown_count_is_a_question_mark_and_never_zero():
    (row,) = shown(present.nodes_table([a_node(verdict=Verdict.OVER)]))
    assert row == ["n1", "OVER", "2.0s", GPU, "8", "7", "?", "3", "1", "GpuLostStillPromised", "(GpuLost)"]


def test_a_stale_node_says_so_beside_its_last_verdict():
    (row,) = shown(present.nodes_table([a_node(stale=True)]))
    assert row[1:3] == ["STALE", "(OK)"]


def test_a_node_without_resources_has_a_row():
    assert shown(present.nodes_table([a_node(resources=False)])) == [["n1", "OK", "2.0s", "none", "is", "reported"]]


def test_healthy_gpus_are_listed_when_asked_for():
    assert [row[1] for row in shown(present.gpus_table([a_node()], everything=False))] == ["GPU-1"]
    assert [row[1] for row in shown(present.gpus_table([a_node()], everything=True))] == ["GPU-0", "GPU-1"]


def with_report(**changes):
    node = a_node()
    return dataclasses.replace(node, report=dataclasses.replace(node.report, **changes))


def test_an_instance_says_how_it_is_cut_and_how_much_memory_it_really_has():
    shape = MigShape(profile="1g.10gb", compute_slices=Known(1), memory_bytes=Known(10_468_982_784))
    unread = dataclasses.replace(shape, memory_bytes=Unknown("NotCollected"))
    for given, expected in ((shape, ["1g.10gb,", "9.8", "GiB"]), (unread, ["1g.10gb"])):
        device = DeviceReport(
            uuid="MIG-1", parent="GPU-1", state=DeviceState.STALE, reason="MigMismatch", holder=Holder.NONE, shape=given
        )
        (row,) = shown(present.gpus_table([with_report(devices=(device,))], everything=False))
        assert row[1 : 2 + len(expected)] == ["MIG-1", *expected]
        (form,) = present.nodes_json([with_report(devices=(device,))])
        assert form["shapes"]["MIG-1"]["profile"] == "1g.10gb"


def test_a_refused_pod_is_shown_with_the_kubelets_words():
    said = "Allocate failed due to requested number of devices unavailable. Requested: 1, Available: 0"
    pod = PodFinding(pod="team/train-0", uid="u1", state=PodState.REJECTED, reason="Rejected", message=said)
    quiet = PodFinding(pod="team/train-1", state=PodState.ON_BAD_DEVICE, reason="GpuLost", devices=("GPU-1",))
    node = with_report(pods=(pod, quiet))
    first, second = shown(present.pods_table([node]))
    assert first[:4] == ["n1", "team/train-0", "rejected", "Rejected"]
    assert " ".join(first[4:]) == said
    assert second == ["n1", "team/train-1", "on_bad_device", "GpuLost", "GPU-1"]
    assert present.nodes_json([node])[0]["rejections"] == {"u1": said}


def test_what_was_observed_is_said_in_words_and_told_to_programs():
    ends = [inspect_pb2.ObservedEnd(verdict="held", outcome="ran", gangs=2)]
    found = inspect_pb2.Observation(held={"NodesBlind": 3}, ends=ends)
    rows = [" ".join(row) for row in shown(present.observed_table(found))]
    assert rows[0] == "would be held now: NodesBlind 3"
    assert "would have been held, and ran: held wrongly 2" in rows
    assert "would have been let go, and ran 0" in rows
    assert present.observed_json(found) == {
        "held": {"NodesBlind": 3},
        "ends": [{"verdict": "held", "outcome": "ran", "gangs": 2}],
    }


FINE = {
    "all is well": (a_node(), True),
    "ends by itself": (a_node(verdict=Verdict.TRANSIENT), True),
    "silent": (a_node(stale=True), False),
    **{verdict.value: (a_node(verdict=verdict), False) for verdict in Verdict if verdict not in ("OK", "TRANSIENT")},
}


@pytest.mark.parametrize(("node", "expected"), FINE.values(), ids=FINE)
def test_what_is_wrong_with_a_node(node, expected):
    assert present.is_node_fine(node) is expected


GANGS = {
    "waiting": (inspect_pb2.GangStatus(state="waiting"), False),
    "leased": (inspect_pb2.GangStatus(state="leased"), True),
    "finished": (inspect_pb2.GangStatus(state="ended", ended_reason="Finished"), True),
    "lost": (inspect_pb2.GangStatus(state="ended", ended_reason="LeaseLost"), False),
}


@pytest.mark.parametrize(("gang", "expected"), GANGS.values(), ids=GANGS)
def test_what_is_wrong_with_a_gang(gang, expected):
    assert present.is_gang_fine(gang) is expected


def test_a_waiting_gang_in_lines():
    gang = inspect_pb2.GangStatus(namespace="a", name="b", state="waiting")
    why = gang.why
    why.reason, why.summary, why.excluded_more = "NewTerm", "waiting 3s: needs 8 GPUs", 2
    why.next_change.FromSeconds(72)
    why.excluded.add(node="n1", resource=GPU, reason="GpuLost", detail="OVER GpuLost strict 0")
    why.excluded.add(node="n2", resource=GPU, reason="NoSuchResource", detail="not on this node")
    gang.delays.add(delays=["admission", "scheduling"]).length.FromSeconds(3)
    assert present.gang_lines(gang) == [
        "a/b is waiting",
        "  NewTerm: waiting 3s: needs 8 GPUs",
        "  n1: nvidia.com/gpu: GpuLost, OVER GpuLost strict 0",
        "  nodes without the resource: 1",
        "  further nodes refused: 2",
        "  can change by itself in 1m12s",
        "  time so far: admission+scheduling 3.0s",
    ]


def test_a_lease_in_one_line_is_bounded():
    places = [admission_pb2.Placement(node=f"n{index}", units=8) for index in range(10)]
    assert present.places(places).endswith("n7 8 and 2 more")


def test_json_keeps_the_reason_of_an_unknown_count():
    (node,) = present.nodes_json([a_node()])
    assert node["report"]["resources"][GPU]["free"] is None
    assert node["report"]["resources"][GPU]["unknown"]["free"] == "PlaneUnreadable"


def test_a_cause_without_effect_says_so():
    node = a_node(verdict=Verdict.OVER)
    resource = node.report.resources[GPU]
    seen = dataclasses.replace(resource, findings=(dataclasses.replace(resource.findings[0], observed=True),))
    report = dataclasses.replace(node.report, resources={GPU: seen})
    (row,) = shown(present.nodes_table([dataclasses.replace(node, report=report)]))
    assert row[-2:] == ["(GpuLost,", "observed)"]
