"""Look at containerd once, whole, and know images by their parts.

In: containerd. Out: StoreFacts, and the Image behind any digest whose manifest is here.

Why whole lists: five calls show every image of the node, where one image alone took 16 (images.md section 2). An image
behind a digest never changes, so it is read once.

Invariant: another snapshotter that fails or hangs, a program of its own, hides nothing but what it has itself: it is left
out, which is not known, not empty.

Not here: what the facts mean (core/warmth.py).
"""

import asyncio
import collections
import logging
import time
from collections.abc import Mapping

from agent.core import warmmanifest
from agent.model.warm import Descriptor, Image, Platform, Reason, Refused, Snapshot, StoreFacts
from agent.warmer.client import CallFailed, Client
from agent.warmer.lazy import Lazy

_log = logging.getLogger("muster.warmer")

ELSEWHERE_SECONDS = 2.0
"""Pulls are watched by looks like these, and their own snapshotter answers in milliseconds (images.md section 2)."""
AWAY_SECONDS = 10.0
MAX_KNOWN = 4096
"""Images remembered; the eldest goes first."""


class Survey:
    """Reads one containerd."""

    def __init__(self, runtime: Client, platform: Platform, snapshotter: str, lazy: Lazy) -> None:
        self._runtime, self._platform, self._snapshotter, self._lazy = runtime, platform, snapshotter, lazy
        self.elsewhere: frozenset[str] = frozenset()
        """Snapshotters to look at besides; whoever learns of them sets it."""
        self._away_until: dict[str, float] = {}
        self._known: collections.OrderedDict[str, Image] = collections.OrderedDict()

    async def read(self) -> StoreFacts:
        """Take one look."""
        records, blobs, ingests, snapshots, leases = await asyncio.gather(
            self._runtime.list_records(),
            self._runtime.list_blobs(),
            self._runtime.list_ingests(),
            self._runtime.list_snapshots(self._snapshotter),
            self._runtime.list_leases(),
        )
        return StoreFacts(
            elsewhere=await self._look_elsewhere(),
            blobs=blobs,
            ingests=ingests,
            snapshots=self._lazy.shown(snapshots),
            records=records,
            leases=leases,
        )

    async def _look_elsewhere(self) -> dict[str, Mapping[str, Snapshot]]:
        names = [name for name in sorted(self.elsewhere) if self._away_until.get(name, 0.0) <= time.monotonic()]
        found = await asyncio.gather(*(self._list_elsewhere(name) for name in names))
        return {name: snapshots for name, snapshots in zip(names, found, strict=True) if snapshots is not None}

    async def _list_elsewhere(self, name: str) -> Mapping[str, Snapshot] | None:
        """Return the snapshots of another snapshotter; None: it does not say, and is left alone for a while."""
        try:
            async with asyncio.timeout(ELSEWHERE_SECONDS):
                found = await self._runtime.list_snapshots(name)
        except (CallFailed, TimeoutError) as error:
            if name not in self._away_until:
                _log.warning("what snapshotter %s has is not known: %s", name, str(error)[:200] or "no answer")
            self._away_until[name] = time.monotonic() + AWAY_SECONDS
            return None
        self._away_until.pop(name, None)
        return found

    def remember(self, image: Image) -> None:
        """Know an image by what a tag points at."""
        self._known[image.root.digest] = image
        self._known.move_to_end(image.root.digest)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def image(self, root: Descriptor, facts: StoreFacts, *, is_kept: bool = True) -> Image | Refused:
        """Return the image behind a digest, from the content store alone; what is not kept is read again next time."""
        known = self._known.get(root.digest)
        if known is not None:
            return known
        try:
            found = await self._read_image(root, facts)
        except CallFailed as error:
            return Refused(reason=error.reason, detail=error.detail)
        if is_kept and isinstance(found, Image):
            self.remember(found)
        return found

    async def _read_image(self, root: Descriptor, facts: StoreFacts) -> Image | Refused:
        data = await self._blob(root.digest, facts)
        if isinstance(data, Refused):
            return data
        chosen = warmmanifest.choose(data, self._platform)
        if isinstance(chosen, Refused):
            return chosen
        manifest = root if chosen is None else chosen
        if chosen is not None:
            data = await self._blob(manifest.digest, facts)
            if isinstance(data, Refused):
                return data
        config = warmmanifest.config_of(data)
        if isinstance(config, Refused):
            return config
        config_data = await self._blob(config.digest, facts)
        if isinstance(config_data, Refused):
            return config_data
        return warmmanifest.image(root=root, manifest=manifest, manifest_data=data, config_data=config_data)

    async def _blob(self, digest: str, facts: StoreFacts) -> bytes | Refused:
        size = facts.blobs.get(digest)
        if size is None:
            return Refused(reason=Reason.NOT_FOUND, detail=f"{digest} is not on the node")
        if size > warmmanifest.MAX_BYTES:
            return Refused(reason=Reason.BAD_MANIFEST, detail=f"{digest} has {size} bytes")
        return await self._runtime.read_blob(digest)
