"""Is somebody else pulling, or starting a container, on this node?

In: containerd's ingests at two looks, or one event; what belongs to our own pull. Out: why our pull should stand back, or
an empty text.

Invariant: what is ours never makes us yield, and neither does the kubelet pulling the very image that we pull: it joins
and finishes in the time of one pull (images.md section 6.6). An ingest that does not move is a dead one, not a pull.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from agent.model.warm import Ingest

OWN_PREFIX = "muster-unpack-"
"""Keys of the snapshots that we unpack into, or look at."""

_EXTRACT = "extract-"
"""containerd's own unpacks: `extract-TIME-RANDOM CHAINID`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What our pull consists of."""

    digests: frozenset[str] = frozenset()
    chain_ids: frozenset[str] = frozenset()


def of_ingests(before: Mapping[str, int], now: Iterable[Ingest], ours: Ours) -> str:
    """Return why to yield after two looks; `before` maps refs to offsets."""
    moving = sorted(
        ingest.ref for ingest in now if ingest.digest not in ours.digests and before.get(ingest.ref) != ingest.offset
    )
    return f"another image is being pulled ({moving[0][:40]})" if moving else ""


def is_own(key: str) -> bool:
    """Return whether a snapshot that comes or goes is one that we work with."""
    return key.startswith(OWN_PREFIX)


def of_prepare(key: str, ours: Ours) -> str:
    """Return why to yield when containerd prepares a snapshot.

    >>> of_prepare("extract-123-abc sha256:ff", Ours(chain_ids=frozenset(["sha256:ff"])))
    ''
    >>> of_prepare("2f5a...", Ours())
    'a container is being created'
    """
    if is_own(key):
        return ""
    if not key.startswith(_EXTRACT):
        return "a container is being created"
    chain_id = key.rpartition(" ")[2]
    return "" if chain_id in ours.chain_ids else "another image is being unpacked"


def of_content(digest: str, ours: Ours) -> str:
    """Return why to yield when a blob has been written."""
    return "" if digest in ours.digests else "another image is being pulled"
