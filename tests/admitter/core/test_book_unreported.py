"""Leases on what no agent reports: the API server's arithmetic, less what is leased and not bound yet."""

import dataclasses

import pytest

from admitter.core import offers
from admitter.core.book import Book
from admitter.model.decision import Policy
from admitter.model.gang import Member, ResourceRequest
from admitter.model.nodefacts import BoundPod
from admitter.model.record import GangState, Terms
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import NOW, a_gang, a_lease, a_node, a_podset, a_view, some_facts

NPU = "example.com/npu"
FIRST, SECOND = "team-a/first", "team-a/second"


def bound(*uids, units=2):
    return {uid: BoundPod(namespace="team-a", requests={NPU: units, "cpu": 1000}) for uid in uids}


def npus(pods=None, *, nodes=("n1",), first=4, **fields):
    """A view of nodes with four units each; `pods` are bound to the first of them. Their agents report GPUs alone."""
    pods = pods or {}
    facts = {name: some_facts() for name in nodes}
    facts = {name: dataclasses.replace(each, allocatable={**each.allocatable, NPU: 4}) for name, each in facts.items()}
    facts[nodes[0]] = dataclasses.replace(facts[nodes[0]], allocatable={"cpu": 64_000, "pods": 110, NPU: first})
    taken = sum(pod.requests[NPU] for pod in pods.values())
    facts[nodes[0]] = dataclasses.replace(facts[nodes[0]], requested={NPU: taken, "pods": len(pods)}, counted=pods)
    return a_view(*(a_node(name, 8, **fields) for name in nodes), facts=facts)


def asked(name, count=2, units=2):
    return a_gang(a_podset(count=count, request=ResourceRequest(name=NPU, quantity=units)), name=name)


def a_book(term=1, patience=0.0):
    return Book(Terms(term=term, prefix=f"t{term}-a", opens_at=0.0, replan_patience_seconds=patience), Policy())


def leased():
    """A book whose first gang has all there is, and whose second one waits."""
    book = a_book()
    book.open(asked("first"), "client", NOW)
    book.open(asked("second"), "client", NOW)
    book.decide(npus(), NOW)
    return book


def states(book):
    return book.records[FIRST].state, book.records[SECOND].state


def test_two_gangs_do_not_get_the_same_units_before_their_pods_are_bound():
    book = leased()
    for second in range(3):
        book.decide(npus(), NOW + second)
        assert states(book) == (GangState.LEASED, GangState.WAITING)
    assert book.records[SECOND].why.reason is WaitReason.NOT_ENOUGH_UNITS
    assert book.records[SECOND].why.available_units == 0


def test_a_gang_is_seen_started_and_its_units_are_given_on_when_it_is_over():
    book = leased()
    book.decide(npus(bound("u1")), NOW + 1)
    assert states(book) == (GangState.LEASED, GangState.WAITING), "a pod that is bound and not reported yet is its own"
    for uid in ("u1", "u2"):
        book.join(FIRST, Member(podset="main", uid=uid, node="n1"), NOW + 2)
    book.decide(npus(bound("u1")), NOW + 2)
    assert states(book) == (GangState.LEASED, GangState.WAITING)
    book.decide(npus(bound("u1", "u2")), NOW + 3)
    assert states(book) == (GangState.STARTED, GangState.WAITING)
    book.end(FIRST, "done", NOW + 4)
    book.decide(npus(bound("u1", "u2")), NOW + 4)
    assert states(book) == (GangState.ENDED, GangState.WAITING), "its pods are still there"
    book.decide(npus(), NOW + 5)
    assert states(book) == (GangState.ENDED, GangState.LEASED)


def test_a_smaller_pod_of_it_leaves_the_rest_of_its_place_leased():
    book = leased()
    for uid in ("u1", "u2"):
        book.join(FIRST, Member(podset="main", uid=uid, node="n1"), NOW)
    view = npus(bound("u1", "u2", units=1))
    supply = offers.of_view(view, book.leases(), Policy())
    assert supply.nodes["n1"].rest[NPU] == 0


def test_a_node_that_loses_the_units_sends_an_unborn_gang_elsewhere():
    book = a_book()
    book.open(asked("first"), "client", NOW)
    book.decide(npus(), NOW)
    book.decide(npus(nodes=("n1", "n2"), first=2), NOW + 1)
    assert list(book.leases()) == ["n2"]


def test_a_pod_that_was_there_before_the_lease_is_not_the_gangs():
    book = a_book()
    book.open(asked("first", count=1), "client", NOW)
    book.decide(npus(bound("old")), NOW)
    assert list(book.leases()) == ["n1"]
    book.decide(npus(bound("old"), first=2), NOW + 1)
    assert book.leases() == {}


@pytest.mark.parametrize(("uids", "free"), [((), 0), (("u1",), 0), (("u1", "u2"), 0)])
def test_a_lease_of_an_earlier_term_is_subtracted_too(uids, free):
    lease = a_lease(4, resource=NPU, units_per_pod=2, uids=uids, request_id="r1")
    view = npus(bound(*uids), leases=(lease,), term=2)
    book = a_book(2)
    book.open(asked("second"), "client", NOW)
    book.decide(view, NOW)
    assert book.records[SECOND].why.available_units == free


def test_a_gang_that_runs_is_taken_over_by_what_its_pods_asked_for():
    book = a_book()
    book.open(asked("first"), "client", NOW)
    for uid in ("u1", "u2"):
        book.join(FIRST, Member(podset="main", uid=uid, node="n1"), NOW)
    book.decide(npus(bound("u1", "u2", units=1)), NOW)
    assert book.records[FIRST].state is GangState.WAITING, "they asked for less"
    book.decide(npus(bound("u1", "u2")), NOW + 1)
    assert book.records[FIRST].state is GangState.STARTED
