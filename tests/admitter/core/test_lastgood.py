"""Which numbers stand while the breaker holds."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import lastgood
from admitter.core.lastgood import Standings
from admitter.model import nodecapacity
from admitter.model.ruling import Ground, Hold, HoldMode, Ruling
from muster.model.reading import Known, Unknown
from muster.model.report import CountedPod, DeviceState, Verdict
from tests.admitter.clusters import GPU, NOW, TTL, a_node, a_view
from tests.admitter.nodewords import a_device, a_finding, a_report

ALL = tuple(f"GPU-{number}" for number in range(8))


def a_resource_of(admit=8, *, verdict=Verdict.OK, counted=0, **fields):
    report = a_report(a_finding(verdict)) if verdict is not Verdict.OK else a_report()
    facts = {
        "verdict": verdict,
        "admit_strict": Known(admit),
        "admit_lenient": Known(admit),
        "present": Known(8),
        "advertised": Known(8),
        "allocated": Known(counted),
        "capacity": Known(8),
        "allocatable": Known(8),
        "free_devices": ALL[: 8 - counted],
        "counted": (CountedPod(uid="uid-a", units=counted),) if counted else (),
    }
    return dataclasses.replace(report.resources[GPU], **{**facts, **fields})


GOOD = a_resource_of(8)


CASES = {
    "a rule lowered it and nothing else happened": (a_resource_of(0, verdict=Verdict.OVER), GOOD, 8),
    "pods have come since": (a_resource_of(0, verdict=Verdict.OVER, counted=3), GOOD, 5),
    "pods have gone since: no more than was good": (
        a_resource_of(0, verdict=Verdict.OVER),
        a_resource_of(5, counted=3),
        5,
    ),
    "the node's own number is higher": (a_resource_of(6, verdict=Verdict.UNDER), a_resource_of(2), 6),
    "an id that the driver does not open": (a_resource_of(0, verdict=Verdict.OVER, present=Known(7)), GOOD, 0),
    "fewer ids advertised": (
        a_resource_of(0, verdict=Verdict.UNDER, advertised=Known(5), present=Known(5)),
        GOOD,
        5,
    ),
    "the scheduler has less to give": (a_resource_of(0, verdict=Verdict.OVER, allocatable=Known(3)), GOOD, 3),
    "somebody unlisted holds devices": (a_resource_of(0, verdict=Verdict.OVER, allocated=Known(6)), GOOD, 2),
    "blocked is no judgement": (a_resource_of(0, verdict=Verdict.BLOCKED), GOOD, 0),
    "blind is no reading": (a_resource_of(0, verdict=Verdict.BLIND), GOOD, 0),
    "it is passing": (a_resource_of(0, verdict=Verdict.TRANSIENT), GOOD, 0),
}


@pytest.mark.parametrize(("now", "good", "units"), CASES.values(), ids=CASES)
def test_the_units_that_stand(now, good, units):
    before = a_report(resources={GPU: good})
    after = lastgood.stands(a_report(resources={GPU: now}), before)
    assert after.resources[GPU].admit_strict == Known(units)


@pytest.mark.parametrize("count", ["present", "advertised", "allocated", "allocatable", "admit_strict"])
def test_a_failed_read_raises_nothing(count):
    now = a_resource_of(0, verdict=Verdict.OVER, **{count: Unknown("TIMEOUT")})
    report = a_report(resources={GPU: now})
    assert lastgood.stands(report, a_report(resources={GPU: GOOD})) == report


@pytest.mark.parametrize("state", DeviceState)
def test_a_device_that_is_lost_or_could_not_be_read_keeps_its_node_down(state):
    now = a_report(
        resources={GPU: a_resource_of(0, verdict=Verdict.OVER)}, devices=[a_device(0), a_device(1, state, "GpuLost")]
    )
    after = lastgood.stands(now, a_report(resources={GPU: GOOD})).resources[GPU].admit_strict
    reads = {DeviceState.HEALTHY, DeviceState.DEGRADED, DeviceState.UNHEALTHY}
    assert after == Known(8 if state in reads else 0)


def test_a_finding_that_says_blind_or_blocked_keeps_its_node_down():
    for verdict in (Verdict.BLIND, Verdict.BLOCKED):
        now = a_report(of_node=[a_finding(verdict)], resources={GPU: a_resource_of(0, verdict=Verdict.OVER)})
        now = dataclasses.replace(now, verdict=Verdict.OVER)
        assert lastgood.stands(now, a_report(resources={GPU: GOOD})) == now


def test_every_verdict_is_in_the_table():
    assert lastgood.STANDING.keys() == set(Verdict)


def test_the_forecast_holds_both_so_that_no_island_is_promised_by_half():
    now = a_resource_of(0, verdict=Verdict.OVER, free_devices=("GPU-0", "GPU-9"))
    after = lastgood.stands(a_report(resources={GPU: now}), a_report(resources={GPU: GOOD}))
    assert after.resources[GPU].free_devices == (*ALL, "GPU-9")


def a_ruling(*names):
    hold = Hold(ground=Ground.RULE, culprit="lost/3", since=0.0, nodes=frozenset(names))
    return Ruling(holds=(hold,), last_good={name: a_report(resources={GPU: GOOD}) for name in names})


def a_bad_node(name, heard=NOW):
    return a_node(name, {GPU: a_resource_of(0, verdict=Verdict.OVER)}, heard=heard)


def units_on(view, name):
    return nodecapacity.admissible(view, name, GPU, ())


def test_only_held_nodes_stand_and_only_while_they_are_heard():
    view = a_view(a_bad_node("a"), a_bad_node("b"), a_bad_node("c", heard=NOW - TTL - 1), ("d", 4))
    made = Standings().view(view, a_ruling("a", "c", "gone"), HoldMode.STANDS)
    assert {name: units_on(made, name) for name in made.nodes} == {"a": 8, "b": 0, "c": 0, "d": 4}
    assert made.nodes["b"] is view.nodes["b"]


@pytest.mark.parametrize("mode", [HoldMode.PAUSE, HoldMode.OFF])
def test_in_the_other_modes_nothing_is_raised(mode):
    view = a_view(a_bad_node("a"))
    assert Standings().view(view, a_ruling("a"), mode) is view


def test_a_node_is_made_anew_only_when_it_says_something_new():
    standings, node = Standings(), a_bad_node("a")
    ruling = a_ruling("a")
    first = standings.view(a_view(node), ruling, HoldMode.STANDS).nodes["a"].report
    again = standings.view(a_view(dataclasses.replace(node, heard_at=NOW)), ruling, HoldMode.STANDS).nodes["a"].report
    assert again is first
    changed = dataclasses.replace(node, report=dataclasses.replace(node.report, unverified=("pci: NoPermission",)))
    assert standings.view(a_view(changed), ruling, HoldMode.STANDS).nodes["a"].report is not first


COUNT = st.one_of(st.integers(0, 8).map(Known), st.just(Unknown("TIMEOUT")))
RESOURCE = st.builds(
    lambda strict, present, advertised, allocated, allocatable, counted, verdict: (
        a_resource_of(
            0,
            verdict=verdict,
            admit_strict=strict,
            admit_lenient=strict,
            present=present,
            advertised=advertised,
            allocated=allocated,
            allocatable=allocatable,
            counted=counted,
        )
        if verdict is not Verdict.OK
        else a_resource_of(0, admit_strict=strict, admit_lenient=strict, counted=counted)
    ),
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    st.integers(0, 8),
    st.sampled_from(Verdict),
)


@given(RESOURCE, RESOURCE)
def test_whatever_is_said_nothing_rises_past_what_was_read(now, good):
    before = a_report(resources={GPU: now})
    after = lastgood.stands(before, a_report(resources={GPU: good})).resources[GPU]
    if after.admit_strict == now.admit_strict:
        return
    assert isinstance(now.admit_strict, Known)
    stand = after.admit_strict.value
    assert stand > now.admit_strict.value
    assert stand <= good.admit_strict.value
    assert stand <= now.present.value - now.allocated.value
    assert stand <= now.allocatable.value - sum(pod.units for pod in now.counted)
    assert now.present.value >= now.advertised.value
    assert after.admit_lenient.value >= stand
