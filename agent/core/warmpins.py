"""Which of our pins go: nobody asks for them any more, no budget has room for them, or they had their time.

In: image records with their labels, what is wanted, what waits for room in its budget, now. Out: names.

Invariants: a pin that does not carry our mark beside it is somebody else's, and stays. The mark says when the pin was set;
it stays on a record whose pin had its time, so that it is not set again before the image is pulled anew or asked for anew.

Why they end at all: pins that nobody takes away and a full disk end in ImageGCFailed (images.md section 8).
"""

import dataclasses
import datetime
from collections.abc import Collection, Mapping, Sequence

from agent.core import warmth
from agent.core.warmplan import Candidate
from agent.model.warm import Image, ImageRecord

MARK = "muster.dev/pinned"
"""Beside the runtime's own label on a record that we pinned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What is to be done to records, by name."""

    forget: tuple[str, ...] = ()
    """Pin and mark go."""
    end: tuple[str, ...] = ()
    """The pin goes."""
    date: tuple[str, ...] = ()
    """Its mark does not say since when: it is now."""


def stamp(utc: datetime.datetime) -> str:
    """Return a mark.

    >>> stamp(datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC))
    '2026-12-02T00:00:00Z'
    """
    return utc.isoformat(timespec="seconds").replace("+00:00", "Z")


def is_over(record: ImageRecord, utc: datetime.datetime, seconds: float) -> bool:
    """Return whether a pin of ours had its time; without a bound none ever has."""
    since = _since(record)
    return bool(seconds) and since is not None and (utc - since).total_seconds() > seconds


def ends(
    records: Mapping[str, ImageRecord],
    candidates: Sequence[Candidate],
    unaffordable: Collection[str],
    utc: datetime.datetime,
    seconds: float,
) -> Ends:
    """Return what is to be done; `unaffordable` are the candidates that their budget has no room for.

    What is not resolved keeps the pin of its own name alone.
    """
    pinned = [each for each in candidates if each.wanted.pin and each.key not in unaffordable]
    asked = {
        digest
        for candidate in pinned
        if isinstance(candidate.image, Image)
        for digest in (candidate.image.root.digest, candidate.image.manifest.digest)
    }
    unresolved = {candidate.key for candidate in pinned if candidate.image is None}
    ours = {name: record for name, record in sorted(records.items()) if MARK in record.labels}
    kept = {name: record for name, record in ours.items() if record.digest in asked or name in unresolved}
    return Ends(
        forget=tuple(name for name in ours if name not in kept),
        end=tuple(
            name for name, record in kept.items() if warmth.PIN_LABEL in record.labels and is_over(record, utc, seconds)
        ),
        date=tuple(name for name, record in kept.items() if _since(record) is None),
    )


def _since(record: ImageRecord) -> datetime.datetime | None:
    try:
        since = datetime.datetime.fromisoformat(record.labels.get(MARK, ""))
    except ValueError:
        return None
    return since if since.tzinfo is not None else None
