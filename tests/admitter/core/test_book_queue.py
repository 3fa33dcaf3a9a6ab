"""What the book tells the queue: strikes, and who says when it ends."""

from admitter.core.book import Book
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.record import GangState, Terms
from admitter.model.standing import Standing
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_node, a_resource, a_view, some_facts


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


def test_a_standing_lease_is_checked_against_what_others_take_beside_devices():
    """Two gangs have leases on one node; its cpus shrink to what one of them needs: the later one goes back, and one only."""
    book = Book(Terms(term=1, prefix="t1-abc", opens_at=0.0, replan_patience_seconds=5.0), Policy())
    for name in ("first", "second"):
        book.open(a_gang(name=name, gpus=2, requests={"cpu": 8000}), "client", NOW)
    book.decide(a_view(("n1", 8), facts={"n1": some_facts(cpu=16_000)}), NOW)
    assert [book.records[key].state for key in ("team-a/first", "team-a/second")] == [GangState.LEASED] * 2
    smaller = a_view(("n1", 8), facts={"n1": some_facts(cpu=12_000)})
    for second in range(8):
        book.decide(smaller, NOW + 1 + second)
    assert book.records["team-a/first"].state is GangState.LEASED
    assert book.records["team-a/second"].state is GangState.WAITING


def a_leader(term, *, lease=None):
    """The book of a leader that finds a gang of four running, which says that it ends 600 s after it began."""
    book = Book(Terms(term=term, prefix=f"t{term}-abc", opens_at=0.0), Policy())
    counted = a_resource(4, counted=[("u1", 4)])
    leases = () if lease is None else (lease,)
    node = a_node("n1", counted, leases=leases, lease_term=term - 1 if leases else 0, term=term)
    book.open(a_gang(name="runs", gpus=4, runtime=600.0), "gates", NOW)
    if lease is None:
        book.decide(a_view(a_node("n1", 8, term=term)), NOW)
    else:
        book.decide(a_view(node), NOW + 500)
    book.join("team-a/runs", Member(podset="main", uid="u1", node="n1", started_at=NOW), NOW)
    return book, a_view(node)


def test_a_new_leader_lets_nobody_pass_whom_the_old_one_would_not_have_let_pass():
    """The head's start is NOW + 600 for both leaders: at NOW + 500 a gang of 300 s would delay it."""
    old, view = a_leader(1)
    old.decide(view, NOW)
    lease = old.leases()["n1"][0]
    for book, found in ((old, view), a_leader(2, lease=lease)):
        # Its pods were made long ago; the short gang's a moment ago. In whichever order they are found again.
        book.open(a_gang(name="a-short", gpus=4, runtime=1.0, priority=0), "gates", NOW + 500, NOW + 499)
        book.open(a_gang(name="short", gpus=4, runtime=300.0), "gates", NOW + 500, NOW + 400)
        book.open(a_gang(name="head", gpus=8), "gates", NOW + 500, NOW + 10)
        book.decide(found, NOW + 500)
        assert book.records["team-a/runs"].state is GangState.STARTED
        assert book.records["team-a/head"].why.position == 1
        assert book.records["team-a/head"].why.changes_at == NOW + 600
        assert book.records["team-a/short"].why.reason is WaitReason.BEHIND_OTHERS
        assert book.records["team-a/a-short"].state is GangState.WAITING, (
            "a cold start included it does not end in time"
        )


def test_an_overrun_is_known_to_the_next_leader_while_it_lasts():
    old, view = a_leader(1)
    old.decide(view, NOW)
    lease = old.leases()["n1"][0]
    new, found = a_leader(2, lease=lease)
    new.open(a_gang(name="head", gpus=8), "gates", NOW + 700)
    new.decide(found, NOW + 700)
    assert new.records["team-a/head"].why.changes_at is None, "nobody knows when it ends"
