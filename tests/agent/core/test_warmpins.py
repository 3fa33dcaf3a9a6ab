"""Our pins end when nobody asks for them, when no budget has room, and by time; others' never."""

import datetime

import pytest

from agent.core import warmpins, warmth
from agent.model.warm import ImageRecord, Reason
from tests.agent.core.test_warmplan import unresolved, visible

AT = datetime.datetime(2026, 12, 2, 12, tzinfo=datetime.UTC)
DAY = 86_400.0
WANTED = visible("a", pin=True)
"""Its manifest is sha256:ma."""


def record(digest="sha256:ma", age=0.0, **more):
    mark = warmpins.stamp(AT - datetime.timedelta(seconds=age))
    return ImageRecord(digest=digest, labels={warmth.PIN_LABEL: "pinned", warmpins.MARK: mark, **more})


def ends(records, *candidates, unaffordable=(), seconds=DAY):
    return warmpins.ends(records, candidates, unaffordable, AT, seconds)


def test_only_our_own_are_taken_away_and_only_those_that_nobody_asks_for():
    theirs = ImageRecord(digest="sha256:old", labels={warmth.PIN_LABEL: "pinned"})
    records = {"ours": record("sha256:old"), "theirs": theirs, "wanted": record()}
    assert ends(records, WANTED) == warmpins.Ends(forget=("ours",))
    assert ends(records).forget == ("ours", "wanted")
    assert ends(records, visible("a")).forget == ("ours", "wanted"), "listed, and not to be pinned any more"


def test_what_no_budget_has_room_for_is_not_pinned():
    assert ends({"r.io/a:1": record()}, WANTED, unaffordable={"r.io/a:1"}).forget == ("r.io/a:1",)


@pytest.mark.parametrize("reason", [None, Reason.NOT_FOUND])
def test_what_is_never_resolved_keeps_no_pin_but_that_of_its_own_name(reason):
    records = dict.fromkeys(("r.io/typo:1", "r.io/withdrawn:1"), record("sha256:old"))
    assert ends(records, unresolved("typo", reason, pin=True)).forget == ("r.io/withdrawn:1",)


@pytest.mark.parametrize(
    ("age", "seconds", "is_over"),
    [(DAY, DAY, False), (DAY + 1, DAY, True), (1000 * DAY, 0.0, False), (-DAY, DAY, False)],
)
def test_a_pin_has_its_time(age, seconds, is_over):
    found = record(age=age)
    assert warmpins.is_over(found, AT, seconds) is is_over
    assert ends({"x": found}, WANTED, seconds=seconds) == warmpins.Ends(end=("x",) if is_over else ())


def test_the_mark_of_one_that_had_its_time_stays_and_is_nothing_to_do():
    mark = warmpins.stamp(AT - datetime.timedelta(seconds=2 * DAY))
    found = ImageRecord(digest="sha256:ma", labels={warmpins.MARK: mark})
    assert ends({"x": found}, WANTED) == warmpins.Ends()
    assert ends({"x": found}).forget == ("x",)


@pytest.mark.parametrize("mark", ["true", "", "2026-12-02T12:00:00"])
def test_a_mark_that_says_no_time_is_dated_now(mark):
    found = record(**{warmpins.MARK: mark})
    assert not warmpins.is_over(found, AT, DAY)
    assert ends({"x": found}, WANTED) == warmpins.Ends(date=("x",))
