"""Hints: bounded in registries, bytes, rate and herd; given up by not being in the plan."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.core import hints, imagename, order, readiness
from admitter.core.book import Book
from admitter.core.hints import Known, Likely
from admitter.core.starting import Starts
from admitter.model.content import Answer, Content, Credential, ImagePolicy, PullSecret
from admitter.model.decision import Policy
from admitter.model.record import Terms
from muster.model import codec
from tests.admitter.clusters import a_gang, a_view
from tests.admitter.core.test_starting import DIGEST, MIB, NAME, image, node_warmth, wanting, warmed

POLICY = ImagePolicy(registries=frozenset({"r.example"}))
ANSWER = Answer(id=1, digest=DIGEST, reason="", detail="", bytes_total=600 * MIB)
REFERENCE = imagename.at(NAME, DIGEST)


def known(view, *, verified=True, answers=((NAME, ANSWER),), secrets=codec.EMPTY):
    starts = Starts(POLICY)
    starts.look(view)
    for name, answer in answers:
        for namespace in ("team-a", "team-b"):
            starts.learn(namespace, name, answer)
    return Known(starts=starts, is_verified=lambda _: verified, secrets=secrets)


def cold(*names):
    return warmed(a_view(*((name, 8) for name in names)), **{name: node_warmth() for name in names})


def plan(likely, view, before=hints.NOTHING, policy=POLICY, now=0.0, **fields):
    return hints.plan(likely, before, known(view, **fields), policy, now)


def told(found):
    return {node: tuple(image.reference for image in images) for node, images in found.images.items()}


def wants(*nodes, name="train", namespace="team-a", content=None):
    gang = dataclasses.replace(a_gang(count=8, name=name), namespace=namespace)
    return Likely(gang=wanting(gang, content or Content(images=(NAME,))), nodes=nodes)


def test_the_likely_nodes_are_told_by_digest():
    assert told(plan([wants("n1", "n2")], cold("n1", "n2", "n3"))) == {"n1": (REFERENCE,), "n2": (REFERENCE,)}


def test_a_plan_that_changes_takes_the_hint_back():
    view = cold("n1", "n2")
    before = plan([wants("n1")], view)
    assert told(plan([wants("n2")], view, before)) == {"n2": (REFERENCE,)}
    assert told(plan([], view, before)) == {}


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        (ImagePolicy(), {}),
        (dataclasses.replace(POLICY, registries=frozenset({"elsewhere"})), {}),
        (POLICY, {"answers": ()}),
        (POLICY, {"verified": False}),
    ],
    ids=["off", "not an allowed registry", "no digest yet", "not verified"],
)
def test_what_is_not_hinted(policy, fields):
    assert told(plan([wants("n1")], cold("n1"), policy=policy, **fields)) == {}


def test_a_hint_names_the_secret_of_a_namespace_that_wants_the_image():
    secret = PullSecret(version="s/1", credential=Credential(username="u", password="p"))
    secrets = {("team-b", "r.example"): secret, ("team-b", "b.example"): secret}
    others = [wants("n1"), wants("n1", "n2", namespace="team-b", name="x"), wants("n1")]
    found = plan(others, cold("n1", "n2", "n3"), secrets=secrets)
    assert {node: [image.secret for image in images] for node, images in found.images.items()} == {
        "n1": ["s/1"],
        "n2": ["s/1"],
    }
    assert not plan([wants("n1")], cold("n1"), secrets=secrets).images["n1"][0].secret


def test_why_a_node_is_never_told_is_known_and_waiting_for_a_turn_is_no_such_reason():
    view, key = cold("n1", "n2"), ("n1", "team-a", NAME)
    assert plan([wants("n1")], view).refused == {}
    judged = dataclasses.replace(known(view, verified=False), is_refused=lambda _: True)
    refused = hints.plan([wants("n1")], hints.NOTHING, judged, POLICY, 0.0).refused
    assert refused == {key: "the verification refused it"}
    assert plan([wants("n1")], view, verified=False).refused == {}, "it is being judged"
    small = dataclasses.replace(POLICY, namespace_bytes=MIB)
    assert plan([wants("n1")], view, policy=small).refused.keys() == {key}
    slow = dataclasses.replace(POLICY, namespace_bytes_per_hour=MIB)
    assert plan([wants("n1")], view, policy=slow).refused.keys() == {key}
    assert plan([wants("n1", "n2")], view, policy=dataclasses.replace(POLICY, herd=1)).refused == {}


ELSEWHERE = {"": "overlayfs", "kata": "stargz"}


@pytest.mark.parametrize(
    ("handler", "nodes"), [("", {"n1"}), ("kata", set()), ("not-there", set()), (None, set())], ids=str
)
def test_a_node_is_hinted_only_for_the_snapshotter_that_it_warms(handler, nodes):
    view = warmed(a_view(("n1", 8)), n1=node_warmth(handlers=ELSEWHERE))
    found = plan([wants("n1", content=Content(images=(NAME,), handler=handler))], view)
    assert set(found.images) == nodes
    assert bool(found.spent) is bool(nodes)


def test_a_herd_is_bounded_and_those_that_have_begun_keep_their_turn():
    view, policy = cold("n1", "n2", "n3"), dataclasses.replace(POLICY, herd=1)
    before = plan([wants("n2")], view, policy=policy)
    assert set(plan([wants("n1", "n2", "n3")], view, before, policy).images) == {"n2"}
    done = warmed(view, n1=node_warmth(), n2=node_warmth(image()), n3=node_warmth())
    assert set(plan([wants("n1", "n2", "n3")], done, before, policy).images) == {"n1", "n2"}, "what is warm is kept"


def test_a_namespaces_bytes_are_bounded_whatever_others_have():
    policy = dataclasses.replace(POLICY, namespace_bytes=700 * MIB)
    found = plan([wants("n1", "n2"), wants("n3", name="b", namespace="team-b")], cold("n1", "n2", "n3"), policy=policy)
    assert set(found.images) == {"n1", "n3"}


def test_the_rate_is_bounded_and_comes_back_after_an_hour():
    policy, view = dataclasses.replace(POLICY, namespace_bytes_per_hour=700 * MIB), cold("n1", "n2")
    first = plan([wants("n1")], view, policy=policy)
    second = plan([wants("n2")], view, first, policy, now=60.0)
    assert (set(first.images), set(second.images)) == ({"n1"}, set())
    assert set(plan([wants("n2")], view, second, policy, now=hints.HOUR + 1).images) == {"n2"}


nodes = st.lists(st.sampled_from([f"n{number}" for number in range(6)]), unique=True, max_size=6)


@hypothesis.given(
    rounds=st.lists(st.lists(nodes, max_size=3), min_size=1, max_size=4),
    herd=st.integers(1, 3),
    most=st.integers(0, 4),
    hourly=st.integers(0, 6),
)
def test_no_bound_is_ever_crossed(rounds, herd, most, hourly):
    policy = dataclasses.replace(
        POLICY, herd=herd, namespace_bytes=most * 600 * MIB, namespace_bytes_per_hour=hourly * 600 * MIB
    )
    view, found = cold(*(f"n{number}" for number in range(6))), hints.NOTHING
    for number, likely in enumerate(rounds):
        gangs = [wants(*each, name=f"g{index}") for index, each in enumerate(likely)]
        found = plan(gangs, view, found, policy, now=float(number))
        asked = {node for each in likely for node in each}
        assert set(found.images) <= asked
        assert len(found.images) <= min(herd, most)
        assert sum(spent.bytes for spent in found.spent) <= policy.namespace_bytes_per_hour


def a_book(policy):
    terms = Terms(
        term=1,
        prefix="t1-x",
        opens_at=0.0,
        lease_grace_seconds=60.0,
        replan_patience_seconds=15.0,
        ended_kept_seconds=600.0,
    )
    return Book(terms, Policy(images=policy), readiness.Readiness(policy))


def test_likely_nodes_are_where_the_queue_will_go_and_a_spare_beside():
    """n1 is held by a gang that ends; the first in the queue will have it, the next one what comes after."""
    book = a_book(dataclasses.replace(POLICY, spares=1, is_checked=False))
    view = warmed(a_view(("n1", 8), ("n2", 0)), n1=node_warmth())
    holder = a_gang(count=8, name="holder", runtime=60.0)
    book.open(holder, "client", 0.0)
    book.decide(view, 1.0)
    book.open(wanting(a_gang(count=8, name="next")), "client", 2.0)
    book.open(a_gang(count=8, name="plain"), "client", 3.0)
    book.decide(view, 4.0)
    (likely,) = book.likely({})
    assert likely.gang.name == "next"
    assert likely.nodes[0] == "n1"
    assert book.likely({}) == (likely,)


def test_a_gang_that_is_held_has_its_place():
    book = a_book(dataclasses.replace(POLICY, spares=0))
    book.open(wanting(a_gang(count=8)), "client", 0.0)
    assert book.likely({}) == ()
    book.decide(warmed(a_view(("n1", 8), ("n2", 8)), n1=node_warmth(), n2=node_warmth()), 1.0)
    gang = book.records["team-a/train"].gang
    assert [each.nodes for each in book.likely({"team-a/train": (gang, ("n2",))})] == [("n2",)]


def test_a_scene_without_warmth_has_no_penalty():
    scene = order.Scene(supply=None, ideal=None, now=0.0)
    assert scene.penalty(a_gang(count=1)) is None
