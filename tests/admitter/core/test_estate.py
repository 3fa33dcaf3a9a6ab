"""What earlier terms left is heard once, and what is over stays over."""

from admitter.core.estate import Estate
from tests.admitter.clusters import NOW, a_lease, a_node, a_view

OLD = a_lease(2, identifier="t1-old-1")


def hear(estate, *nodes, held=frozenset(), term=2):
    estate.hear(a_view(*nodes), term, held, NOW)


def an_estate():
    return Estate("t2-abc", [])


def test_a_foreign_lease_is_an_orphan_once():
    events = []
    estate = Estate("t2-abc", events)
    for _ in range(2):
        hear(estate, a_node("n1", leases=(OLD,)), a_node("n2", leases=(OLD,)))
    assert sorted(estate.orphans["t1-old-1"].parts) == ["n1", "n2"]
    assert [(event.kind, event.lease_id) for event in events] == [("orphan-heard", "t1-old-1")]


def test_our_own_and_held_leases_are_no_orphans():
    estate = an_estate()
    hear(estate, a_node("n1", leases=(a_lease(identifier="t2-abc-5"), OLD)), held={"t1-old-1"})
    assert estate.orphans == {}


def test_what_was_released_does_not_come_back():
    estate = an_estate()
    hear(estate, a_node("n1", leases=(OLD,)))
    estate.release(estate.orphans["t1-old-1"], "adopt")
    hear(estate, a_node("n2", leases=(OLD,)))
    assert estate.orphans == {}


def test_a_term_after_ours_gives_a_lost_counter_away():
    estate = an_estate()
    hear(estate, a_node("n1", lease_term=7))
    assert estate.overtaken_by == 7
    estate.listen_anew()
    assert estate.overtaken_by == 0


def test_an_orphan_that_we_told_an_agent_of_gives_nothing_away():
    """The agent's next Snapshot carries the orphan under our own term."""
    estate = an_estate()
    hear(estate, a_node("n1", leases=(OLD,), lease_term=1))
    hear(estate, a_node("n1", leases=(a_lease(2, identifier="t1-old-1"),), lease_term=2))
    assert estate.overtaken_by == 0
    hear(estate, a_node("n2", leases=(a_lease(2, identifier="t2-other-1"),), lease_term=2))
    assert estate.overtaken_by == 2
