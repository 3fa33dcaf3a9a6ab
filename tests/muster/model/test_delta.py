"""A delta turns the old report into the new one, whatever the two are."""

import dataclasses

import hypothesis
from hypothesis import strategies as st

from muster.model import delta
from muster.model.report import NodeReport, Topology, Verdict
from tests import builders, values

REPORTS = values.of(NodeReport)


def of_one_node(pair):
    """Make a pair of reports of one node: a delta never says which."""
    old, new = pair
    return old, dataclasses.replace(new, node=old.node)


PAIRS = st.tuples(REPORTS, REPORTS).map(of_one_node)


@hypothesis.given(PAIRS, st.integers(0, 2**40))
def test_applying_the_difference_gives_the_new_report(pair, base):
    old, new = pair
    change = delta.diff(old, new, base=base)
    assert (change.base, change.sequence) == (base, base + 1)
    assert delta.apply(old, change) == new


@hypothesis.given(REPORTS)
def test_nothing_but_time_is_steady(report):
    change = delta.diff(report, report, base=1)
    assert delta.is_steady(change)
    assert delta.apply(report, change) == report


@hypothesis.given(PAIRS)
def test_a_steady_difference_loses_nothing_but_time(pair):
    old, new = pair
    if delta.is_steady(delta.diff(old, new, base=1)):
        assert dataclasses.replace(old, taken_at=new.taken_at, verdict=new.verdict) == new


@hypothesis.given(PAIRS)
def test_a_resource_travels_whole_or_not_at_all(pair):
    old, new = pair
    change = delta.diff(old, new, base=1)
    assert all(change.resources[name] == new.resources[name] for name in change.resources)
    assert set(change.removed_resources) == set(old.resources) - set(new.resources)


def test_a_new_topology_is_a_change():
    change = delta.Delta(base=1, sequence=2, taken_at=builders.NOW, verdict=Verdict.OK, topology=Topology(generation=2))
    assert not delta.is_steady(change)
