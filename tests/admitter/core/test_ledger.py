"""The ledger says what the records say, however they came to be so."""

import dataclasses

import hypothesis
from hypothesis import strategies as st

from admitter.core import holdings, lifecycle
from admitter.core.ledger import Ledger, claims_of
from admitter.model.gang import Member
from admitter.model.lease import Lease, Placement
from admitter.model.queue import Holding, QueuePolicy
from admitter.model.record import node_leases
from muster.model.reading import Known
from tests.admitter.clusters import GPU, NOW, a_gang

POLICY = QueuePolicy(start_seconds=300, overrun_grace_seconds=60)


def a_record(name, nodes=(), members=()):
    record = lifecycle.opened(a_gang(name=name, count=4, runtime=600.0, requests={"cpu": 7}), "client", 1, NOW)
    if not nodes:
        return record
    places = tuple(Placement(podset="main", node=node, resource=GPU, pods=1, units_per_pod=1) for node in nodes)
    lease = Lease(id=f"t1-{name}", term=1, snapshot_version=1, placements=places)
    told = tuple(Member(podset="main", uid=f"{name}-{node}", node=node) for node in members)
    return dataclasses.replace(lifecycle.adopted(record, lease, NOW), members=told)


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True, max_size=3),
        st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True, max_size=2),
        st.booleans(),
    ),
    max_size=12,
)


@hypothesis.given(STEPS)
def test_it_says_what_the_records_say(steps):
    ledger, records = Ledger(), {}
    for name, nodes, members, stays in steps:
        record = a_record(name, nodes, members)
        if stays:
            records[record.key] = record
        else:
            records.pop(record.key, None)
        ledger.sync(records)
        leases, claims = {}, {}
        for each in records.values():
            for node, parts in node_leases(each).items():
                leases.setdefault(node, []).extend(parts)
            for node, parts in claims_of(each).items():
                claims.setdefault(node, []).extend(parts)
        assert {node: sorted(parts, key=str) for node, parts in ledger.leases.items()} == {
            node: sorted(parts, key=str) for node, parts in leases.items()
        }
        assert {node: sorted(parts, key=str) for node, parts in ledger.claims.items()} == {
            node: sorted(parts, key=str) for node, parts in claims.items()
        }
        assert [held.gang.full_name for held in ledger.holdings] == [
            key for key, each in records.items() if each.lease is not None
        ]


def test_nodes_that_nothing_happened_to_keep_their_tuple():
    ledger = Ledger()
    one, two = a_record("a", ["n1"]), a_record("b", ["n2"])
    ledger.sync({one.key: one})
    before = ledger.leases["n1"]
    ledger.sync({one.key: one, two.key: two})
    assert ledger.leases["n1"] is before
    held = ledger.holdings
    seen = dataclasses.replace(two, detached_at=NOW)
    ledger.sync({one.key: one, two.key: seen})
    assert ledger.holdings is held


def held(started_at=None, runtime=600.0):
    return Holding(gang=a_gang(), placements=(), since=NOW, started_at=started_at, runtime_seconds=runtime)


def test_an_end_is_the_gangs_own_word_and_only_while_it_keeps_it():
    assert holdings.end(held(runtime=None), POLICY, NOW) is holdings.NO_DECLARED_END
    assert holdings.end(held(), POLICY, NOW) == Known(NOW + 900)
    assert holdings.end(held(NOW - 100), POLICY, NOW) == Known(NOW + 500)
    assert holdings.end(held(NOW - 660), POLICY, NOW) == Known(NOW)
    assert holdings.end(held(NOW - 661), POLICY, NOW) is holdings.OVERRUN
