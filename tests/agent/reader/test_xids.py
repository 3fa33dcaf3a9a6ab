"""Each GPU's Xids, counted once."""

import dataclasses
import datetime

from hypothesis import given
from hypothesis import strategies as st

from agent.model import planes
from agent.reader import xids

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


def xid(code, seconds=0.0, source=planes.XidSource.NVML):
    return planes.Xid(code=code, at=AT + datetime.timedelta(seconds=seconds), source=source)


def test_two_sources_tell_one_occurrence():
    history = xids.History()
    assert history.add("0000:1b:00.0", xid(79))
    assert not history.add("0000:1b:00.0", xid(79, 1.2, planes.XidSource.KERNEL_LOG))
    assert history.add("0000:1b:00.0", xid(79, 60))
    assert history.add("0000:1b:00.0", xid(31, 1))
    assert history.add("0000:1c:00.0", xid(79))
    assert [one.code for one in history.of("0000:1b:00.0")] == [79, 31, 79]
    assert history.of("0000:ff:00.0") == ()


def test_two_instances_have_two_occurrences():
    """faults.md B10: a fault of one instance must not hide behind that of another."""
    history = xids.History()
    assert history.add("0000:1b:00.0", dataclasses.replace(xid(31), gi=7, ci=0))
    assert history.add("0000:1b:00.0", dataclasses.replace(xid(31), gi=8, ci=0))
    assert not history.add("0000:1b:00.0", xid(31, 1, planes.XidSource.KERNEL_LOG))


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(-1e6, 1e6)), max_size=200))
def test_a_history_is_bounded_and_in_order(events):
    history = xids.History()
    for code, seconds in events:
        history.add("0000:1b:00.0", xid(code, seconds))
    found = history.of("0000:1b:00.0")
    assert len(found) <= 64
    assert list(found) == sorted(found, key=lambda one: (one.at, one.code))


FATAL, CRASHES, OTHER = (48, 79, 95), (13, 31, 43), 109
"""model/xid.py: what ends a GPU; what any program can cause; what a policy may call fatal."""


@given(st.lists(st.tuples(st.sampled_from(CRASHES), st.sampled_from([None, 1, 2])), min_size=100, max_size=300))
def test_no_flood_of_crashes_pushes_out_a_fatal_xid(crashes):
    """Nor one of another kind, which the site's policy may call fatal; the newest of the flood stays."""
    history = xids.History()
    for code in (*FATAL, OTHER):
        history.add("0000:1b:00.0", xid(code))
    for number, (code, gi) in enumerate(crashes):
        history.add("0000:1b:00.0", dataclasses.replace(xid(code, 10.0 * (1 + number)), gi=gi))
    found = history.of("0000:1b:00.0")
    assert len(found) == 64
    assert {one.code for one in found} >= {*FATAL, OTHER}
    assert found[-1].at == AT + datetime.timedelta(seconds=10 * len(crashes))


def test_of_fatal_xids_alone_the_oldest_goes_and_a_crash_after_them_too():
    """The bound holds whatever they are."""
    history = xids.History()
    for number in range(65):
        assert history.add("0000:1b:00.0", xid(79, 10.0 * number))
    assert history.add("0000:1b:00.0", xid(13, 1000.0))
    found = history.of("0000:1b:00.0")
    assert [one.code for one in found] == [79] * 64
    assert found[0].at == AT + datetime.timedelta(seconds=10)


def test_addresses_are_bounded():
    """They come from text that the log has; the newest are kept."""
    history = xids.History()
    for number in range(1000):
        history.add(f"{number:04x}:00:00.0", xid(79))
    assert history.of("0000:00:00.0") == ()
    assert len(history.of(f"{999:04x}:00:00.0")) == 1
    assert len(history._by_pci) == xids._MOST_ADDRESSES
