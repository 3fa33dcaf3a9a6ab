"""Leases and pins: make, renew, settle, judge, let go.

In: what the plan says. Out: leases and labels in containerd.

Invariant: nothing is deleted or changed that does not carry our mark: a lease's owner label, a record's own pin label
beside the runtime's. containerd updates no lease, so one is renewed by making another before it ends (images.md section
6.3), and one that says "complete" is made when the image is.
"""

import asyncio
import datetime
import logging
import pathlib
import random
import time
from collections.abc import Iterable

from agent.core import warmlazy, warmpins, warmth, warmyield
from agent.core.warmplan import Candidate, Plan
from agent.model.warm import Image, Lease, Limits, Reason, StoreFacts
from agent.warmer import fingerprint
from agent.warmer.client import CallFailed, Client
from agent.warmer.config import WarmerConfig
from agent.warmer.journal import Journal
from muster.clock import Clock

_log = logging.getLogger("muster.warmer")

_PIN_SEEN_SECONDS = 0.2
"""CRI learns of a label by event: 4 ms (images.md section 2)."""


class Keeper:
    """Keeps what is ours in one containerd."""

    def __init__(self, config: WarmerConfig, runtime: Client, limits: Limits, clock: Clock) -> None:
        self._config, self._runtime, self._limits, self._clock = config, runtime, limits, clock
        self._can_pin = True
        self._judged: set[str] = set()
        self._dropped: set[str] = set()
        """Manifests of suspects."""

    def new_name(self, image: Image) -> str:
        """Return a name for a lease of an image; no two are alike."""
        return self._named(f"{self._config.owner}-warm-{image.manifest.digest[7:19]}")

    def expires_at(self) -> datetime.datetime:
        """Return when a lease that is made now ends."""
        return self._clock.utc() + datetime.timedelta(seconds=self._limits.lease_seconds)

    async def renew(self, lease: Lease) -> None:
        """Put what a lease holds under a new one."""
        await self._replace(lease.id, self._named(lease.id.rpartition("-")[0]), lease.digest, is_done=lease.is_done)
        await self._runtime.delete_lease(lease)

    async def settle(self, image: Image, lease: str, *, is_shadow: bool) -> None:
        """After a pull: a shadow has one lease, which says that it is complete; a visible image needs none."""
        digest, kept = image.manifest.digest, self.new_name(image)
        if is_shadow:
            await self._replace(lease, kept, digest, is_done=True)
        await self.drop(digest, but=kept)

    async def drop(self, digest: str, *, but: str = "") -> None:
        """Delete our leases of an image."""
        for each in await self._runtime.list_leases():
            if each.digest == digest and each.id != but:
                await self._runtime.delete_lease(each)

    async def pin(self, candidate: Candidate, facts: StoreFacts) -> None:
        """Pin where this containerd can; it can if CRI then says so. A pin that had its time is not set again."""
        record, utc = facts.records.get(candidate.key), self._clock.utc()
        if not self._can_pin or record is None or warmpins.is_over(record, utc, self._limits.pin_seconds):
            return
        await self._runtime.set_label(candidate.key, warmpins.MARK, warmpins.stamp(utc))
        await self._runtime.set_label(candidate.key, warmth.PIN_LABEL, "pinned")
        await asyncio.sleep(_PIN_SEEN_SECONDS)
        seen = await self._runtime.cri_image(candidate.key)
        if seen is not None and not seen.pinned:
            self._can_pin = False
            _log.warning(
                "this containerd does not pin images; they are kept as the kubelet's garbage collection sees fit"
            )

    async def unpin(self, facts: StoreFacts, candidates: tuple[Candidate, ...], plan: Plan) -> None:
        """Take pins of ours away: those that nobody asks for or can pay any more, and those that had their time."""
        unaffordable = {key for key, wait in plan.waits.items() if wait.reason is Reason.OVER_BUDGET}
        utc, seconds = self._clock.utc(), self._limits.pin_seconds
        ends = warmpins.ends(facts.records, candidates, unaffordable, utc, seconds)
        for name in (*ends.forget, *ends.end):
            await self._runtime.set_label(name, warmth.PIN_LABEL, "")
            _log.info("%s is pinned no more", name)
        for name in ends.forget:
            await self._runtime.set_label(name, warmpins.MARK, "")
        for name in ends.date:
            await self._runtime.set_label(name, warmpins.MARK, warmpins.stamp(utc))

    async def judge(self, journal: Journal, images: Iterable[Image], facts: StoreFacts) -> None:
        """Look at suspects' files, once for as long as they are there; a shadow with others goes, to be pulled again.

        What the runtime lists is not ours to remove: it stays a suspect, and is told as one.
        """
        here = {image.manifest.digest: image for image in images if image.top in facts.snapshots}
        self._judged &= here.keys()
        for digest in journal.suspects.keys() & here.keys() - self._judged:
            self._judged.add(digest)
            if not journal.judged(digest, await self.fingerprint(here[digest])):
                _log.warning("the files of %s are not what they were before the boot, or cannot be read", digest)
                # Once: what others hold is there again at once, as it was.
                if digest not in self._dropped:
                    self._dropped.add(digest)
                    await self.drop(digest)

    async def fingerprint(self, image: Image) -> str:
        """Return what an image's files are like; empty: they cannot be read from here, or are a remote snapshotter's."""
        key = f"{warmyield.OWN_PREFIX}{time.time_ns():x}"
        try:
            mounts = await self._runtime.view(self._config.snapshotter, key, image.top)
            try:
                folders = [pathlib.Path(folder) for folder in warmlazy.folders(mounts)]
                return await asyncio.to_thread(fingerprint.of, folders)
            finally:
                await self._runtime.remove_snapshot(self._config.snapshotter, key)
        except CallFailed as error:
            _log.info("the files of %s cannot be looked at: %s", image.manifest.digest, error.detail[:200])
            return ""

    async def _replace(self, old: str, new: str, digest: str, *, is_done: bool) -> None:
        await self._runtime.create_lease(new, digest, self.expires_at(), is_done=is_done)
        await self._runtime.copy_resources(old, new)

    @staticmethod
    def _named(stem: str) -> str:
        return f"{stem}-{time.time_ns():x}{random.randrange(4096):03x}"  # noqa: S311 -- a name, not a secret
