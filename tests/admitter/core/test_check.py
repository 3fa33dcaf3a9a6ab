"""A hostile or broken report is named, field by field, and all at once."""

import dataclasses
import math

import pytest
from hypothesis import given

from admitter.core import check
from muster.model import delta, report
from muster.model.reading import Known, Unknown
from muster.model.report import CountedPod, Verdict
from tests import feedworld, values


def with_resource(**fields):
    return feedworld.a_report(resources={"nvidia.com/gpu": feedworld.a_resource(**fields)})


def lowered_free():
    resource = dataclasses.replace(feedworld.a_resource(), free=Known(2))
    return feedworld.a_report(resources={"nvidia.com/gpu": resource})


def a_device(uuid, **fields):
    return report.DeviceReport(
        **{
            "uuid": uuid,
            "state": report.DeviceState.HEALTHY,
            "reason": "Ok",
            "holder": report.Holder.NONE,
            **fields,
        }
    )


def a_finding(**fields):
    return report.Finding(**{"verdict": Verdict.OVER, "cause": "X", "reason": "Xid", "detail": "", **fields})


GOOD = {
    "a node with all free": feedworld.a_report(free=8),
    "a node with none free": feedworld.a_report(free=0),
    "a node of nothing": feedworld.a_report(resources={}, devices=()),
    "a blind resource": with_resource(verdict=Verdict.BLIND, admit_strict=Unknown("x"), admit_lenient=Unknown("x")),
    "a blocked resource": with_resource(verdict=Verdict.BLOCKED, admit_strict=Known(0), admit_lenient=Known(0)),
    "strict below lenient": with_resource(admit_strict=Known(0), pick_risk=Known(0.125)),
    "one device gone from what is present": with_resource(free=7, usable=Known(7), present=Known(7)),
    "an id that is usable though not present, its rule being only observed": with_resource(present=Known(7)),
    "many replicas": feedworld.a_report(
        devices=tuple(a_device(f"GPU-{index:05d}") for index in range(check.MAX_DEVICES))
    ),
}


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_an_honest_report_passes(content):
    assert check.check(content) == ()


