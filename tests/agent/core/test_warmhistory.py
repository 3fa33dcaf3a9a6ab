"""Habits fade, newcomers have a chance, and nothing grows without bound."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmhistory

NOON = datetime.datetime(2026, 12, 2, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def after(*names, start=NOON, every=datetime.timedelta(hours=1)):
    uses = {}
    for number, name in enumerate(names):
        uses = warmhistory.started(uses, name, start + number * every)
    return uses


def test_one_start_is_no_habit_and_two_are():
    assert warmhistory.likely(after("a", "b", "b"), NOON + DAY / 2) == ("b",)


def test_a_habit_fades():
    uses = after("a", "a")
    assert warmhistory.likely(uses, NOON + DAY) == ("a",)
    assert warmhistory.likely(uses, NOON + 5 * DAY) == ()


def test_lately_beats_often_long_ago():
    uses = after(*["old"] * 6)
    for number in range(3):
        uses = warmhistory.started(uses, "new", NOON + (9 + number / 10) * DAY)
    assert warmhistory.likely(uses, NOON + 10 * DAY)[0] == "new"


def test_a_clock_that_goes_back_loses_nothing():
    uses = after("a", "a")
    assert warmhistory.likely(uses, NOON - 100 * DAY) == ("a",)


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 20)), max_size=400))
def test_names_are_bounded_and_the_newest_is_among_them(starts):
    uses = {}
    for number, days in starts:
        name = f"n{number}"
        uses = warmhistory.started(uses, name, NOON + days * DAY)
        assert name in uses
        assert len(uses) <= warmhistory.MAX_NAMES
    assert len(warmhistory.likely(uses, NOON)) <= warmhistory.MAX_WARMED


def test_a_flood_of_names_pushes_the_least_likely_out():
    uses = after("kept", "kept", *[f"n{number}" for number in range(2 * warmhistory.MAX_NAMES)], every=DAY / 1000)
    assert len(uses) == warmhistory.MAX_NAMES
    assert "kept" in uses
