"""The place in the queue outlives a launcher's impatience, and costs bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from admitter.core.book import Book
from admitter.core.places import Places
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.queue import QueuePolicy
from admitter.model.record import GangState, Terms
from tests.admitter.clusters import NOW, a_gang, a_node, a_resource, a_view

FULL = a_view(("n1", 4))
"""Not enough for eight."""


def a_book():
    return Book(Terms(term=1, prefix="t1-abc", opens_at=0.0, ended_kept_seconds=0.0), Policy())


def test_who_is_deleted_and_made_anew_waits_since_the_first_time():
    book = a_book()
    book.open(a_gang(name="big", gpus=8), "client", NOW)
    book.end("team-a/big", "gave up", NOW + 30)
    book.open(a_gang(name="later", gpus=8), "client", NOW + 30.5)
    again = book.open(a_gang(name="big", gpus=8, request_id="r2"), "client", NOW + 31)
    assert again.timeline.asked.at == NOW
    book.decide(FULL, NOW + 31)
    assert book.records["team-a/big"].why.position == 1
    assert book.records["team-a/later"].why.position == 2


def test_another_question_under_the_name_starts_at_the_end():
    book = a_book()
    book.open(a_gang(name="big", gpus=8), "client", NOW)
    book.end("team-a/big", "gave up", NOW + 30)
    other = book.open(a_gang(name="big", gpus=4, request_id="r2"), "client", NOW + 31)
    assert other.timeline.asked.at == NOW + 31


def test_a_place_is_kept_for_minutes_and_no_longer():
    kept = QueuePolicy().place_kept_seconds
    places = Places(QueuePolicy())
    places.keep(a_gang(), 1, NOW - 5, NOW)
    places.forget(NOW + kept)
    assert places.take(a_gang(request_id="r2"), NOW + kept).asked_at == NOW - 5
    assert places.take(a_gang(), NOW + kept) is None, "a place is given out once"
    places.keep(a_gang(), 1, NOW - 5, NOW)
    assert places.take(a_gang(), NOW + kept + 1) is None
    places.keep(a_gang(), 1, NOW - 5, NOW)
    places.forget(NOW + kept + 1)
    assert len(places) == 0


def test_a_gang_that_has_run_goes_to_the_end():
    book = a_book()
    book.open(a_gang(gpus=4), "client", NOW)
    book.decide(FULL, NOW)
    book.join("team-a/train", Member(podset="main", uid="u1", node="n1"), NOW)
    book.decide(a_view(a_node("n1", a_resource(0, counted=[("u1", 4)]))), NOW + 1)
    assert book.records["team-a/train"].state is GangState.STARTED
    book.end("team-a/train", "done", NOW + 2)
    assert book.open(a_gang(gpus=4, request_id="r2"), "client", NOW + 3).timeline.asked.at == NOW + 3


def test_a_gang_whose_lease_came_to_nothing_keeps_its_place():
    book = a_book()
    book.open(a_gang(gpus=4), "client", NOW)
    book.decide(FULL, NOW)
    assert book.records["team-a/train"].state is GangState.LEASED
    book.end("team-a/train", "node n1: UnexpectedAdmissionError", NOW + 2, has_run=False)
    assert book.open(a_gang(gpus=4, request_id="r2"), "client", NOW + 3).timeline.asked.at == NOW


def test_nobody_takes_what_was_gathered_in_the_moment_between_two_tries():
    """Four of eight are free and kept for the head; a small gang may not have them while the launcher recreates."""
    book = a_book()
    held = a_view(a_node("n1", a_resource(4, counted=[("u1", 4)])))
    book.open(a_gang(name="runs", gpus=4, runtime=600.0), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.join("team-a/runs", Member(podset="main", uid="u1", node="n1"), NOW)
    book.decide(held, NOW + 1)
    book.open(a_gang(name="head", gpus=8), "client", NOW + 2)
    book.decide(held, NOW + 2)
    book.end("team-a/head", "recreated", NOW + 32)
    book.open(a_gang(name="small", gpus=4), "client", NOW + 32.2)
    before = book.records["team-a/small"]
    book.decide(held, NOW + 32.5)
    after = book.records["team-a/small"]
    assert (before.state, after.state) == (GangState.WAITING, GangState.WAITING)
    away = QueuePolicy().away_seconds
    book.decide(held, NOW + 33 + away)
    assert book.records["team-a/small"].state is GangState.LEASED, "who does not come back keeps nothing"


def test_nothing_is_kept_for_a_gang_whose_place_was_refused():
    """It keeps its place in the queue, and others may have the units meanwhile."""
    book = a_book()
    book.open(a_gang(gpus=4), "client", NOW)
    book.decide(FULL, NOW)
    book.end("team-a/train", "node n1: UnexpectedAdmissionError", NOW + 2, has_run=False)
    book.open(a_gang(name="other", gpus=4), "client", NOW + 2)
    book.decide(FULL, NOW + 2)
    assert book.records["team-a/other"].state is GangState.LEASED


@given(
    tries=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 2), st.floats(0.1, 45), st.floats(0, 5)), min_size=1, max_size=60
    )
)
def test_whatever_launchers_do_a_wait_counts_from_the_first_try_and_memory_is_bounded(tries):
    """Launchers of six names make, wait, delete and make anew; never is one away for longer than places are kept."""
    policy = Policy(queue=QueuePolicy(places_per_namespace=12, place_kept_seconds=10_000.0))
    book = Book(Terms(term=1, prefix="t1-abc", opens_at=0.0, ended_kept_seconds=0.0), policy)
    first, now = {}, NOW
    for turn, (name, gpus, waits, pause) in enumerate(tries):
        gang = a_gang(name=f"g{name}", gpus=8 * gpus, request_id=f"r{turn}")
        asked = book.open(gang, "client", now).timeline.asked.at
        assert asked == first.setdefault((name, gpus), now)
        now += waits
        book.end(gang.full_name, "too slow", now)
        book.decide(FULL, now)
        now += pause
        assert len(book.places) <= 12
        assert len(book.records) <= len(first)


@given(names=st.lists(st.integers(0, 10_000), max_size=120), most=st.integers(1, 30))
def test_the_newest_places_of_a_namespace_are_kept(names, most):
    places = Places(QueuePolicy(places_per_namespace=most))
    for at, name in enumerate(names):
        places.keep(a_gang(name=f"g{name}"), at, NOW, NOW + at)
    newest = list(dict.fromkeys(reversed(names)))[:most]
    assert len(places) == len(newest)
    for name in newest:
        assert places.take(a_gang(name=f"g{name}"), NOW + len(names)) is not None