BAD = {
    "negative": (with_resource(admit_strict=Known(-1)), "admit_strict: -1 is negative"),
    "huge": (with_resource(advertised=Known(2**62)), "advertised: 4611686018427387904 is out of bounds"),
    "strict above lenient": (with_resource(admit_lenient=Known(3)), "admit_strict: 8 is more than admit_lenient, 3"),
    "lenient above free": (lowered_free(), "admit_lenient: 8 is more than free, 2"),
    "usable above advertised": (with_resource(advertised=Known(7)), "usable: 8 is more than advertised, 7"),
    "present above advertised": (with_resource(present=Known(9)), "present: 9 is more than advertised, 8"),
    "lenient above advertised, the rest unknown": (
        with_resource(free=8, usable=Unknown("x"), present=Unknown("x"), advertised=Known(4)),
        "free: 8 is more than advertised, 4",
    ),
    "not a number": (with_resource(pick_risk=Known(math.nan)), "pick_risk: nan is not within 0..1"),
    "infinite": (with_resource(pick_risk=Known(math.inf)), "pick_risk: inf"),
    "risk above one": (with_resource(pick_risk=Known(1.5)), "pick_risk: 1.5"),
    "admits while blind": (with_resource(verdict=Verdict.BLIND), "admit_strict: 8 is admitted while BLIND"),
    "free id twice": (with_resource(free_devices=("a", "a")), "free_devices: one id stands twice"),
    "counted twice": (
        with_resource(counted=(CountedPod(uid="a", units=1), CountedPod(uid="a", units=1))),
        "counted: one pod stands twice",
    ),
    "counted below nothing": (with_resource(counted=(CountedPod(uid="a", units=-1),)), "counted[a]: -1"),
    "devices twice": (feedworld.a_report(devices=(a_device("a"), a_device("a"))), "devices[1]: 'a' is"),
    "devices out of order": (feedworld.a_report(devices=(a_device("b"), a_device("a"))), "devices[1]: 'a' is"),
    "device without a name": (feedworld.a_report(devices=(a_device(""),)), "devices[0]: '' is"),
    "too many devices": (
        feedworld.a_report(devices=tuple(a_device(f"{index:05d}") for index in range(check.MAX_DEVICES + 1))),
        "devices: 4097 are more than 4096",
    ),
    "a device's long words": (feedworld.a_report(devices=(a_device("a", detail="x" * 5000),)), "devices[0].detail"),
    "a device's long name": (feedworld.a_report(devices=(a_device("a" * 600),)), "devices[0]: its names"),
    "too many resources": (
        feedworld.a_report(resources={f"r{index}": feedworld.a_resource() for index in range(300)}),
        "resources: 300 are more than 256",
    ),
    "a resource's name with a line break": (
        feedworld.a_report(resources={"a\nb": feedworld.a_resource()}),
        "is no resource name",
    ),
    "too many findings": (with_resource(findings=(a_finding(),) * 2000), "findings: 2000 are more than 1024"),
    "a finding's long words": (
        feedworld.a_report(node_findings=(a_finding(detail="x" * 5000),)),
        "node_findings[0].detail: 5000 characters",
    ),
    "a plane's long reason": (feedworld.a_report(unverified=("x" * 5000,)), "unverified: an entry is longer"),
    "too many pods": (
        feedworld.a_report(
            pods=(report.PodFinding(pod="a/b", state=report.PodState.AT_RISK, reason="Xid"),) * 2000,
        ),
        "pods: 2000 are more than 1024",
    ),
    "a marker's long words": (
        feedworld.a_report(maintenance=report.Maintenance(marker="x" * 5000)),
        "maintenance.marker",
    ),
    "a node's long name": (feedworld.a_report(node="n" * 600), "node: 600 characters"),
}


@pytest.mark.parametrize(("content", "problem"), BAD.values(), ids=BAD)
def test_an_impossible_report_is_named(content, problem):
    assert any(problem in line for line in check.check(content)), check.check(content)


def test_all_problems_come_at_once():
    content = with_resource(admit_strict=Known(-1), pick_risk=Known(2.0), free_devices=("a", "a"))
    assert len(check.check(content)) == 3


@pytest.mark.parametrize(
    ("topology", "problem"),
    [
        (report.Topology(generation=-1), "generation"),
        (report.Topology(generation=1, gpus=(report.GpuTopology(uuid="a"),) * 2), "twice"),
        (report.Topology(generation=1, gpus=(report.GpuTopology(uuid="a" * 600),)), "uuid"),
        (report.Topology(generation=1, gpus=(report.GpuTopology(uuid="a", memory_bytes=Known(-1)),)), "memory_bytes"),
    ],
)
def test_impossible_static_facts_are_named(topology, problem):
    assert problem in " ".join(check.check_topology(topology))


@given(values.of(report.NodeReport), values.of(report.NodeReport))
def test_a_delta_is_judged_as_the_report_it_makes(old, new):
    """What a delta brings is judged as strictly as in a snapshot: from a good state, only a good state is reached."""
    old = dataclasses.replace(old, node="n", resources={}, devices=(), node_findings=(), pods=(), unverified=())
    old = dataclasses.replace(old, maintenance=None)
    new = dataclasses.replace(new, node="n")
    change = delta.diff(old, new, base=1)
    assert bool(check.check_delta(change)) == bool(check.check(new))


@given(values.of(report.NodeReport))
def test_a_report_that_passes_promises_no_more_than_its_numbers(content):
    if check.check(content):
        return
    for resource in content.resources.values():
        match resource.admit_strict, resource.advertised:
            case Known(strict), Known(advertised):
                assert 0 <= strict <= advertised
