"""Which images a node could start at once: what the warmer measures and the feed carries.

Values, and the change from one state to the next. An image is (digest, platform, snapshotter); a tag is only ever an
observation with a time. Levels come from snapshots and content, never from "the runtime lists it" (design.md section 11).

Invariants: `apply(old, diff(old, new)) == new`, whatever the two are; no list grows beyond the bounds below. `layers` are
the first 8 bytes of chain ids that are unpacked, so that a node can be ranked for an image that nobody has seen.

Why chain ids and not layer digests: an unpacked layer is worth most, and a node that discards unpacked layers has none of
the digests left (images.md section 1).

Not here: how it is measured (agent/core/warmth.py), and what it is worth to placement.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from muster.model import codec
from muster.model.reading import NOT_COLLECTED, Reading

MAX_IMAGES = 256
MAX_TAGS = 256
MAX_LAYERS = 4096
"""8 bytes each: 32 kB in the worst snapshot of a feed."""
MAX_HANDLERS = 64
MAX_TEXT = 512


class Level(enum.StrEnum):
    """How near an image is to its first process, coldest first."""

    COLD = "cold"
    PARTIAL = "partial"
    LAZY = "lazy"
    UNPACKED = "unpacked"


class Hold(enum.StrEnum):
    """What keeps an image on the node."""

    NOTHING = "nothing"
    SHADOW = "shadow"
    """Our lease alone: the runtime lists nothing, so the kubelet still asks for credentials."""
    VISIBLE = "visible"
    """The runtime lists it."""


class PullState(enum.StrEnum):
    """Where our own pull of an image is."""

    IDLE = "idle"
    QUEUED = "queued"
    RESOLVING = "resolving"
    DOWNLOADING = "downloading"
    UNPACKING = "unpacking"
    VERIFYING = "verifying"
    PAUSED = "paused"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageWarmth:
    """One image on one node."""

    digest: str
    """Of the platform's manifest. An image that could not be resolved has none."""
    reference: str
    """The operator's or the hint's; for other images one of the runtime's names."""
    platform: str
    """os/architecture, as in linux/amd64"""
    snapshotter: str
    level: Level
    hold: Hold
    is_wanted: bool
    is_pinned: bool = False
    bytes_total: int
    """Compressed, manifest and configuration included."""
    bytes_missing: int
    layers_total: int
    layers_missing: int
    """Not unpacked."""
    fetched_fraction: Reading[float] = NOT_COLLECTED
    """Of a lazily mounted image, 0..1."""
    pull: PullState = PullState.IDLE
    reason: str = ""
    """agent.model.warm.Reason, when it is not as it should be."""
    detail: str = ""
    lease_expires_at: datetime.datetime | None = None
    unverified: bool = False
    """Unpacked shortly before an unclean boot: files may be missing (images.md section 11)."""

    @property
    def key(self) -> str:
        """Name of this image on this node."""
        return f"{self.digest or self.reference} {self.platform} {self.snapshotter}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TagObservation:
    """What a tag pointed at when it was looked at."""

    reference: str
    digest: str
    """Of the manifest or index that the registry named."""
    observed_at: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageStore:
    """The node's image store as a whole."""

    runtime_version: str = ""
    snapshotter: str = ""
    disk_bytes: Reading[int] = NOT_COLLECTED
    disk_free_bytes: Reading[int] = NOT_COLLECTED
    leaked_bytes: int = 0
    """Ingests that nobody has written to for long: a runtime that was killed leaves them for a day."""
    download_bytes_per_second: Reading[float] = NOT_COLLECTED
    unpack_bytes_per_second: Reading[float] = NOT_COLLECTED
    """Compressed bytes, as learned from pulls here."""
    images_more: int = 0
    """Images beyond MAX_IMAGES."""
    problem: str = ""
    """Why the store cannot be read now; the images are then as they were last seen."""
    handlers: Mapping[str, str] = codec.mapping()
    """Runtime handler -> snapshotter; the empty name is a pod without a RuntimeClass. One that is not here is not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeWarmth:
    """Everything about a node's images. All tuples are sorted: images by key, tags by reference."""

    observed_at: datetime.datetime
    store: ImageStore
    images: tuple[ImageWarmth, ...] = ()
    tags: tuple[TagObservation, ...] = ()
    layers: tuple[int, ...] = ()


