"""What a node tells of its images.

In: the wanted images with what is known of them, one look at containerd, the node's other images. Out: a NodeWarmth,
within the feed's bounds.

Invariant: wanted images are told before all others, whatever the bound; an image that is wanted and unknown is told as
cold, with the reason. The same facts give the same report, so that a node at rest has nothing to tell.
"""

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence

from agent.core import warmth
from agent.core.warmplan import Candidate
from agent.model.warm import Image, Refused, StoreFacts
from muster.model.reading import NOT_COLLECTED
from muster.model.warmth import (
    MAX_IMAGES,
    MAX_LAYERS,
    MAX_TAGS,
    Hold,
    ImageStore,
    ImageWarmth,
    Level,
    NodeWarmth,
    PullState,
    TagObservation,
    layer_prefix,
)

_TEXT = 300


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a report is made of."""

    candidates: Sequence[Candidate]
    facts: StoreFacts
    others: Mapping[str, Image]
    """Name that the runtime lists -> image."""
    pulls: Mapping[str, PullState]
    """Reference -> where our pull of it is."""
    waits: Mapping[str, Refused]
    tags: Iterable[TagObservation]
    unverified: frozenset[str] = frozenset()
    """Digests of manifests."""
    more: int = 0
    """Images that were not looked at."""


def report(known: Known, store: ImageStore, platform: str, now: datetime.datetime) -> NodeWarmth:
    """Return the report."""
    images: dict[str, ImageWarmth] = {}
    for candidate in known.candidates:
        told = _wanted(candidate, known, store.snapshotter, platform)
        images.setdefault(told.key, told)
    more, names = known.more, warmth.names_of(known.facts)
    for name, image in sorted(known.others.items()):
        found = warmth.assess(image, known.facts, names)
        told = _measured(name, image, found, known, store.snapshotter, platform)
        if told.key not in images and len(images) >= MAX_IMAGES:
            more += 1
        else:
            images.setdefault(told.key, told)
    for told in _elsewhere(known, platform, names):
        if told.key not in images and len(images) >= MAX_IMAGES:
            more += 1
        else:
            images.setdefault(told.key, told)
    kept = sorted(list(images)[:MAX_IMAGES])
    tags = sorted(known.tags, key=lambda tag: tag.reference)[:MAX_TAGS]
    return NodeWarmth(
        observed_at=now,
        store=dataclasses.replace(store, images_more=more + len(images) - len(kept)),
        images=tuple(images[key] for key in kept),
        tags=tuple(tags),
        layers=tuple(sorted({layer_prefix(name) for name in known.facts.snapshots if _is_chain_id(name)})[:MAX_LAYERS]),
    )


def _wanted(candidate: Candidate, known: Known, snapshotter: str, platform: str) -> ImageWarmth:
    wait = known.waits.get(candidate.key)
    pull = known.pulls.get(candidate.key, PullState.IDLE)
    if pull is PullState.IDLE and not candidate.is_warm:
        pull = PullState.FAILED if candidate.failure is not None else PullState.QUEUED
    reason, detail = ("", "") if wait is None else (wait.reason.value, wait.detail)
    if not reason and candidate.failure is not None:
        reason, detail = candidate.failure.reason.value, candidate.failure.detail
    if not isinstance(candidate.image, Image) or candidate.warmth is None:
        return ImageWarmth(
            digest="",
            reference=candidate.key,
            platform=platform,
            snapshotter=snapshotter,
            level=Level.COLD,
            hold=Hold.NOTHING,
            is_wanted=True,
            bytes_total=0,
            bytes_missing=0,
            layers_total=0,
            layers_missing=0,
            fetched_fraction=NOT_COLLECTED,
            pull=pull,
            reason=reason,
            detail=detail[:_TEXT],
        )
    told = _measured(candidate.key, candidate.image, candidate.warmth, known, snapshotter, platform)
    return dataclasses.replace(told, is_wanted=True, pull=pull, reason=reason, detail=detail[:_TEXT])


def _elsewhere(known: Known, platform: str, names: warmth.Names) -> Iterable[ImageWarmth]:
    """Yield what other snapshotters have of the node's images; an image of which one has nothing is not told."""
    wanted = {each.key: each.image for each in known.candidates if isinstance(each.image, Image)}
    for snapshotter, snapshots in sorted(known.facts.elsewhere.items()):
        facts = dataclasses.replace(known.facts, snapshots=snapshots)
        for name, image in {**known.others, **wanted}.items():
            if not image.chain_ids.isdisjoint(snapshots):
                found = warmth.assess(image, facts, names)
                yield _measured(name, image, found, known, snapshotter, platform)


def _measured(
    name: str, image: Image, found: warmth.Warmth, known: Known, snapshotter: str, platform: str
) -> ImageWarmth:
    return ImageWarmth(
        digest=image.manifest.digest,
        reference=name[:_TEXT],
        platform=platform,
        snapshotter=snapshotter,
        level=found.level,
        hold=found.hold,
        is_wanted=False,
        is_pinned=found.is_pinned,
        bytes_total=found.bytes_total,
        bytes_missing=found.bytes_missing,
        layers_total=len(image.layers),
        layers_missing=found.layers_missing,
        fetched_fraction=found.fetched_fraction,
        lease_expires_at=found.lease.expires_at if found.lease is not None else None,
        unverified=image.manifest.digest in known.unverified,
    )


def _is_chain_id(name: str) -> bool:
    return name.startswith("sha256:") and len(name) == 71
