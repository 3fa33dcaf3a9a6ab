"""Values of the warmer: images by their parts, what containerd holds of them, what is wanted, what went wrong.

An `Image` is one platform's manifest with its layers and chain ids; `StoreFacts` is one look at containerd. Whatever is
wanted is a `Wanted`; a pull that failed leaves a `Failure`, which says when to try again.

Not here: what is told to others (muster/model/warmth.py).
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from muster.model import codec
from muster.model.reading import Reading


class Reason(enum.StrEnum):
    """Why an image is not as it should be: reaches metrics, the feed and `muster status --images`."""

    NOT_FOUND = "NotFound"
    UNAUTHORIZED = "Unauthorized"
    SECRET_MISSING = "SecretMissing"  # noqa: S105 -- a reason
    """A pod's pull secret may open it, and has not been told yet."""
    TOO_MANY_REQUESTS = "TooManyRequests"
    REGISTRY_UNREACHABLE = "RegistryUnreachable"
    STALLED = "Stalled"
    CORRUPT_BLOB = "CorruptBlob"
    DISK_FULL = "DiskFull"
    DISK_GUARD = "DiskGuard"
    OVER_BUDGET = "OverBudget"
    YIELDING = "Yielding"
    HOST_HELD = "HostHeld"
    RUNTIME_AWAY = "RuntimeAway"
    PULL_FAILED = "PullFailed"
    INCOMPLETE = "Incomplete"
    LAZY_BROKEN = "LazyBroken"
    SCHEMA_1 = "Schema1"
    NO_PLATFORM = "NoPlatform"
    FOREIGN_LAYER = "ForeignLayer"
    EMPTY_LAYER = "EmptyLayer"
    BAD_MANIFEST = "BadManifest"
    BAD_CONFIG = "BadConfig"
    BAD_REFERENCE = "BadReference"


class Mode(enum.StrEnum):
    """How an image is to be held once it is warm."""

    AUTO = "auto"
    """Shadow if it took credentials, else visible (images.md section 8)."""
    VISIBLE = "visible"
    SHADOW = "shadow"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A name of an image, in full. One of `tag` and `digest` is set."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    def at(self, digest: str) -> str:
        """Return the name of this repository's image of that digest."""
        return f"{self.host}/{self.repository}@{digest}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What a manifest says of a blob."""

    digest: str
    size: int
    kind: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    blob: Descriptor
    diff_id: str
    chain_id: str
    """Of this layer on all below it: the name of its snapshot."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One platform's image, whole."""

    root: Descriptor
    """What the tag points at: the manifest, or an index above it."""
    manifest: Descriptor
    config: Descriptor
    layers: tuple[Layer, ...]

    @property
    def top(self) -> str:
        """Chain id of the whole image."""
        return self.layers[-1].chain_id

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """All blobs that a start needs, each once; an index aside, which the runtime does not read again."""
        found = {part.digest: part for part in (self.manifest, self.config, *(layer.blob for layer in self.layers))}
        return tuple(found.values())

    @property
    def digests(self) -> frozenset[str]:
        return frozenset((self.root.digest, *(blob.digest for blob in self.blobs)))

    @property
    def chain_ids(self) -> frozenset[str]:
        return frozenset(layer.chain_id for layer in self.layers)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An image, or a name of one, that will not be warmed, and why."""

    reason: Reason
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A committed snapshot."""

    parent: str = ""
    is_remote: bool = False
    """Mounted by a remote snapshotter: its files are elsewhere until they are read."""
    fetched: float | None = None
    """Share of a remote snapshot's bytes that are here; None: nobody says."""
    problem: str = ""
    """Why a remote snapshot cannot be read, though the runtime lists it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """A blob that is being written, or was."""

    ref: str
    offset: int
    updated_at: datetime.datetime

    @property
    def digest(self) -> str:
        """Of the blob it becomes; containerd's names end in it, layer-sha256:... for one."""
        _, separator, rest = self.ref.rpartition("sha256:")
        return separator + rest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """A name the runtime lists."""

    digest: str
    labels: Mapping[str, str] = codec.mapping()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A part of containerd."""

    kind: str
    id: str
    root: str
    """Folder that it keeps things in; empty: it does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease of ours."""

    id: str
    digest: str
    """Of the manifest it is for."""
    expires_at: datetime.datetime
    is_done: bool = False
    """Its image was complete when the lease was last written."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """One look at containerd."""

    blobs: Mapping[str, int] = codec.mapping()
    """Digest -> bytes, complete ones."""
    ingests: tuple[Ingest, ...] = ()
    snapshots: Mapping[str, Snapshot] = codec.mapping()
    """Chain id -> committed snapshot."""
    records: Mapping[str, ImageRecord] = codec.mapping()
    leases: tuple[Lease, ...] = ()
    """Only ours."""
    elsewhere: Mapping[str, Mapping[str, Snapshot]] = codec.mapping()
    """The same as `snapshots` in the other snapshotters that pods of this node can use; one that is not here is not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system that images are on."""

    total_bytes: int
    free_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An image to have ready. Earlier in a list is more important."""

    reference: Reference
    mode: Mode = Mode.AUTO
    pin: bool = False
    is_hint: bool = False
    is_habit: bool = False
    """Nobody asked for it: containers of this node were started from it."""
    secret: str = ""
    """Version of the pod's pull secret that may open a hint (podsecrets.py); empty: there is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last pull's end, and when the next may begin."""

    reason: Reason
    detail: str
    attempts: int
    retry_at: float
    """Monotonic."""
    host: str = ""
    """Set: all images of this host wait with it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the warmer may take of the node."""

    budget_bytes: int
    """Compressed bytes of everything on the operator's list."""
    hint_budget_bytes: int = 0
    """The same of everything the admitter named."""
    habit_budget_bytes: int = 0
    """The same of what the node itself started often."""
    disk_share: float = 0.80
    """Of the image file system; the kubelet collects garbage at 85 % (images.md section 6.2)."""
    unpack_ratio: float = 2.0
    """Unpacked bytes a compressed byte: of a CUDA image (images.md section 1)."""
    lease_seconds: float = 86_400.0
    """A lease that nobody renews ends: a warmer that was removed gives the disk back."""
    pin_seconds: float = 0.0
    """A pin of ours ends after so long; 0: when nobody asks for it any more."""


DiskReading = Reading[Disk]
