"""Leased units are subtracted until the node's own numbers contain the pod, once and no further."""

import pytest

from admitter.model import nodecapacity
from tests.admitter.clusters import GPU, a_lease, a_resource

CASES = {
    "nothing is there yet": ([], [a_lease(4)], 4),
    "a member is counted": ([("u1", 1)], [a_lease(4, uids=["u1"])], 3),
    "a member that is not counted": ([], [a_lease(4, uids=["u1"])], 4),
    "two gangs claim one pod": (
        [("u1", 1)],
        [a_lease(2, uids=["u1"]), a_lease(2, identifier="t1-x-2", uids=["u1"])],
        3,
    ),
    "a gang with a pod of its own claims another's": (
        [("u1", 8), ("u2", 8)],
        [
            a_lease(8, uids=["u1", "u2"], units_per_pod=8),
            a_lease(8, identifier="t1-x-2", uids=["u1"], units_per_pod=8),
        ],
        0,
    ),
    "a small place is claimed with a large gang's pod": (
        [("u1", 8)],
        [a_lease(1, uids=["u1"]), a_lease(8, identifier="t1-x-2", uids=["u1"], units_per_pod=8)],
        1,
    ),
    "a small pod is claimed for a large place": ([("u1", 1)], [a_lease(8, uids=["u1"], units_per_pod=8)], 7),
    "a large pod is claimed for a small place": ([("u1", 8)], [a_lease(2, uids=["u1"])], 1),
    "more pods than places": ([("u1", 1), ("u2", 1)], [a_lease(1, uids=["u1", "u2"])], 0),
}


@pytest.mark.parametrize(("counted", "leases", "expected"), CASES.values(), ids=CASES)
def test_outstanding(counted, leases, expected):
    assert nodecapacity.outstanding(a_resource(8, counted=counted), leases, GPU) == expected
