"""Look at containerd once, whole, and know images by their parts.

In: containerd. Out: StoreFacts, and the Image behind any digest whose manifest is here.

Why whole lists: five calls show every image of the node, where one image alone took 16 (images.md section 2). An image
behind a digest never changes, so it is read once.

Not here: what the facts mean (core/warmth.py).
"""

import asyncio
import collections
import dataclasses
import json
import pathlib
from collections.abc import Mapping

from agent.core import warmmanifest
from agent.model.warm import Descriptor, Image, Platform, Reason, Refused, Snapshot, StoreFacts
from agent.warmer.client import CallFailed, Client

MAX_KNOWN = 4096
"""Images remembered; the eldest goes first."""


class Survey:
    """Reads one containerd."""

    def __init__(self, runtime: Client, platform: Platform, snapshotter: str, lazy_root: pathlib.Path | None) -> None:
        self._runtime, self._platform, self._snapshotter, self._lazy_root = runtime, platform, snapshotter, lazy_root
        self.elsewhere: frozenset[str] = frozenset()
        """Snapshotters to look at besides; whoever learns of them sets it."""
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
        elsewhere = {name: await self._runtime.list_snapshots(name) for name in sorted(self.elsewhere)}
        return StoreFacts(
            elsewhere=elsewhere,
            blobs=blobs,
            ingests=ingests,
            snapshots=self._with_fetched(snapshots),
            records=records,
            leases=leases,
        )

    def remember(self, image: Image) -> None:
        """Know an image by what a tag points at."""
        self._known[image.root.digest] = image
        self._known.move_to_end(image.root.digest)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def known(self, digest: str) -> Image | None:
        """Return the image of a digest that was read before."""
        return self._known.get(digest)

    async def image(self, root: Descriptor, facts: StoreFacts) -> Image | Refused:
        """Return the image behind a digest, from the content store alone."""
        known = self._known.get(root.digest)
        if known is not None:
            return known
        try:
            found = await self._read_image(root, facts)
        except CallFailed as error:
            return Refused(reason=error.reason, detail=error.detail)
        if isinstance(found, Image):
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

    def _with_fetched(self, snapshots: Mapping[str, Snapshot]) -> Mapping[str, Snapshot]:
        if self._lazy_root is None or not any(snapshot.is_remote for snapshot in snapshots.values()):
            return snapshots
        share = read_fetched_share(self._lazy_root)
        return {
            name: dataclasses.replace(snapshot, fetched=share) if snapshot.is_remote else snapshot
            for name, snapshot in snapshots.items()
        }


def read_fetched_share(folder: pathlib.Path) -> float | None:
    """Return which share of all lazily mounted layers is here, from stargz' state files; None: nobody says.

    A file can be read half written, and its `fetchedPercent` stays 100 after the cache is gone (images.md section 7):
    bytes are counted, and a file that says `error`, or cannot be read, makes the whole unknown.
    """
    size = fetched = 0
    for path in sorted(folder.rglob(".stargz-snapshotter/sha256:*.json")):
        try:
            said = json.loads(path.read_text())
            if said.get("error"):
                return None
            size += int(said["size"])
            fetched += min(int(said["size"]), int(said["fetchedSize"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
    return fetched / size if size else None
