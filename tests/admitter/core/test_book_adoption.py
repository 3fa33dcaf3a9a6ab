"""What a client says of pods takes no unit from anybody: a gang is taken over only for pods that have what it asks for."""

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core.book import Book
from admitter.model import nodecapacity
from admitter.model.decision import Policy
from admitter.model.gang import Member, MigRequest, ResourceRequest
from admitter.model.nodefacts import BoundPod
from admitter.model.record import GangState, Terms
from tests.admitter.clusters import GPU, NOW, a_gang, a_lease, a_node, a_podset, a_resource, a_view, some_facts

KEY = "team-a/train"
MIG = "nvidia.com/mig-3g.40gb"
NIC = "example.com/nic"


def a_book(term=1):
    return Book(Terms(term=term, prefix=f"t{term}-abc", opens_at=0.0, replan_patience_seconds=0.0), Policy())


def coming(view, *pods, gang=None, book=None, **shape):
    """A book in which a gang has just come with these pods (UID, node), after one pass."""
    book = book or a_book()
    gang = gang or a_gang(**shape)
    book.open(gang, "client", NOW)
    for uid, node in pods:
        book.join(gang.full_name, Member(podset="main", uid=uid, node=node), NOW)
    book.decide(view, NOW)
    return book


def running(name, free, *pods, resource=GPU, **fields):
    """A node with so many units free, on which these pods (UID, units) are counted."""
    return a_node(name, {resource: a_resource(free, counted=pods)}, **fields)


def test_pods_smaller_than_the_gang_asks_for_are_no_reason_to_lease_the_rest():
    """Fourteen units would be leased that nobody has, on two nodes that admit seven each."""
    view = a_view(running("n1", 7, ("u1", 1)), running("n2", 7, ("u2", 1)))
    book = coming(view, ("u1", "n1"), ("u2", "n2"), count=2, gpus=8)
    assert (book.records[KEY].state, book.leases()) == (GangState.WAITING, {})
    assert nodecapacity.admissible(view, "n1", GPU, book.leases().get("n1", ())) == 7


def test_no_more_places_are_taken_over_than_the_gang_has_pods():
    view = a_view(running("n1", 5, ("u1", 1), ("u2", 1), ("u3", 1)))
    book = coming(view, ("u1", "n1"), ("u2", "n1"), ("u3", "n1"), count=2)
    assert book.records[KEY].state is GangState.STARTED
    assert [lease.units for lease in book.leases()["n1"]] == [2]


def test_a_pod_that_two_gangs_speak_for_takes_neither_of_them_over():
    view = a_view(running("n1", 0, ("u1", 8)))
    book = a_book()
    for name in ("train", "thief"):
        book.open(a_gang(name=name, gpus=8), f"client-{name}", NOW)
        book.join(f"team-a/{name}", Member(podset="main", uid="u1", node="n1"), NOW)
    book.decide(view, NOW)
    assert {record.state for record in book.records.values()} == {GangState.WAITING}
    book.end("team-a/thief", "", NOW)
    book.decide(view, NOW + 1)
    assert book.records[KEY].state is GangState.STARTED


@pytest.mark.parametrize("orphans_gang", ["team-a/other", KEY], ids=["another gang", "an earlier request"])
def test_a_pod_of_a_lease_whose_client_is_still_away_is_that_leases(orphans_gang):
    lease = a_lease(8, units_per_pod=8, gang=orphans_gang, request_id="r0", uids=["u1"])
    view = a_view(running("n1", 0, ("u1", 8), leases=(lease,), term=2))
    book = coming(view, ("u1", "n1"), gpus=8, book=a_book(2))
    assert book.records[KEY].state is GangState.WAITING
    assert [each.id for each in book.leases()["n1"]] == [lease.id]


SIGHTS = {
    "it is of the gang's namespace": ({"u1": BoundPod(namespace="team-a")}, GangState.STARTED),
    "it is another namespace's": ({"u1": BoundPod(namespace="team-b")}, GangState.WAITING),
    "nobody has bound it there": ({}, GangState.WAITING),
}


@pytest.mark.parametrize(("bound", "state"), SIGHTS.values(), ids=SIGHTS)
def test_where_there_is_an_api_server_it_says_whose_namespace_a_pod_is_of(bound, state):
    view = a_view(running("n1", 0, ("u1", 8)), facts={"n1": some_facts(counted=bound)})
    assert coming(view, ("u1", "n1"), gpus=8).records[KEY].state is state


