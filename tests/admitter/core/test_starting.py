"""A warm node is preferred, within a bound, and never decides whether there is a place."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from admitter.core import admit, domains, offers, spread, starting
from admitter.model.content import Answer, Content, ImagePolicy, Layer
from admitter.model.decision import Grant, NetworkLevel, Policy
from admitter.model.lease import Placement
from muster.model import warmth
from muster.model.reading import Known
from muster.model.warmth import Hold, ImageStore, ImageWarmth, Level
from tests.admitter.clusters import a_gang, a_node, a_podset, a_view

MIB = 1024 * 1024
NAME = "r.example/ml/cuda:v1"
DIGEST = "sha256:" + 64 * "a"
CONTENT = Content(images=(NAME,))
POLICY = Policy(levels=(NetworkLevel(name="rack", label="rack"),))
LIKES = ImagePolicy(preference_units=4, preference_seconds=100.0)


def image(level=Level.UNPACKED, **fields):
    fields = {
        "digest": DIGEST, "reference": NAME, "platform": "linux/amd64", "snapshotter": "overlayfs", "is_wanted": False,
        "hold": Hold.VISIBLE, "bytes_total": 600 * MIB, "bytes_missing": 0, "layers_total": 6, "layers_missing": 0,
        **fields,
    }  # fmt: skip
    return ImageWarmth(level=level, **fields)


def node_warmth(*images, layers=(), **store):
    return dataclasses.replace(
        warmth.NOTHING, store=ImageStore(snapshotter="overlayfs", **store), images=images, layers=layers
    )


def warmed(view, **warmths):
    nodes = {name: dataclasses.replace(state, warmth=warmths.get(name)) for name, state in view.nodes.items()}
    return dataclasses.replace(view, nodes=nodes)


def wanting(gang, content=CONTENT):
    podsets = tuple(dataclasses.replace(podset, content=content) for podset in gang.podsets)
    return dataclasses.replace(gang, podsets=podsets)


def answer(*layers, total=600 * MIB):
    found = tuple(Layer(prefix=prefix, bytes=size) for prefix, size in layers)
    return Answer(id=1, digest=DIGEST, reason="", detail="", bytes_total=total, layers=found)


UNSEEN = starting.UNSEEN_BYTES
RATED = {"download_bytes_per_second": Known(100.0 * MIB), "unpack_bytes_per_second": Known(50.0 * MIB)}
LAYERS = answer((1, 100 * MIB), (2, 500 * MIB))
SEEN = {
    "unpacked": (node_warmth(image()), {}, 0.0, 0),
    "lazy": (node_warmth(image(Level.LAZY)), {}, starting.LAZY_SECONDS, 0),
    "partial: what is missing at the node's own rates": (
        node_warmth(image(Level.PARTIAL, bytes_missing=200 * MIB, layers_missing=3), **RATED), {},
        200 / 100 + 300 / 50, 300 * MIB),
    "nobody has seen it, and it shares a layer": (
        node_warmth(layers=(2,), **RATED), {NAME: LAYERS}, 100 / 100 + 100 / 50, 100 * MIB),
    "all layers under another name": (node_warmth(layers=(1, 2)), {NAME: LAYERS}, 0.0, 0),
    "the tag has moved": (
        node_warmth(image(digest="sha256:" + 64 * "b"), layers=(), **RATED), {
            NAME: dataclasses.replace(LAYERS, digest="sha256:" + 64 * "c")}, 0.0, 0),
    "unverified after an unclean boot": (
        node_warmth(image(unverified=True), layers=(1, 2), **RATED), {NAME: LAYERS}, 6.0 + 12.0, 600 * MIB),
    "a store that cannot be read": (
        node_warmth(image(), problem="RuntimeAway", **RATED), {NAME: LAYERS}, 18.0, 600 * MIB),
    "nothing is known": (
        node_warmth(**RATED), {}, UNSEEN / MIB * (1 / 100 + 1 / 50), UNSEEN),
    "no warmer": (
        None, {NAME: LAYERS}, 600 * MIB / starting.DOWNLOAD_RATE + 600 * MIB / starting.UNPACK_RATE, 600 * MIB),
}  # fmt: skip


@pytest.mark.parametrize("case", SEEN)
def test_what_a_node_lacks(case):
    state, known, seconds, missing = SEEN[case]
    found = starting.of_node(state, CONTENT, known)
    assert found.seconds == pytest.approx(seconds + starting.START_SECONDS)
    assert dict(found.missing) == ({NAME: missing} if missing else {})


@pytest.mark.parametrize(
    ("handler", "is_warm"), [("", True), ("runc", True), ("kata", True), ("nobody-knows", False), (None, False)]
)
def test_a_handler_leads_to_a_snapshotter_and_an_unknown_one_means_cold(handler, is_warm):
    handlers = {"": "overlayfs", "runc": "overlayfs", "kata": "devmapper"}
    both = (image(), image(snapshotter="devmapper"))
    found = starting.of_node(node_warmth(*both, handlers=handlers), Content(images=(NAME,), handler=handler), {})
    assert (not found.missing) is is_warm


def test_a_moved_tag_is_cold_where_the_node_looked_at_the_old_one():
    tag = warmth.TagObservation(reference=NAME, digest=DIGEST, observed_at=warmth.NOTHING.observed_at)
    state = dataclasses.replace(node_warmth(image()), tags=(tag,))
    moved = dataclasses.replace(LAYERS, digest="sha256:" + 64 * "c")
    assert starting.of_node(state, CONTENT, {NAME: moved}).missing
    assert not starting.of_node(state, CONTENT, {NAME: LAYERS}).missing


def starts(view, policy=LIKES):
    found = starting.Starts(policy)
    found.look(view)
    return found


def placed_on(gang, view, policy=LIKES):
    supply = offers.of_view(view, {}, POLICY)
    plan = admit.plan(gang, supply, POLICY, penalty=starts(view, policy).penalty(gang, supply.table))
    assert isinstance(plan, Grant)
    return {place.node: place.pods for place in plan.placements}


def test_of_equal_nodes_the_warm_one_is_taken():
    view = a_view(("n1", 8), ("n2", 8))
    gang = wanting(a_gang(count=4))
    assert placed_on(gang, warmed(view, n2=node_warmth(image()))) == {"n2": 4}
    assert placed_on(gang, warmed(view)) == {"n1": 4}
    assert placed_on(a_gang(count=4), warmed(view, n2=node_warmth(image()))) == {"n1": 4}, "it has no images"


def test_the_bound_holds():
    """A node that one GPU fits exactly is worth more than a warm one that is cut by more than the bound."""
    view = warmed(a_view(("n1", 1), ("n2", 8)), n2=node_warmth(image()))
    gang = wanting(a_gang(count=1))
    assert placed_on(gang, view, dataclasses.replace(LIKES, preference_units=2)) == {"n1": 1}
    assert placed_on(gang, view, dataclasses.replace(LIKES, preference_units=100)) == {"n2": 1}
    assert placed_on(gang, view, dataclasses.replace(LIKES, preference_units=0)) == {"n1": 1}


def test_what_changes_on_one_node_is_seen_and_what_a_warmer_says_too():
    view = a_view(("n1", 8), ("n2", 8))
    gang, supply = wanting(a_gang(count=4)), offers.of_view(view, {}, POLICY)
    found = starts(warmed(view))
    assert found.penalty(gang, supply.table) is None, "nobody has a warmer"
    found.look(warmed(view, n1=node_warmth(), n2=node_warmth(image())))
    assert found.penalty(gang, supply.table).tolist() == [4, 0]
    found.look(warmed(view, n1=node_warmth(image()), n2=node_warmth()))
    assert found.penalty(gang, supply.table).tolist() == [0, 4]
    found.look(warmed(view, n1=node_warmth(image()), n2=node_warmth(layers=(2,))))
    found.learn("team-a", NAME, answer((1, 1 * MIB), (2, 599 * MIB)))
    assert found.penalty(gang, supply.table) is None, "one mebibyte is no difference"
    assert found.on("n2", "team-a", CONTENT).missing == ((NAME, 1 * MIB),)
    assert found.on("nobody", "team-a", CONTENT).missing == ((NAME, 600 * MIB),)


fleets = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from(["", "a", "b"]), st.sampled_from([None, 0, 300, 600])),
    min_size=1,
    max_size=7,
)
gangs = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 4])), min_size=1, max_size=2)


def world(fleet):
    names = [f"n{number}" for number in range(len(fleet))]
    nodes = [a_node(name, free, clique=clique) for name, (free, clique, _) in zip(names, fleet, strict=True)]
    levels = {
        name: node_warmth(image(Level.PARTIAL if lacks else Level.UNPACKED, bytes_missing=lacks * MIB, layers_missing=6 if lacks else 0))
        for name, (_, _, lacks) in zip(names, fleet, strict=True)
        if lacks is not None
    }  # fmt: skip
    return warmed(a_view(*nodes), **levels)


def level_of(placements, supply):
    rows = [supply.table.row[place.node] for place in placements]
    for number, level in enumerate(domains.levels(POLICY)):
        codes = domains.of_level(level, "nvidia.com/gpu", supply.table, POLICY).codes
        if len({int(codes[row]) for row in rows}) == 1:
            return number
    raise AssertionError("everything is one domain")


@hypothesis.given(fleet=fleets, shapes=gangs, units=st.integers(0, 50))
def test_a_preference_changes_neither_whether_there_is_a_place_nor_its_level_nor_how_many_nodes(fleet, shapes, units):
    view = world(fleet)
    gang = wanting(a_gang(*(a_podset(f"p{number}", *shape) for number, shape in enumerate(shapes))))
    supply = offers.of_view(view, {}, POLICY)
    penalty = starts(view, dataclasses.replace(LIKES, preference_units=units)).penalty(gang, supply.table)
    plain, warm = admit.plan(gang, supply, POLICY), admit.plan(gang, supply, POLICY, penalty=penalty)
    assert isinstance(plain, Grant) is isinstance(warm, Grant)
    assert warm == admit.plan(gang, supply, POLICY, penalty=penalty)
    if isinstance(plain, Grant):
        assert level_of(warm.placements, supply) == level_of(plain.placements, supply)
        assert len({place.node for place in warm.placements}) <= len({place.node for place in plain.placements})
        assert admit.holds(gang, warm.placements, supply, POLICY)


def cost(placement: Placement, supply):
    row = supply.table.row[placement.node]
    free = supply.table.column("nvidia.com/gpu")[row]
    return int(spread.damage(np.array([free]), placement.units)[0])


@hypothesis.given(fleet=fleets, count=st.integers(1, 6), units=st.integers(0, 50))
def test_a_node_that_is_taken_for_its_warmth_loses_no_more_than_the_bound(fleet, count, units):
    view, gang = world(fleet), wanting(a_gang(count=count))
    supply = offers.of_view(view, {}, POLICY)
    penalty = starts(view, dataclasses.replace(LIKES, preference_units=units)).penalty(gang, supply.table)
    plain, warm = admit.plan(gang, supply, POLICY), admit.plan(gang, supply, POLICY, penalty=penalty)
    if penalty is not None:
        assert 0 <= penalty.min() <= penalty.max() <= units
    if isinstance(plain, Grant) and len(plain.placements) == 1:
        assert cost(warm.placements[0], supply) <= cost(plain.placements[0], supply) + units


def many_warm(count):
    names = [f"n{number}" for number in range(count)]
    view = a_view(*((name, 8) for name in names))
    return warmed(view, **{name: node_warmth(image()) if name == "n0" else node_warmth() for name in names})


def content_of(number):
    return Content(images=(f"r.example/ml/cuda:v{number}",))


def preferences(starts, view, numbers):
    """Return which of these contents have a preference in one pass over a view."""
    starts.look(view)
    table = offers.of_view(view, {}, POLICY).table
    named = [dataclasses.replace(CONTENT, pull_secrets=(f"s{number}",)) for number in numbers]
    return [starts.penalty(wanting(a_gang(count=1), content), table) is not None for content in named]


def test_one_view_has_a_bound_of_work_and_memory_decides_nothing(monkeypatch):
    monkeypatch.setattr(starting, "MOST_STARTS", 20)
    view, fresh, used = many_warm(5), starting.Starts(LIKES), starting.Starts(LIKES)
    preferences(used, view, range(50, 60))
    first, second = preferences(fresh, view, range(9)), preferences(used, view, range(9))
    assert first == second == [True] * 4 + [False] * 5
    assert preferences(used, view, range(8, -1, -1)) == [True] * 4 + [False] * 5, "the first ones, whatever is known"


def test_what_is_kept_is_bounded_whatever_tenants_name():
    view, starts = many_warm(2), starting.Starts(LIKES)
    for turn in range(5):
        preferences(starts, view, range(40 * turn, 40 * turn + 40))
    for number in range(700):
        starts.learn("a", f"r.example/ml/x:v{number}", LAYERS)
    assert len(starts._starts) <= starting.MOST_CONTENTS
    assert starts.known("a", "r.example/ml/x:v0") is None
    assert starts.known("a", "r.example/ml/x:v699") is not None


def test_an_answer_drops_only_what_names_its_image():
    view, starts = many_warm(2), starting.Starts(LIKES)
    starts.look(view)
    before = [starts.everywhere("a", content_of(number)) for number in range(3)]
    starts.learn("a", "r.example/ml/cuda:v1", LAYERS)
    after = [starts.everywhere("a", content_of(number)) for number in range(3)]
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True]
    assert after[1]["n1"].missing[0][1] == 600 * MIB


def test_what_one_namespaces_secret_opens_is_nothing_to_another():
    view, starts = many_warm(3), starting.Starts(LIKES)
    starts.look(view)
    starts.learn("a", NAME, LAYERS)
    assert starts.known("b", NAME) is None
    assert starts.on("n1", "b", CONTENT).missing == ((NAME, starting.UNSEEN_BYTES),)
    assert starts.on("n1", "a", CONTENT).missing == ((NAME, 600 * MIB),)
    starts.learn("b", NAME, dataclasses.replace(LAYERS, digest="sha256:" + 64 * "c", bytes_total=5))
    assert starts.known("a", NAME).digest == LAYERS.digest


def test_namespaces_to_which_an_image_is_the_same_share_what_is_worked_out(monkeypatch):
    monkeypatch.setattr(starting, "MOST_CONTENTS", 1)
    view, starts = many_warm(3), starting.Starts(LIKES)
    starts.look(view)
    names = [f"team-{number}" for number in range(20)]
    for number, name in enumerate(names):
        starts.learn(name, NAME, dataclasses.replace(LAYERS, id=number))
    found = [starts.everywhere(name, CONTENT) for name in names]
    assert all(each is found[0] for each in found)
    assert starts.everywhere("nobody-asked-for-it", CONTENT) is None


def test_who_names_most_images_makes_room():
    starts = starting.Starts(LIKES)
    starts.learn("b", NAME, LAYERS)
    for number in range(700):
        starts.learn("a", f"r.example/ml/x:v{number}", dataclasses.replace(LAYERS, bytes_total=number))
    assert starts.known("b", NAME) == dataclasses.replace(LAYERS, id=0)
