"""A new term takes over what agents hold, grants nothing early and nothing twice."""

import pytest

from admitter.core import recover
from tests.admitter.clusters import a_gang, a_lease

GANG = a_gang(count=4, gpus=2)


def a_part(pods, **fields):
    return a_lease(
        pods * 2, **{"units_per_pod": 2, "gang": "team-a/train", "request_id": "r1", "identifier": "t1-x-7"} | fields
    )


def orphan_of(**parts):
    orphans = {}
    for node, leases in parts.items():
        orphans = recover.heard(orphans, node, leases, 50.0)
    return recover.claimed(orphans, GANG)


WHOLE = orphan_of(n1=(a_part(3),), n2=(a_part(1),))
HALF = orphan_of(n1=(a_part(3),))
LIVING_HALF = orphan_of(n1=(a_part(3, uids=["u1"]),))

FATES = {
    "every place was heard of": (WHOLE, False, False, True, recover.Fate.ADOPT),
    "all pods run": (HALF, True, True, False, recover.Fate.ADOPT),
    "all pods run, nobody knows of a lease": (None, True, True, False, recover.Fate.ADOPT),
    "a place is missing, there is time": (HALF, False, False, True, recover.Fate.WAIT),
    "nothing was heard where its pods are": (None, True, False, True, recover.Fate.WAIT),
    "a place is missing for good, nothing exists": (HALF, False, False, False, recover.Fate.REPLAN),
    "a place is missing for good, a pod exists there": (LIVING_HALF, False, False, False, recover.Fate.LOST),
    "a place is missing for good, the client has pods": (HALF, True, False, False, recover.Fate.LOST),
}


@pytest.mark.parametrize(
    ("orphan", "has_members", "is_running", "may_hear_more", "expected"), FATES.values(), ids=FATES
)
def test_fate(orphan, has_members, is_running, may_hear_more, expected):
    fate = recover.fate(GANG, orphan, has_members=has_members, is_running=is_running, may_hear_more=may_hear_more)
    assert fate is expected


def test_what_a_lease_waits_for_is_named_within_bounds():
    why = recover.incomplete(GANG, HALF, {f"n{index}" for index in range(8)}, 100.0)
    assert "pods on n0, n1, n2, n3, n4 and 3 more, not heard in this term" in why.summary
    assert "its lease t1-x-7 is not complete: 1 nodes heard" in why.summary
    assert why.changes_at is None
    assert recover.incomplete(GANG, HALF, set(), 100.0).changes_at == 100.0


def test_the_lease_keeps_its_id_and_places():
    lease = recover.lease(WHOLE, term=2, version=9)
    assert (lease.id, lease.term) == ("t1-x-7", 2)
    assert [(place.node, place.pods, place.units) for place in lease.placements] == [("n1", 3, 6), ("n2", 1, 2)]


@pytest.mark.parametrize(
    "part",
    [
        a_part(4, units_per_pod=1),
        a_part(4, units_per_pod=0),
        a_lease(3, units_per_pod=2, gang="team-a/train", request_id="r1"),
    ],
)
def test_a_lease_of_another_shape_is_not_the_gangs(part):
    assert not recover.is_whole(GANG, orphan_of(n1=(part,)))


def test_another_request_does_not_get_the_lease():
    orphans = recover.heard({}, "n1", (a_part(4, request_id="r0"),), 50.0)
    assert recover.claimed(orphans, GANG) is None


def test_a_node_that_contradicts_the_others_is_not_heard():
    orphans = recover.heard({}, "n1", (a_part(4),), 50.0)
    orphans = recover.heard(orphans, "n2", (a_part(4, gang="team-b/thief"),), 51.0)
    assert list(orphans["t1-x-7"].parts) == ["n1"]


def test_a_first_term_has_nobody_to_wait_for():
    assert recover.opens_at(100.0, 75.0, is_first_term=True) == 100.0
    assert recover.opens_at(100.0, 75.0, is_first_term=False) == 175.0


def test_an_orphan_lives_as_long_as_a_lease_without_its_client():
    assert not recover.is_expired(WHOLE, now=100.0, opens=125.0, lease_grace_seconds=40)
    assert not recover.is_expired(WHOLE, now=126.0, opens=125.0, lease_grace_seconds=80)
    assert recover.is_expired(WHOLE, now=131.0, opens=125.0, lease_grace_seconds=80)