NOTHING = NodeWarmth(observed_at=datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), store=ImageStore())
"""What a peer that was told nothing knows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmthDelta:
    """The change from one state to the next."""

    observed_at: datetime.datetime
    store: ImageStore | None = None
    images: tuple[ImageWarmth, ...] = ()
    """Replace the image of that key whole."""
    removed_images: tuple[str, ...] = ()
    tags: tuple[TagObservation, ...] = ()
    removed_tags: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    removed_layers: tuple[int, ...] = ()


def diff(old: NodeWarmth, new: NodeWarmth) -> WarmthDelta:
    """Return what turns `old` into `new`."""
    images_before = {image.key: image for image in old.images}
    tags_before = {tag.reference: tag for tag in old.tags}
    return WarmthDelta(
        observed_at=new.observed_at,
        store=new.store if new.store != old.store else None,
        images=tuple(image for image in new.images if images_before.get(image.key) != image),
        removed_images=tuple(sorted(set(images_before) - {image.key for image in new.images})),
        tags=tuple(tag for tag in new.tags if tags_before.get(tag.reference) != tag),
        removed_tags=tuple(sorted(set(tags_before) - {tag.reference for tag in new.tags})),
        layers=tuple(sorted(set(new.layers) - set(old.layers))),
        removed_layers=tuple(sorted(set(old.layers) - set(new.layers))),
    )


def apply(old: NodeWarmth, delta: WarmthDelta) -> NodeWarmth:
    """Return the state after the change."""
    images = {image.key: image for image in old.images if image.key not in delta.removed_images}
    images.update((image.key, image) for image in delta.images)
    tags = {tag.reference: tag for tag in old.tags if tag.reference not in delta.removed_tags}
    tags.update((tag.reference, tag) for tag in delta.tags)
    return NodeWarmth(
        observed_at=delta.observed_at,
        store=old.store if delta.store is None else delta.store,
        images=tuple(images[key] for key in sorted(images)),
        tags=tuple(tags[reference] for reference in sorted(tags)),
        layers=tuple(sorted((set(old.layers) - set(delta.removed_layers)) | set(delta.layers))),
    )


def is_steady(delta: WarmthDelta) -> bool:
    """True if nothing changed but the time."""
    return not (
        delta.store is not None
        or delta.images
        or delta.removed_images
        or delta.tags
        or delta.removed_tags
        or delta.layers
        or delta.removed_layers
    )


def layer_prefix(chain_id: str) -> int:
    """Return the first 8 bytes of a chain id as a number.

    >>> layer_prefix("sha256:00000000000000ff" + 48 * "a")
    255
    """
    return int(chain_id.partition(":")[2][:16], 16)


def problems(warmth: NodeWarmth) -> tuple[str, ...]:
    """Return why a state is not one that a warmer sends: an admitter keeps what it accepts in memory."""
    counts = (
        ("images", len(warmth.images), MAX_IMAGES),
        ("tags", len(warmth.tags), MAX_TAGS),
        ("layers", len(warmth.layers), MAX_LAYERS),
        ("store.handlers", len(warmth.store.handlers), MAX_HANDLERS),
    )
    found = [f"warmth.{name}: {count}, at most {bound}" for name, count, bound in counts if count > bound]
    texts = [warmth.store.runtime_version, warmth.store.snapshotter, warmth.store.problem]
    texts += [text for pair in warmth.store.handlers.items() for text in pair]
    for image in warmth.images:
        texts += [image.digest, image.reference, image.platform, image.snapshotter, image.reason, image.detail]
        if min(image.bytes_total, image.bytes_missing, image.layers_total, image.layers_missing) < 0:
            found.append(f"warmth.images: {image.key[:80]!r} has a count below 0")
    texts += [text for tag in warmth.tags for text in (tag.reference, tag.digest)]
    if max(map(len, texts)) > MAX_TEXT:
        found.append(f"warmth: a text is longer than {MAX_TEXT}")
    return tuple(found)
