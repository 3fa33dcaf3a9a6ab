"""Snapshots that offer the same have one hash in every process, and whatever changes capacity changes it."""

import dataclasses
import datetime
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core.viewhash import ViewHash
from admitter.model.nodefacts import BoundPod
from muster.model import kube
from muster.model.reading import Unknown
from muster.model.report import DeviceReport, DeviceState, Holder, MigShape
from tests.admitter.clusters import GPU, NOW, TTL, a_node, a_resource, a_view, some_facts

FACTS = some_facts(requested={"cpu": 1000}, counted=("u1",), zone="z1")


def a_fleet(n1=8, *, facts=FACTS, **fields):
    return a_view(a_node("n1", n1, **fields), a_node("n2", 3), facts={"n1": facts, "n2": some_facts()})


def changed(**report):
    view = a_fleet()
    state = view.nodes["n1"]
    return _with(view, dataclasses.replace(state, report=dataclasses.replace(state.report, **report)))


def _with(view, state):
    return dataclasses.replace(view, nodes={**view.nodes, state.node: state})


def test_what_tells_nothing_of_capacity_is_not_in_it():
    view = a_fleet()
    state = view.nodes["n1"]
    later = state.report.taken_at + datetime.timedelta(seconds=5)
    told_again = dataclasses.replace(state, sequence=99, report=dataclasses.replace(state.report, taken_at=later))
    assert ViewHash().of(dataclasses.replace(_with(view, told_again), version=1234)) == ViewHash().of(view)


SHAPE = MigShape(profile="1g.10gb")
MIG = DeviceReport(uuid="MIG-1", state=DeviceState.HEALTHY, reason="", holder=Holder.NONE, shape=SHAPE)
OTHERS = {
    "a unit less": a_fleet(7),
    "unknown": a_fleet(a_resource(None)),
    "for another reason": a_fleet(dataclasses.replace(a_resource(None), admit_strict=Unknown("Other"))),
    "another size": a_fleet(a_resource(8, size=16)),
    "a pick at risk": a_fleet(a_resource(8, risk=0.125)),
    "a pod is counted": a_fleet(a_resource(8, counted=(("u9", 1),))),
    "other devices": a_fleet(a_resource(8, devices=tuple(f"GPU-{number}" for number in range(1, 9)))),
    "another resource": a_fleet({GPU: a_resource(8), "nvidia.com/mig-1g.10gb": a_resource(1)}),
    "a finding": a_fleet(a_resource(8, reason="GpuLost")),
    "an instance": changed(devices=(MIG,)),
    "another instance": changed(devices=(dataclasses.replace(MIG, shape=dataclasses.replace(SHAPE, profile="2g")),)),
    "islands": a_fleet(islands=["a"] * 4 + ["b"] * 4),
    "a clique": a_fleet(clique="c.1"),
    "silence": a_fleet(heard=NOW - TTL - 1),
    "closed": dataclasses.replace(a_fleet(), barred={"n1": "refused"}),
    "cordoned": a_fleet(facts=dataclasses.replace(FACTS, is_cordoned=True)),
    "a label": a_fleet(facts=dataclasses.replace(FACTS, labels={"zone": "z2"})),
    "a taint": a_fleet(facts=dataclasses.replace(FACTS, taints=(kube.Taint(key="k", effect="NoSchedule"),))),
    "cpu": a_fleet(facts=dataclasses.replace(FACTS, allocatable={**FACTS.allocatable, "cpu": 1})),
    "a bound pod": a_fleet(
        facts=dataclasses.replace(FACTS, requested={"cpu": 2000}, counted={"u1": BoundPod(), "u2": BoundPod()})
    ),
    "no API server": dataclasses.replace(a_fleet(), facts=None),
    "a node more": a_view(a_node("n1"), a_node("n2", 3), a_node("n3"), facts={"n1": FACTS, "n2": some_facts()}),
    "a node less": a_view(a_node("n1"), facts={"n1": FACTS}),
    "names changed over": a_view(a_node("n2"), a_node("n1", 3), facts={"n2": FACTS, "n1": some_facts()}),
}


def test_each_that_differs_has_its_own():
    hashes = {name: ViewHash().of(view) for name, view in {"": a_fleet(), **OTHERS}.items()}
    assert len(set(hashes.values())) == len(hashes), hashes


@given(st.lists(st.sampled_from(["", *OTHERS]), max_size=8))
def test_what_was_seen_before_does_not_matter(names):
    views = [OTHERS.get(name) or a_fleet() for name in names]
    walked = ViewHash()
    assert [walked.of(view) for view in views] == [ViewHash().of(view) for view in views]


def test_the_order_in_which_things_are_known_does_not_matter():
    view = a_fleet()
    turned = dataclasses.replace(
        view, nodes=dict(reversed(view.nodes.items())), facts=dict(reversed((view.facts or {}).items()))
    )
    assert ViewHash().of(turned) == ViewHash().of(view)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_another_process_comes_to_the_same(seed):
    code = "from tests.admitter.core import test_viewhash as t; print(t.ViewHash().of(t.a_fleet()))"
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ViewHash().of(a_fleet())
