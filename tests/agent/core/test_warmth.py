"""Levels come from snapshots and content; the runtime's list decides only how an image is held."""

import dataclasses
import datetime

from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmth
from agent.model.warm import Descriptor, Image, ImageRecord, Ingest, Layer, Lease, Snapshot, StoreFacts
from muster.model.reading import Known
from muster.model.warmth import Hold, Level

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


def blob(name, size=100):
    return Descriptor(digest=f"sha256:{name}", size=size, kind="layer")


LAYERS = tuple(Layer(blob=blob(f"l{n}"), diff_id=f"sha256:d{n}", chain_id=f"sha256:c{n}") for n in range(3))
IMAGE = Image(root=blob("m", 10), manifest=blob("m", 10), config=blob("k", 10), layers=LAYERS)
SMALL = {"sha256:m": 10, "sha256:k": 10}
BLOBS = {**SMALL, **{layer.blob.digest: 100 for layer in LAYERS}}
SNAPSHOTS = {layer.chain_id: Snapshot() for layer in LAYERS}
LISTED = {"a:1": ImageRecord(digest="sha256:m")}
LEASE = Lease(id="x", digest="sha256:m", expires_at=AT, is_done=True)


def assess(**facts):
    return warmth.assess(IMAGE, StoreFacts(**facts))


def told(found):
    return found.level, found.hold, found.bytes_missing, found.layers_missing


def test_nothing_here_is_cold():
    assert told(assess()) == (Level.COLD, Hold.NOTHING, 320, 3)


def test_listed_without_anything_is_cold():
    assert told(assess(records=LISTED)) == (Level.COLD, Hold.VISIBLE, 320, 3)


def test_downloaded_is_partial_until_it_is_unpacked():
    assert told(assess(blobs=BLOBS, records=LISTED)) == (Level.PARTIAL, Hold.VISIBLE, 0, 3)


def test_unpacked_layers_need_no_content():
    """A node that discards unpacked layers has 0 MiB of content (images.md section 1)."""
    assert told(assess(blobs=SMALL, snapshots=SNAPSHOTS, records=LISTED)) == (Level.UNPACKED, Hold.VISIBLE, 0, 0)


def test_unpacked_without_its_manifest_cannot_start():
    assert told(assess(snapshots=SNAPSHOTS)) == (Level.PARTIAL, Hold.NOTHING, 20, 0)


def test_a_lease_holds_a_shadow_only_when_it_is_complete():
    half = dataclasses.replace(LEASE, is_done=False)
    assert assess(blobs=BLOBS, snapshots=SNAPSHOTS, leases=(LEASE,)).hold is Hold.SHADOW
    assert assess(blobs=BLOBS, snapshots=SNAPSHOTS, leases=(half,)).hold is Hold.NOTHING
    assert assess(blobs=BLOBS, leases=(LEASE,)).hold is Hold.NOTHING


def test_a_lease_holds_a_shadow_on_lazily_mounted_layers_too():
    """A public image brought the lower layers, remote ones; the pull of the shadow is done with that."""
    lazy = {**SNAPSHOTS, "sha256:c0": Snapshot(is_remote=True)}
    assert told(assess(blobs=SMALL, snapshots=lazy, leases=(LEASE,))) == (Level.LAZY, Hold.SHADOW, 0, 0)


def test_what_is_on_its_way_counts():
    ingest = Ingest(ref="layer-sha256:l0", offset=40, updated_at=AT)
    assert assess(ingests=(ingest,)).bytes_missing == 280


def test_a_lazy_image_is_not_unpacked():
    """Listed with 0 MiB on the node (images.md section 1)."""
    lazy = {**SNAPSHOTS, "sha256:c1": Snapshot(is_remote=True, fetched=0.25)}
    found = assess(blobs=SMALL, snapshots=lazy, records=LISTED)
    assert found.level is Level.LAZY
    assert found.fetched_fraction == Known(0.75)


def test_a_mount_that_gives_errors_is_no_layer():
    """The runtime lists it, and every read fails (images.md section 7)."""
    broken = {**SNAPSHOTS, "sha256:c1": Snapshot(is_remote=True, fetched=1.0, problem="EIO")}
    found = assess(blobs=SMALL, snapshots=broken, records=LISTED)
    assert told(found) == (Level.PARTIAL, Hold.VISIBLE, 100, 1)
    assert found.problem == "EIO"


def test_a_pin_is_read_from_the_record():
    pinned = {"a:1": ImageRecord(digest="sha256:m", labels={warmth.PIN_LABEL: "pinned"})}
    assert assess(records=pinned).is_pinned


def test_only_what_nobody_writes_to_is_leaked():
    old = Ingest(ref="layer-sha256:x", offset=7, updated_at=AT)
    new = Ingest(ref="layer-sha256:y", offset=5, updated_at=AT + datetime.timedelta(minutes=9))
    assert warmth.leaked_bytes(StoreFacts(ingests=(old, new)), AT + datetime.timedelta(minutes=11)) == 7


@given(blobs=st.sets(st.sampled_from(sorted(BLOBS))), chains=st.sets(st.sampled_from(sorted(SNAPSHOTS))))
def test_more_on_the_node_is_never_colder(blobs, chains):
    found = assess(blobs={name: BLOBS[name] for name in blobs}, snapshots={name: Snapshot() for name in chains})
    assert 0 <= found.bytes_missing <= found.bytes_total == 320
    assert (found.level is Level.UNPACKED) == (found.bytes_missing == 0 and found.layers_missing == 0)
    more = assess(blobs=BLOBS, snapshots={name: Snapshot() for name in chains})
    assert more.bytes_missing <= found.bytes_missing


def test_a_fall_is_seen_and_a_rise_is_none():
    assert warmth.is_fall({"a": Level.UNPACKED}, {"a": Level.PARTIAL})
    assert warmth.is_fall({"a": Level.UNPACKED}, {})
    assert not warmth.is_fall({"a": Level.PARTIAL}, {"a": Level.UNPACKED, "b": Level.COLD})
