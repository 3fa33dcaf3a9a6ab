"""One gang on which a pass fails by a bug is left out for a while; the others are answered."""

import pytest

from admitter.core import failing
from admitter.core.book import Book
from admitter.model.decision import Policy
from admitter.model.record import GangState, Terms
from admitter.model.standing import Standing
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_view


class Poison(dict):
    """What a pod asks for beside devices, where looking at it is a bug of ours."""

    is_armed = True

    def items(self):
        if self.is_armed:
            raise ZeroDivisionError("a bug")
        return super().items()


def a_book():
    return Book(Terms(term=1, prefix="t1-abc", opens_at=0.0), Policy())


def states(book):
    return {record.gang.name: record.state for record in book.records.values()}


def test_the_others_are_leased_and_the_one_is_told():
    book = a_book()
    book.open(a_gang(name="bad", requests=Poison(cpu=1)), "client", NOW)
    book.open(a_gang(name="good"), "client", NOW + 1)
    book.decide(a_view(("n1", 8)), NOW + 1)
    assert states(book) == {"bad": GangState.WAITING, "good": GangState.LEASED}
    why = book.records["team-a/bad"].why
    assert (why.reason, "ZeroDivisionError" in why.summary) == (WaitReason.INTERNAL_ERROR, True)
    assert [(key, type(error)) for key, error in book.failing.taken()] == [("team-a/bad", ZeroDivisionError)]
    book.decide(a_view(("n1", 7)), NOW + 2)
    assert book.failing.taken() == [], "it is left out"
    book.decide(a_view(("n1", 8)), NOW + 1 + failing.RETRY_SECONDS)
    assert len(book.failing.taken()) == 1, "and tried again"


def test_who_asks_for_something_else_is_tried_at_once():
    book, poison = a_book(), Poison(cpu=1)
    book.open(a_gang(name="bad", requests=poison), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    poison.is_armed = False
    book.end("team-a/bad", "corrected", NOW)
    book.open(a_gang(name="bad", request_id="again"), "client", NOW + 1)
    book.decide(a_view(("n1", 8)), NOW + 1)
    assert states(book) == {"bad": GangState.LEASED}


def test_many_are_found_a_few_in_each_pass():
    book = a_book()
    for number in range(failing.MOST + 3):
        book.open(a_gang(name=f"bad-{number:02}", requests=Poison(cpu=1)), "client", NOW)
    book.open(a_gang(name="good"), "client", NOW + 1)
    with pytest.raises(failing.AskFailed):
        book.decide(a_view(("n1", 8)), NOW + 1)
    book.decide(a_view(("n1", 8)), NOW + 2)
    assert states(book)["good"] is GangState.LEASED


def test_the_rest_of_a_gang_that_failed_is_as_it_was():
    book = a_book()
    book.open(a_gang(name="bad", requests=Poison(cpu=1)), "client", NOW)
    book.stand("team-a/bad", Standing(strikes=1, refused_by="node n1: OutOfcpu"))
    book.decide(a_view(("n1", 8)), NOW)
    assert book.leases() == {}
    assert book.records["team-a/bad"].standing.strikes == 1
