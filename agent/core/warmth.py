"""How warm one image is, from one look at containerd.

In: an Image and StoreFacts. Out: level, what is missing, and what holds it.

Invariants: a level comes from snapshots and content, never from a record alone: an image that is listed and has lost its
snapshots is cold, and one that discarded its unpacked layers is not. A layer that is unpacked misses no bytes. Unpacked
means that a start needs neither a byte nor an unpack: manifest and configuration are there too.

Not here: reading containerd (agent/warmer/survey.py).
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import TypeAlias

from agent.model.warm import Image, Layer, Lease, StoreFacts
from muster.model.reading import NOT_COLLECTED, Known, Reading
from muster.model.warmth import Hold, Level

PIN_LABEL = "io.cri-containerd.pinned"
STALE_INGEST = datetime.timedelta(minutes=10)
"""A registry that is merely slow moves an ingest at least this often; containerd gives up after 5 minutes itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """How warm an image is."""

    level: Level
    hold: Hold
    is_pinned: bool
    bytes_total: int
    bytes_missing: int
    layers_missing: int
    unpack_missing_bytes: int
    """Compressed bytes of the layers that are not unpacked."""
    fetched_fraction: Reading[float]
    lease: Lease | None
    problem: str = ""
    """Why layers that are mounted cannot be read."""


Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""Digest -> the names that the runtime lists it under."""


def names_of(facts: StoreFacts) -> Names:
    """Return what `assess` asks for each image: a node can list thousands, and all of them are assessed together."""
    found: dict[str, tuple[str, ...]] = {}
    for name, record in facts.records.items():
        found[record.digest] = (*found.get(record.digest, ()), name)
    return found


def assess(image: Image, facts: StoreFacts, names_by_digest: Names | None = None) -> Warmth:
    """Return how warm an image is."""
    listed = names_of(facts) if names_by_digest is None else names_by_digest
    # A mount that gives nothing but errors is no layer, whatever the runtime lists.
    unpacked = [layer for layer in image.layers if _is_usable(layer, facts)]
    packed = [layer for layer in image.layers if not _is_usable(layer, facts)]
    problems = [facts.snapshots[layer.chain_id].problem for layer in packed if layer.chain_id in facts.snapshots]
    needed = {blob.digest: blob.size for blob in (image.manifest, image.config, *(layer.blob for layer in packed))}
    begun = {ingest.digest: ingest.offset for ingest in facts.ingests}
    missing = sum(
        max(0, size - min(size, begun.get(digest, 0))) for digest, size in needed.items() if digest not in facts.blobs
    )
    names = [name for digest in {image.root.digest, image.manifest.digest} for name in listed.get(digest, ())]
    lease = _lease(image, facts)
    total = sum(blob.size for blob in image.blobs)
    level = Level.PARTIAL if missing < total or unpacked else Level.COLD
    if not packed and not missing:
        level = Level.LAZY if _is_remote(image, facts) else Level.UNPACKED
    return Warmth(
        level=level,
        hold=_hold(bool(names), lease, level),
        is_pinned=any(PIN_LABEL in facts.records[name].labels for name in names),
        bytes_total=total,
        bytes_missing=missing,
        layers_missing=len(packed),
        unpack_missing_bytes=sum(layer.blob.size for layer in packed),
        fetched_fraction=_fetched(image, facts) if level is Level.LAZY else NOT_COLLECTED,
        lease=lease,
        problem=problems[0] if problems else "",
    )


def _is_usable(layer: Layer, facts: StoreFacts) -> bool:
    snapshot = facts.snapshots.get(layer.chain_id)
    return snapshot is not None and not snapshot.problem


def _lease(image: Image, facts: StoreFacts) -> Lease | None:
    ours = [lease for lease in facts.leases if lease.digest == image.manifest.digest]
    return max(ours, key=lambda lease: (lease.is_done, lease.expires_at), default=None)


def _hold(is_listed: bool, lease: Lease | None, level: Level) -> Hold:  # noqa: FBT001
    if is_listed:
        return Hold.VISIBLE
    # A lease that a pull is still filling holds parts, not an image. One on a public image's lazily mounted layers is whole.
    is_whole = lease is not None and lease.is_done and level in {Level.UNPACKED, Level.LAZY}
    return Hold.SHADOW if is_whole else Hold.NOTHING


def _is_remote(image: Image, facts: StoreFacts) -> bool:
    return any(facts.snapshots[layer.chain_id].is_remote for layer in image.layers)


def _fetched(image: Image, facts: StoreFacts) -> Reading[float]:
    """Return the share of an image's bytes that are here: unpacked layers whole, remote ones as far as is known."""
    total = sum(layer.blob.size for layer in image.layers)
    here = 0.0
    for layer in image.layers:
        snapshot = facts.snapshots[layer.chain_id]
        if snapshot.is_remote and snapshot.fetched is None:
            return NOT_COLLECTED
        here += layer.blob.size * (1.0 if snapshot.fetched is None else snapshot.fetched)
    return Known(here / total)


def leaked_bytes(facts: StoreFacts, now: datetime.datetime) -> int:
    """Return the bytes of ingests that nobody has written to for long."""
    return sum(ingest.offset for ingest in facts.ingests if now - ingest.updated_at > STALE_INGEST)


def is_fall(before: Mapping[str, Level], after: Mapping[str, Level]) -> bool:
    """True if an image is colder than it was: that is told at once."""
    order = list(Level)
    return any(order.index(after.get(key, Level.COLD)) < order.index(level) for key, level in before.items())
