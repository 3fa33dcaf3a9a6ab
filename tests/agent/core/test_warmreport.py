"""What is told stays within the feed's bounds, wanted images first."""

import datetime

from agent.core import warmref, warmreport, warmth
from agent.core.warmplan import Candidate
from agent.model.warm import Descriptor, Image, ImageRecord, Layer, Reason, Refused, Snapshot, StoreFacts, Wanted
from muster.model import pbform
from muster.model import warmth as told
from muster.model.warmth import ImageStore, Level, PullState
from muster.pb.muster.warmer.v1 import warmer_pb2

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


def digest(number):
    return f"sha256:{number:064x}"


def image(number):
    layer = Layer(
        blob=Descriptor(digest=digest(number + 10**6), size=5, kind="layer"), diff_id="d", chain_id=digest(number)
    )
    root = Descriptor(digest=digest(number + 2 * 10**6), size=1, kind="manifest")
    return Image(root=root, manifest=root, config=root, layers=(layer,))


def wanted(number, **more):
    made = image(number)
    facts = more.pop("facts", StoreFacts())
    return Candidate(
        wanted=Wanted(reference=warmref.parse(f"r.io/a{number}:1")),
        **{"image": made, "warmth": warmth.assess(made, facts), **more},
    )


def report(candidates=(), facts=None, others=None, pulls=None, waits=None):
    known = warmreport.Known(
        candidates=candidates,
        facts=facts or StoreFacts(),
        others=others or {},
        pulls=pulls or {},
        waits=waits or {},
        tags=(),
    )
    return warmreport.report(known, ImageStore(snapshotter="overlayfs"), "linux/amd64", AT)


def test_a_flood_of_images_leaves_the_wanted_ones():
    found = report([wanted(1)], others={f"r.io/b{number}:1": image(number) for number in range(2, 1000)})
    assert len(found.images) == told.MAX_IMAGES
    assert [image.reference for image in found.images if image.is_wanted] == ["r.io/a1:1"]
    assert found.store.images_more == 999 - told.MAX_IMAGES
    assert told.problems(found) == ()


def test_a_node_that_lists_ten_thousand_is_told_within_the_feeds_bound():
    """And each image is looked at once: what takes seconds for 10,000 was by their square."""
    others = {f"r.io/b{number}:1": image(number) for number in range(10_000)}
    facts = StoreFacts(
        records={name: ImageRecord(digest=made.root.digest) for name, made in others.items()},
        snapshots={digest(number << 200): Snapshot() for number in range(10_000)},
    )
    found = report([wanted(10**5)], facts=facts, others=others)
    assert (len(found.images), found.store.images_more) == (told.MAX_IMAGES, 10_001 - told.MAX_IMAGES)
    assert told.problems(found) == ()
    assert pbform.fill(warmer_pb2.WatchResponse().warmth, found).ByteSize() < 1024 * 1024


def test_another_snapshotter_is_another_image():
    """What it has is told under its own name; what it lacks is not told at all."""
    elsewhere = {"devmapper": {digest(1): Snapshot()}, "stargz": {digest(9): Snapshot()}}
    found = report([wanted(1)], facts=StoreFacts(elsewhere=elsewhere), others={"r.io/b2:1": image(2)})
    assert [(image.reference, image.snapshotter, image.layers_missing) for image in found.images] == [
        ("r.io/a1:1", "devmapper", 0),
        ("r.io/a1:1", "overlayfs", 1),
        ("r.io/b2:1", "overlayfs", 1),
    ]


def test_a_flood_of_layers_is_cut():
    found = report(facts=StoreFacts(snapshots={digest(number << 200): Snapshot() for number in range(5000)}))
    assert len(found.layers) == told.MAX_LAYERS
    assert told.problems(found) == ()


def test_what_is_not_resolved_is_cold_with_its_reason():
    why = {"r.io/a1:1": Refused(reason=Reason.NOT_FOUND, detail="r.io answers 404")}
    (image,) = report([wanted(1, image=None, warmth=None)], waits=why).images
    assert (image.level, image.reason, image.detail, image.pull) == (
        Level.COLD,
        "NotFound",
        "r.io answers 404",
        PullState.QUEUED,
    )


def test_one_image_under_two_names_is_told_once_under_the_wanted_one():
    found = report([wanted(1)], others={"r.io/zzz:1": image(1)})
    assert [(image.reference, image.is_wanted) for image in found.images] == [("r.io/a1:1", True)]


def test_the_same_facts_give_the_same_report():
    assert report([wanted(1)]) == report([wanted(1)])
