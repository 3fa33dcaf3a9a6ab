"""A term's book: what clients and views make of gangs, leases and orphans."""

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core.book import Book
from admitter.core.register import Conflict
from admitter.model import nodecapacity
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.record import GangState, Terms
from muster.model.vocabulary import EndReason, WaitReason
from tests.admitter.clusters import GPU, NOW, a_gang, a_lease, a_node, a_resource, a_view

KEY = "team-a/train"


def a_book(*, opens_at=0.0, term=1, grace=60.0, patience=0.0):
    return Book(
        Terms(
            term=term,
            prefix=f"t{term}-abc",
            opens_at=opens_at,
            lease_grace_seconds=grace,
            replan_patience_seconds=patience,
        ),
        Policy(),
    )


def test_a_gang_is_leased_started_and_ended():
    book = a_book()
    book.open(a_gang(count=2), "client", NOW)
    book.decide(a_view(("n1", 1)), NOW)
    assert book.records[KEY].why.reason is WaitReason.NOT_ENOUGH_UNITS
    book.decide(a_view(("n1", 2)), NOW + 1)
    assert book.records[KEY].lease.id == "t1-abc-1"
    for uid in ("u1", "u2"):
        book.join(KEY, Member(podset="main", uid=uid, node="n1"), NOW + 2)
    book.decide(a_view(a_node("n1", a_resource(0, counted=[("u1", 1), ("u2", 1)]))), NOW + 3)
    assert book.records[KEY].state is GangState.STARTED
    book.end(KEY, "done", NOW + 4)
    assert book.leases() == {}
    kinds = [event.kind for event in book.events]
    assert kinds == ["opened", "waiting", "leased", "started", "ended"]


def test_the_same_request_attaches_again():
    book = a_book()
    first = book.open(a_gang(), "client", NOW)
    book.detach(KEY, NOW)
    again = book.open(a_gang(), "client", NOW + 1)
    assert (again.arrival, again.detached_at) == (first.arrival, None)


CONFLICTS = {
    "another client": (a_gang(), "thief", None),
    "another request of the same gang": (a_gang(request_id="r2"), "client", EndReason.DUPLICATE),
    "another content under the same request": (a_gang(count=9), "client", EndReason.INVALID_REQUEST),
}


@pytest.mark.parametrize(("gang", "owner", "reason"), CONFLICTS.values(), ids=CONFLICTS)
def test_conflicts(gang, owner, reason):
    book = a_book()
    book.open(a_gang(), "client", NOW)
    with pytest.raises(Conflict) as caught:
        book.open(gang, owner, NOW)
    assert caught.value.reason is reason


def test_an_ended_gang_can_be_asked_about_and_asked_for_again():
    book = a_book()
    book.open(a_gang(), "client", NOW)
    book.end(KEY, "", NOW)
    assert book.open(a_gang(), "client", NOW).state is GangState.ENDED
    assert book.open(a_gang(request_id="r2"), "client", NOW).state is GangState.WAITING
    book.end(KEY, "", NOW)
    book.decide(a_view(), NOW + 601)
    assert book.records == {}


@pytest.mark.parametrize("request_id", ["r1", "r2"], ids=["the same request", "another request"])
def test_the_name_of_a_gang_that_is_over_is_anybodys(request_id):
    book = a_book()
    book.open(a_gang(), "client", NOW)
    book.decide(a_view(("n1", 2)), NOW)
    book.end(KEY, "", NOW)
    record = book.open(a_gang(request_id=request_id, count=2), "another", NOW)
    assert (record.state, record.owner) == (GangState.WAITING, "another")
    book.decide(a_view(("n1", 2)), NOW)
    assert sum(lease.units for lease in book.leases()["n1"]) == 2
    with pytest.raises(Conflict):
        book.open(a_gang(), "client", NOW)


