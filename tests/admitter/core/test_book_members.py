"""What pods, real or invented, do to a gang's lease: they keep it, they never double it."""

import pytest

from admitter.core.book import Book
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.record import GangState, Terms
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_lease, a_node, a_resource, a_view

KEY, OTHER = "team-a/train", "team-a/other"


def a_book(*, term=1, opens_at=0.0):
    return Book(Terms(term=term, prefix=f"t{term}-abc", opens_at=opens_at, replan_patience_seconds=0.0), Policy())


def leased(*nodes, **gang):
    """A book whose one gang has its lease on these nodes."""
    book = a_book()
    book.open(a_gang(**gang), "client", NOW)
    book.decide(a_view(*nodes), NOW)
    assert book.records[KEY].state is GangState.LEASED
    return book


def join(book, *pods):
    for uid, node in pods:
        book.join(KEY, Member(podset="main", uid=uid, node=node), NOW)


def running(name, free, *uids, units=1, **fields):
    return a_node(name, a_resource(free, counted=[(uid, units) for uid in uids]), **fields)


def places(book):
    return {place.node: place.units for place in book.records[KEY].lease.placements}


def test_a_member_elsewhere_counts_where_its_agent_sees_it_and_its_place_is_released():
    book = leased(("n1", 2), count=2)
    join(book, ("u1", "n1"), ("u2", "n9"))
    book.decide(a_view(running("n1", 1, "u1")), NOW + 1)
    assert (book.records[KEY].state, places(book)) == (GangState.LEASED, {"n1": 2})
    book.decide(a_view(running("n1", 1, "u1"), running("n9", 7, "u2")), NOW + 2)
    assert (book.records[KEY].state, places(book)) == (GangState.STARTED, {"n1": 1})


def test_a_uid_reported_twice_is_one_pod():
    book = leased(("n1", 2), count=2)
    join(book, ("u1", "n1"), ("u1", "n1"))
    book.decide(a_view(running("n1", 1, "u1")), NOW + 1)
    assert book.records[KEY].state is GangState.LEASED
    assert book.leases()["n1"][0].pod_uids == ("u1",)


def test_more_members_than_pods_hold_no_more_than_the_lease():
    """Pods that were replaced: the old UIDs are still reported, and nobody counts them."""
    book = leased(("n1", 8), count=2)
    join(book, *((f"u{index}", "n1") for index in range(5)))
    book.decide(a_view(running("n1", 6, "u3", "u4")), NOW + 1)
    assert (book.records[KEY].state, places(book)) == (GangState.STARTED, {"n1": 2})
    book.open(a_gang(name="other", count=7), "client", NOW)
    book.decide(a_view(running("n1", 6, "u3", "u4")), NOW + 2)
    assert book.records[OTHER].why.available_units == 6


DARK = {
    "blind": (a_node("n1", a_resource(None)), WaitReason.NODES_BLIND),
    "stale": (a_node("n1", 8, heard=NOW - 16), WaitReason.NODES_STALE),
}


@pytest.mark.parametrize(("node", "reason"), DARK.values(), ids=DARK)
def test_a_node_that_goes_dark_before_the_start_keeps_its_lease_for_the_pods_on_it(node, reason):
    book = leased(("n1", 8), gpus=8)
    join(book, ("u1", "n1"))
    book.open(a_gang(name="other", gpus=8), "client", NOW)
    for view in (a_view(node), a_view(("n1", 8))):
        book.decide(view, NOW + 20)
        assert (book.records[KEY].state, places(book)) == (GangState.LEASED, {"n1": 8})
        assert book.records[OTHER].state is GangState.WAITING
        if view.nodes["n1"] is node:
            assert book.records[OTHER].why.reason is reason
    assert "8 leased" in book.records[OTHER].why.summary
    book.decide(a_view(running("n1", 0, "u1", units=8)), NOW + 21)
    assert book.records[KEY].state is GangState.STARTED


def reborn(*nodes, **gang):
    """The second term's book, open already; the client has come back with its pods, and these nodes were heard."""
    book = a_book(term=2, opens_at=NOW - 1)
    book.open(a_gang(**gang), "client", NOW)
    join(book, *((f"u{index}", f"n{index}") for index in (1, 2)))
    book.decide(a_view(*nodes), NOW)
    return book


def a_part(uid, units=1):
    return a_lease(units, gang=KEY, request_id="r1", identifier="t1-old-7", uids=[uid])


def test_pods_on_a_node_that_is_late_get_no_second_place():
    """The term is open and there is room, but n2 may still say that it holds the lease."""
    first = running("n1", 7, "u1", leases=(a_part("u1"),), term=2)
    for nodes in ((), (first,)):
        book = reborn(*nodes, a_node("n3", 8, term=2), count=2)
        assert book.records[KEY].why.reason is WaitReason.NEW_TERM
        assert "pods on " in book.records[KEY].why.summary
        assert "n2, not heard in this term" in book.records[KEY].why.summary
        book.decide(a_view(first, running("n2", 7, "u2", leases=(a_part("u2"),), term=2)), NOW + 30)
        assert book.records[KEY].state is GangState.STARTED
        assert (book.records[KEY].lease.id, places(book)) == ("t1-old-7", {"n1": 1, "n2": 1})


def test_a_gang_that_runs_has_started_though_a_part_of_its_lease_is_forgotten():
    """A pod went elsewhere, or an agent was killed together with the admitter: its units are counted all the same."""
    for first in ((a_part("u1"),), ()):
        nodes = (running("n1", 0, "u1", leases=first, term=2), running("n2", 0, "u2", term=2))
        book = reborn(*nodes, a_node("n3", 8, term=2), count=2)
        assert book.records[KEY].state is GangState.STARTED
        assert places(book) == {"n1": 1, "n2": 1}, "whoever waits for it knows where it runs"
        assert [event.kind for event in book.events][-2:] == ["adopted", "started"]


def test_an_orphan_outlives_its_client_while_its_pods_have_devices():
    node = running("n1", 6, "u1", leases=(a_part("u1", 2),), term=2)
    book = a_book(term=2)
    for seconds in (0, 61, 3600):
        book.decide(a_view(node), NOW + seconds)
        assert [lease.id for lease in book.leases()["n1"]] == ["t1-old-7"]
    book.decide(a_view(a_node("n1", 8, term=2)), NOW + 3601)
    assert book.leases() == {}
