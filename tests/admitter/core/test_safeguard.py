"""The breaker as the admitter uses it."""

import pytest

from admitter.core.safeguard import Safeguard
from admitter.model import nodecapacity
from admitter.model.ruling import HoldMode, HoldPolicy
from muster.model.report import Verdict
from tests.admitter.clusters import GPU, a_node, a_view
from tests.admitter.core.test_lastgood import a_resource_of


def look(safeguard, turned, *, now):
    """Show a fleet of ten, of which the first `turned` were lowered by a rule."""
    bad = a_resource_of(0, verdict=Verdict.OVER)
    nodes = [a_node(f"n{i}", {GPU: bad if i < turned else a_resource_of(8)}, heard=now) for i in range(10)]
    view = safeguard.admit_from(a_view(*nodes, now=now))
    return sum(nodecapacity.admissible(view, name, GPU, ()) for name in view.nodes)


MODES = {
    HoldMode.STANDS: (80, False, 6),
    HoldMode.PAUSE: (32, True, 6),
    HoldMode.OFF: (32, False, 0),
}


@pytest.mark.parametrize("mode", HoldMode)
def test_what_each_mode_does_to_the_view(mode):
    units, is_paused, in_force = MODES[mode]
    safeguard = Safeguard(HoldPolicy(mode=mode))
    assert look(safeguard, 0, now=0.0) == 80
    assert look(safeguard, 6, now=10.0) == units
    assert safeguard.paused_by == ("admission pauses: too many nodes changed at once by rule B2/1" if is_paused else "")
    assert len(safeguard.ruling.nodes) == in_force
    assert len(safeguard.seen.nodes) == 6


def test_each_hold_is_an_event_when_it_begins_and_when_it_ends():
    safeguard = Safeguard(HoldPolicy())
    for now, turned in ((0.0, 0), (10.0, 6), (20.0, 6), (30.0, 0), (40.0, 0)):
        look(safeguard, turned, now=now)
    assert [(event.kind, event.detail) for event in safeguard.events] == [
        ("hold-began", "rule B2/1: 6 nodes, breaker stands"),
        ("hold-ended", "rule B2/1: 6 nodes, breaker stands"),
    ]