def test_a_bad_node_sends_an_unborn_gang_back_and_it_is_placed_elsewhere():
    book = a_book()
    book.open(a_gang(gpus=8), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.decide(a_view(("n1", 0), ("n2", 8)), NOW + 1)
    assert [place.node for place in book.records[KEY].lease.placements] == ["n2"]
    assert list(book.leases()) == ["n2"]


def test_a_gang_that_was_sent_back_is_answered_although_all_looks_as_before():
    book = a_book()
    book.open(a_gang(gpus=8), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.decide(a_view(("n1", 0)), NOW + 1)
    assert book.records[KEY].why.reason is WaitReason.NOT_ENOUGH_UNITS
    book.decide(a_view(("n1", 8)), NOW + 2)
    assert book.records[KEY].lease.id == "t1-abc-2"


def test_a_bad_node_never_takes_a_lease_from_a_pod():
    book = a_book()
    book.open(a_gang(gpus=8), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.join(KEY, Member(podset="main", uid="u1", node="n1"), NOW)
    book.decide(a_view(("n1", 0), ("n2", 8)), NOW + 1)
    assert [place.node for place in book.records[KEY].lease.placements] == ["n1"]


def test_a_lease_outlives_its_units_for_a_while():
    """The agent starts anew, then a GPU is lost for a moment: a client may be starting its pods all the time."""
    book = a_book(patience=15.0)
    book.open(a_gang(), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    for seconds, nodes in ((1, ()), (15, ()), (16, (("n1", 8),)), (17, (("n1", 0),)), (31, (("n1", 0),))):
        book.decide(a_view(*nodes), NOW + seconds)
        assert book.records[KEY].lease.id == "t1-abc-1"
    book.decide(a_view(("n1", 0)), NOW + 32)
    assert book.records[KEY].why.reason is WaitReason.NOT_ENOUGH_UNITS


def test_pods_that_nobody_reports_are_taken_for_the_gangs_own_as_long_as_its_client_is_awaited():
    book = a_book(grace=60.0, patience=15.0)
    book.open(a_gang(gpus=8), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    taken = a_view(a_node("n1", a_resource(0, counted=[("unknown", 8)])))
    for seconds in (1, 60, 61, 75):
        book.decide(taken, NOW + seconds)
        assert book.records[KEY].state is GangState.LEASED
    book.decide(taken, NOW + 76)
    assert book.records[KEY].state is GangState.WAITING


def test_a_client_that_stays_away_loses_its_lease():
    book = a_book()
    book.open(a_gang(), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.detach(KEY, NOW)
    book.decide(a_view(("n1", 8)), NOW + 60)
    assert list(book.leases()) == ["n1"]
    book.decide(a_view(("n1", 8)), NOW + 61)
    assert book.records[KEY].ending.reason is EndReason.CLIENT_GONE
    assert book.leases() == {}


def a_part(pods, **fields):
    return a_lease(pods, **{"gang": KEY, "request_id": "r1", "identifier": "t1-old-7"} | fields)


def reborn(*nodes, now=NOW, opens_at=NOW + 75):
    """A second term's book that has heard these nodes."""
    book = a_book(opens_at=opens_at, term=2)
    book.decide(a_view(*nodes), now)
    return book


def test_a_new_term_grants_nothing_before_it_opens():
    book = reborn(a_node("n1", 8, term=2))
    book.open(a_gang(), "client", NOW)
    book.decide(a_view(a_node("n1", 8, term=2)), NOW + 74)
    assert (book.records[KEY].why.reason, book.records[KEY].why.changes_at) == (WaitReason.NEW_TERM, NOW + 75)
    book.decide(a_view(a_node("n1", 8, term=2)), NOW + 75)
    assert book.records[KEY].state is GangState.LEASED


def test_a_new_term_gives_a_lease_back_at_once_when_it_is_whole():
    nodes = (a_node("n1", 8, leases=(a_part(2, uids=["u1"]),), term=2), a_node("n2", 8, leases=(a_part(1),), term=2))
    book = reborn(*nodes)
    assert {node: leases[0].id for node, leases in book.leases().items()} == {"n1": "t1-old-7", "n2": "t1-old-7"}
    book.open(a_gang(count=3), "client", NOW + 1)
    book.decide(a_view(*nodes), NOW + 1)
    record = book.records[KEY]
    assert (record.state, record.lease.id, record.lease.term) == (GangState.LEASED, "t1-old-7", 2)
    assert record.members == (Member(podset="main", uid="u1", node="n1"),)
    assert book.estate.orphans == {}


def test_a_lease_that_is_not_whole_waits_for_the_rest_and_is_planned_anew_when_nothing_exists():
    first = a_node("n1", 8, leases=(a_part(2),), term=2)
    book = reborn(first)
    book.open(a_gang(count=3), "client", NOW + 1)
    book.decide(a_view(first), NOW + 2)
    assert "not complete" in book.records[KEY].why.summary
    book.decide(a_view(first), NOW + 75)
    assert book.records[KEY].lease.id == "t2-abc-1"
    assert sum(lease.units for lease in book.leases()["n1"]) == 3


def test_a_lease_with_pods_that_is_not_whole_is_lost_never_doubled():
    first = a_node("n1", 8, leases=(a_part(2, uids=["u1"]),), term=2)
    book = reborn(first)
    book.open(a_gang(count=3), "client", NOW + 1)
    book.decide(a_view(first), NOW + 75)
    assert book.records[KEY].ending.reason is EndReason.LEASE_LOST


def test_a_lease_of_this_term_that_is_over_does_not_come_back():
    book = a_book()
    book.open(a_gang(), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    lease = book.leases()["n1"]
    book.end(KEY, "", NOW)
    book.decide(a_view(a_node("n1", 8, leases=lease)), NOW + 1)
    assert book.leases() == {}


def test_one_agent_that_invents_a_later_term_stands_alone():
    """It gets nothing to do, and the others are served."""
    book = a_book(term=2)
    book.open(a_gang(gpus=8), "client", NOW)
    liar = a_node("n1", 8, leases=(a_part(1, identifier="t99-x-1"),), lease_term=99, term=2)
    book.decide(a_view(liar, a_node("n2", 8, term=2), a_node("n3", 8, term=2)), NOW)
    assert book.estate.overtaken_by == 0
    assert [place.node for place in book.records[KEY].lease.placements] == ["n2"]


def test_an_agent_is_asked_for_leases_once_a_term():
    book = reborn(a_node("n1", 8, leases=(a_part(2),), term=2))
    later = a_node("n1", 8, leases=(a_part(2), a_part(1, identifier="t1-old-8")), term=2)
    book.decide(a_view(later), NOW + 1)
    assert list(book.estate.orphans) == ["t1-old-7"]


def test_an_invented_lease_does_not_hide_the_true_one():
    true = a_node("n1", 8, leases=(a_part(3),), term=2)
    liar = a_node("n2", 8, leases=(a_part(1, identifier="t1-evil-1", uids=["u1"]),), term=2)
    book = reborn(true, liar)
    book.open(a_gang(count=3), "client", NOW)
    book.decide(a_view(true, liar), NOW + 1)
    assert book.records[KEY].lease.id == "t1-old-7"


def test_a_lost_term_counter_is_noticed():
    """The state directory is gone; an agent knows a lease of the same term that this process never made."""
    book = a_book()
    book.open(a_gang(name="early"), "client", NOW)
    book.decide(a_view(a_node("n1", 8, leases=(a_part(1),), lease_term=1)), NOW)
    assert book.estate.overtaken_by == 1
    assert book.records["team-a/early"].state is GangState.WAITING
    book.renew(Terms(term=2, prefix="ignored", opens_at=NOW + 75))
    assert (book.terms.prefix, book.estate.overtaken_by) == ("t1-abc", 0)
    book.open(a_gang(name="other"), "client", NOW)
    book.decide(a_view(a_node("n1", 8, term=1)), NOW + 80)
    assert book.records["team-a/other"].why.reason is WaitReason.NO_SUCH_RESOURCE


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "end", "detach", "wait", "admit", "silence"]), st.integers(0, 3), st.integers(0, 8)
    ),
    max_size=25,
)


@hypothesis.given(STEPS)
def test_leases_never_exceed_what_the_node_admitted_when_they_were_made(steps):
    """Whatever clients do and nodes say: at the moment of a grant, every node has room for all that is leased on it."""
    book, now = a_book(), NOW
    units, silent = {"n0": 8, "n1": 4}, set()
    for step, index, amount in steps:
        name = f"g{index}"
        key = f"team-a/{name}"
        if step == "open" and key not in book.records:
            book.open(a_gang(name=name, count=amount + 1, gpus=1 + index % 2), "client", now)
        elif step in ("end", "detach") and key in book.records:
            book.end(key, "", now) if step == "end" else book.detach(key, now)
        elif step == "wait":
            now += amount * 10
        elif step == "admit":
            units[f"n{index % 2}"] = amount
        elif step == "silence":
            silent ^= {f"n{index % 2}"}
        nodes = [a_node(n, free, heard=now - 60 if n in silent else now) for n, free in units.items()]
        before = set(book.leases())
        view = a_view(*nodes, now=now)
        book.decide(view, now)
        for record in book.records.values():
            pods = sum(place.pods for place in record.lease.placements) if record.lease else record.gang.pods
            assert pods == record.gang.pods
        for node, leases in book.leases().items():
            assert node in before or node not in silent
            held = nodecapacity.outstanding(view.nodes[node].report.resources[GPU], leases, GPU)
            assert held <= units[node]


CLAIMS = st.lists(
    st.tuples(
        st.sampled_from(["n0", "n1"]),
        st.integers(0, 12),
        st.integers(0, 3),
        st.sampled_from(["r1", "r2", ""]),
        st.sampled_from(["t1-old-1", "t1-old-2", "t2-abc-1", "nonsense", ""]),
    ),
    max_size=5,
)


@hypothesis.given(CLAIMS, st.integers(1, 10))
def test_whatever_agents_claim_to_hold_nothing_is_granted_beyond_what_they_admit(claims, count):
    """Orphans, true or invented, only ever take units away, and a gang ends up with one lease at most."""
    units = {"n0": 8, "n1": 4}
    held = dict.fromkeys(units, ())
    for node, amount, per_pod, request_id, identifier in claims:
        part = a_part(amount, units_per_pod=per_pod, request_id=request_id, identifier=identifier)
        held[node] = (*held[node], part)
    view = a_view(*(a_node(name, free, leases=held[name], term=2) for name, free in units.items()))
    book = a_book(term=2)
    book.open(a_gang(count=count), "client", NOW)
    book.decide(view, NOW)
    lease = book.records[KEY].lease
    if lease is not None:
        assert sum(place.pods for place in lease.placements) == count
        for node in {place.node for place in lease.placements}:
            mine = sum(place.units for place in lease.placements if place.node == node)
            others = [one for one in book.leases()[node] if one.id != lease.id]
            taken = nodecapacity.outstanding(view.nodes[node].report.resources[GPU], others, GPU)
            assert mine <= max(0, units[node] - taken)


def test_while_admission_pauses_nothing_new_is_granted_and_leases_stand():
    book = a_book()
    book.open(a_gang(name="first"), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW)
    book.open(a_gang(name="second"), "client", NOW)
    book.decide(a_view(("n1", 8)), NOW + 1, paused_by="admission pauses: why")
    why = book.records["team-a/second"].why
    assert why.reason is WaitReason.BREAKER_HOLDING
    assert "admission pauses: why" in why.summary
    assert book.records["team-a/first"].state is GangState.LEASED
    book.decide(a_view(("n1", 8)), NOW + 2)
    assert book.records["team-a/second"].state is GangState.LEASED, "the same question is asked again after a pause"
