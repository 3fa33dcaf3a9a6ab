"""The breaker as the admitter uses it."""

import pytest

from admitter.core.holding import Holding
from admitter.model import nodecapacity
from admitter.model.ruling import HoldMode, HoldPolicy
from muster.model.report import Verdict
from tests.admitter.clusters import GPU, a_node, a_view
from tests.admitter.core.test_lastgood import a_resource_of


def look(holding, turned, *, now):
    """Show a fleet of ten, of which the first `turned` were lowered by a rule."""
    bad = a_resource_of(0, verdict=Verdict.OVER)
    nodes = [a_node(f"n{i}", {GPU: bad if i < turned else a_resource_of(8)}, heard=now) for i in range(10)]
    view = holding.admit_from(a_view(*nodes, now=now))
    return sum(nodecapacity.admissible(view, name, GPU, ()) for name in view.nodes)


MODES = {
    HoldMode.STANDS: (80, False, 6),
    HoldMode.PAUSE: (32, True, 6),
    HoldMode.OFF: (32, False, 0),
}


@pytest.mark.parametrize("mode", HoldMode)
def test_what_each_mode_does_to_the_view(mode):
    units, is_paused, in_force = MODES[mode]
    holding = Holding(HoldPolicy(mode=mode))
    assert look(holding, 0, now=0.0) == 80
    assert look(holding, 6, now=10.0) == units
    assert holding.is_paused is is_paused
    assert len(holding.ruling.nodes) == in_force
    assert len(holding.seen.nodes) == 6


def test_each_hold_is_an_event_when_it_begins_and_when_it_ends():
    holding = Holding(HoldPolicy())
    for now, turned in ((0.0, 0), (10.0, 6), (20.0, 6), (30.0, 0), (40.0, 0)):
        look(holding, turned, now=now)
    assert [(event.kind, event.detail) for event in holding.events] == [
        ("hold-began", "rule B2/1: 6 nodes, breaker stands"),
        ("hold-ended", "rule B2/1: 6 nodes, breaker stands"),
    ]
