"""What the book tells the queue: strikes, and who says when it ends."""

from admitter.core.book import Book
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.record import GangState, Terms
from admitter.model.standing import Standing
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_node, a_resource, a_view


def a_book():
    return Book(Terms(term=1, prefix="t1-abc", opens_at=0.0), Policy())


def test_a_gang_on_strike_is_not_looked_at_before_its_time():
    book = a_book()
    book.open(a_gang(), "client", NOW)
    book.stand("team-a/train", Standing(strikes=1, refused_by="node n1: OutOfcpu", not_before=NOW + 20))
    view = a_view(("n1", 8))
    book.decide(view, NOW)
    assert book.records["team-a/train"].why.reason is WaitReason.ON_STRIKE
    book.decide(view, NOW + 19)
    assert book.records["team-a/train"].state is GangState.WAITING
    book.decide(view, NOW + 20)
    assert book.records["team-a/train"].state is GangState.LEASED


def test_a_running_gang_that_says_when_it_ends_is_waited_for():
    """Eight of eight run until NOW + 600; the next gang is told so, and a short one may not yet pass it."""
    book = a_book()
    book.open(a_gang(name="first", gpus=8, runtime=600.0), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.join("team-a/first", Member(podset="main", uid="u1", node="n1"), NOW)
    view = a_view(a_node("n1", a_resource(0, counted=[("u1", 8)])))
    book.decide(view, NOW)
    assert book.records["team-a/first"].state is GangState.STARTED
    book.open(a_gang(name="second", gpus=8), "client", NOW + 1)
    book.decide(view, NOW + 1)
    assert book.records["team-a/second"].why.changes_at == NOW + 600