RESOURCES = {
    "whole GPUs are not another resource's units": (None, NIC, GangState.WAITING),
    "a MIG instance is as large as its name says": (MigRequest(compute_slices=3, min_memory_bytes=0), MIG, "started"),
    "a small instance is no large one": (MigRequest(compute_slices=4, min_memory_bytes=0), MIG, GangState.WAITING),
    "a GPU that is not cut is no instance": (MigRequest(compute_slices=1, min_memory_bytes=0), GPU, GangState.WAITING),
    "a resource that is asked for by name": (ResourceRequest(name=NIC, quantity=1), NIC, GangState.STARTED),
}


@pytest.mark.parametrize(("request_", "resource", "state"), RESOURCES.values(), ids=RESOURCES)
def test_only_units_of_what_the_gang_asks_for_count(request_, resource, state):
    view = a_view(running("n1", 0, ("u1", 1), resource=resource))
    book = coming(view, ("u1", "n1"), gang=a_gang(a_podset(request=request_)))
    assert book.records[KEY].state == state
    assert [lease.resource for lease in book.leases().get("n1", ())] == ([resource] if state == "started" else [])


PODS = st.lists(
    st.tuples(st.sampled_from(["n0", "n1"]), st.sampled_from([1, 2, 4]), st.sampled_from(["team-a", "team-b"])),
    min_size=1,
    max_size=6,
)
COMING = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from([1, 2, 4, 8]),
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from([True, True, True, False])), min_size=1, max_size=4),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
ORPHANS = st.lists(st.tuples(st.sampled_from(["n0", "n1"]), st.integers(0, 3), st.sampled_from([1, 2])), max_size=2)


@hypothesis.example([("n0", 1, "team-a")], [(1, 8, [(0, True)], False)], [], True, range(6))
@hypothesis.given(PODS, COMING, ORPHANS, st.booleans(), st.permutations(range(6)))
def test_across_a_takeover_nothing_is_leased_beyond_what_the_nodes_admit(pods, coming, orphans, is_watched, order):
    """Clients come back with pods, their own or anybody's; one pod after another ends; gangs without pods ask as well."""
    alive = {f"u{index}": pod for index, pod in enumerate(pods)}
    held = {
        name: tuple(
            a_lease(
                4,
                identifier=f"t1-o-{index}",
                gang=f"team-a/o{index}",
                request_id="r1",
                uids=[f"u{pod}"],
                units_per_pod=4,
            )
            for index, (node, pod, _) in enumerate(orphans)
            if node == name
        )
        for name in ("n0", "n1")
    }
    leased = {name: sum(lease.units for lease in held[name]) for name in held}
    size = {name: 2 + leased[name] + sum(units for node, units, _ in pods if node == name) for name in held}

    def look():
        nodes, facts = [], {}
        for name in ("n0", "n1"):
            here = {uid: pod for uid, pod in alive.items() if pod[0] == name}
            counted = [(uid, units) for uid, (_, units, _) in here.items()]
            free = size[name] - sum(units for _, units in counted)
            nodes.append(a_node(name, a_resource(free, size=size[name], counted=counted), leases=held[name], term=2))
            facts[name] = some_facts(counted={uid: BoundPod(namespace=space) for uid, (_, _, space) in here.items()})
        return a_view(*nodes, facts=facts if is_watched else None)

    book = a_book(2)
    for index, (count, gpus, members, is_orphans) in enumerate(coming):
        name = f"o{index}" if is_orphans else f"g{index}"
        book.open(a_gang(name=name, count=count, gpus=gpus), f"client-{index}", NOW)
        for uid, is_there in members:
            node = pods[uid][0] if uid < len(pods) and is_there else "n1"
            book.join(f"team-a/{name}", Member(podset="main", uid=f"u{uid}", node=node), NOW)
    for second, gone in enumerate([None, *order]):
        alive.pop(f"u{gone}", None)
        view = look()
        book.decide(view, NOW + second)
        for name, leases in book.leases().items():
            report = view.nodes[name].report.resources[GPU]
            assert nodecapacity.outstanding(report, leases, GPU) <= report.admit_strict.value
        for record in book.records.values():
            places = sum(place.pods for place in record.lease.placements) if record.lease is not None else 0
            assert places <= record.gang.pods
