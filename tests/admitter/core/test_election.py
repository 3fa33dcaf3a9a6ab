"""The election's rules, by any interleaving of candidates, clocks and a store that refuses stale writes."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from admitter.core.election import SHARE, Candidate, Lease, Move

SECONDS = 15.0


class Store:
    """One Lease under optimistic concurrency."""

    def __init__(self):
        self.lease, self.version = None, 0

    def write(self, holder, term, seen):
        known = self.lease.version if self.lease is not None else ""
        if known != seen:
            return None
        self.version += 1
        self.lease = Lease(
            version=str(self.version), holder=holder, term=term, seconds=SECONDS, renewed=str(self.version)
        )
        return self.lease


def turn(candidate, store, now, *, above=0):
    """One turn of the elector: read, decide, write."""
    candidate = candidate.saw(store.lease, now)
    move = candidate.next(now, above)
    if move is Move.WAIT:
        return candidate
    term = candidate.term if move is Move.RENEW else candidate.next_term(above)
    seen = candidate.sight.lease.version if candidate.sight.lease is not None else ""
    written = store.write(candidate.identity, term, seen)
    return candidate if written is None else candidate.wrote(written, now)


def a_candidate(name="a_1"):
    return Candidate(identity=name, seconds=SECONDS)


TURNS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 12), st.sampled_from(["turn", "turn", "turn", "delete", "give back"])),
    max_size=60,
)


@given(TURNS)
def test_never_two_leaders_and_every_term_is_higher(turns):
    """Deleting the Lease is an administrator's act; terms stay above what each candidate has led in."""
    store, now = Store(), 0.0
    candidates = [a_candidate(f"{name}_1") for name in "abc"]
    begun, was_deleted = [], False
    for index, pause, what in turns:
        now += pause
        if what == "delete":
            store.lease, was_deleted = None, True
            continue
        if what == "give back" and store.lease is not None:
            store.write("", store.lease.term, store.lease.version)
            continue
        before = candidates[index].leadership(now).term
        candidates[index] = turn(candidates[index], store, now)
        after = candidates[index].leadership(now).term
        if after and after != before:
            begun.append(after)
        if not was_deleted and what == "turn":
            leading = [each for each in candidates if each.saw(store.lease, now).leadership(now).term]
            assert len(leading) <= 1
    if not was_deleted:
        assert begun == sorted(set(begun))


def test_a_leader_stops_before_anybody_may_take_over():
    store = Store()
    leader = turn(a_candidate("a_1"), store, 0.0)
    other = a_candidate("b_1").saw(store.lease, 0.0)
    assert leader.leadership(SHARE * SECONDS - 0.01).term == 1
    assert leader.leadership(SHARE * SECONDS).term == 0
    assert other.next(SECONDS) is Move.WAIT
    assert other.next(SECONDS + 0.01) is Move.TAKE


def test_a_lease_that_was_given_back_is_taken_at_once_in_the_next_term():
    store = Store()
    turn(a_candidate("a_1"), store, 0.0)
    store.write("", 1, store.lease.version)
    other = turn(a_candidate("b_1"), store, 0.1)
    assert other.leadership(0.1).term == 2
    assert other.leadership(0.1).leader == "b"


def test_a_process_that_starts_anew_does_not_inherit_its_names_lease():
    store = Store()
    turn(a_candidate("a_1"), store, 0.0)
    assert a_candidate("a_2").saw(store.lease, 1.0).next(1.0) is Move.WAIT


def test_a_leadership_that_ran_out_comes_back_as_a_new_term():
    """The Lease still names it: nobody else has led, and still the old term is over."""
    store = Store()
    leader = turn(a_candidate(), store, 0.0)
    leader = turn(leader, store, SECONDS)
    assert leader.leadership(SECONDS).term == 2


def test_a_term_that_agents_have_heard_of_is_exceeded():
    store = Store()
    leader = turn(a_candidate(), store, 0.0)
    leader = turn(leader, store, 1.0, above=7)
    assert leader.leadership(1.0).term == 8


def test_a_deleted_lease_ends_the_leadership_as_soon_as_it_is_seen():
    store = Store()
    leader = turn(a_candidate(), store, 0.0)
    assert leader.saw(None, 1.0).leadership(1.0).term == 0
    assert leader.saw(None, 1.0).next_term() == 2


def test_a_renewal_whose_answer_was_lost_is_no_other_leaders():
    store = Store()
    leader = turn(a_candidate(), store, 0.0)
    store.write(leader.identity, 1, store.lease.version)
    seen = leader.saw(store.lease, 2.0)
    assert (seen.next(2.0), seen.leadership(2.0).term) == (Move.RENEW, 1)


def test_a_lease_without_a_duration_is_held_for_ours():
    lease = Lease(version="1", holder="b_1", term=1, seconds=0.0)
    candidate = dataclasses.replace(a_candidate().saw(lease, 0.0))
    assert (candidate.next(14.0), candidate.next(15.1)) == (Move.WAIT, Move.TAKE)
