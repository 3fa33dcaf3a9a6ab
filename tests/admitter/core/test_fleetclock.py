"""Fleet time ages nodes, and leaves out the admitter's own stalls."""

from hypothesis import given
from hypothesis import strategies as st

from admitter.core.fleetclock import FleetClock


def a_clock(**fields):
    return FleetClock(**{"ticked_at": 100.0, "tick_seconds": 0.25, "slack_seconds": 0.25, **fields})


def test_it_follows_the_clock_between_ticks():
    clock = a_clock().tick(100.25)
    assert clock.fleet_time == 0.25
    assert clock.at(100.5) == 0.5
    assert clock.stalled_seconds == 0


def test_a_stall_is_credited_before_and_after_the_late_tick():
    """Whoever looks first after a stall, the ticker or a decision, sees the same time."""
    clock = a_clock()
    assert clock.at(160.0) == 0.5
    late = clock.tick(160.0)
    assert late.fleet_time == 0.5
    assert late.stalled_seconds == 59.5


def test_it_goes_on_after_a_stall():
    """A node that was silent before the stall still ages."""
    clock = a_clock().tick(160.0)
    for step in range(1, 41):
        clock = clock.tick(160.0 + step * 0.25)
    assert clock.fleet_time == 10.5


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_it_never_goes_back_and_never_outruns_the_machine(steps):
    clock, now = a_clock(), 100.0
    for step in steps:
        now += step
        before, seen = clock.fleet_time, clock.at(now)
        clock = clock.tick(now)
        assert clock.fleet_time == seen
        assert before <= clock.fleet_time <= now - 100.0 + 1e-6
