"""Pull one image, from lease to verified, so that it can be stopped at any moment and nothing is lost.

In: an image with its parts known, how it is to be held, a lease of ours. Out: it is warm; or an exception with a Reason.

States: downloading -> unpacking -> verifying. Everything that comes is under the lease from the first byte, so a pull that
is cancelled goes on where it was, and one that is given up leaves nothing once the lease is gone (images.md section 6).

Invariants: an RPC has no deadline shorter than the job; all of it is watched for blobs, layers and enough bytes instead,
whoever fetches them: a registry that drips would hold the only pull for good. What counts as done is what containerd has
(core/warmth.py), not what a call returned.

Two ways: the runtime's own pull, by Transfer where it has that, for an image that may be listed and needs no bandwidth
cap; else our own download, followed by the runtime's pull (visible) or our own unpack (shadow).
"""

import asyncio
import dataclasses
import datetime
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agent.core import warmpins, warmprogress, warmth
from agent.core.warmplan import Candidate
from agent.model.warm import Descriptor, Image, Layer, Platform, Reason, StoreFacts
from agent.warmer import transfer, unpack
from agent.warmer.client import CallFailed, Client
from agent.warmer.fetch import CHUNK_BYTES, Fetcher, Throttle
from agent.warmer.lazy import Lazy
from agent.warmer.parking import Parking
from agent.warmer.registry import Credentials, Registry
from agent.warmer.survey import Survey
from muster.model.warmth import Hold, Level, PullState

_log = logging.getLogger("muster.warmer")

WATCH_SECONDS = 1.0
SLOWEST_DOWNLOAD = 128 * 1024
"""Bytes a second, a megabit: 25 GB would take two days. What is slower waits its turn again, and goes on where it was."""
OPENING_STALLS = 4
"""Of our own downloads: each place in hosts.toml may take a socket's whole time before the next one is asked."""
_NOT_ABLE = frozenset(("INVALID_ARGUMENT", "UNIMPLEMENTED"))
"""What a containerd answers whose Transfer is not set up for this snapshotter: CRI's pull may be."""
SLOWEST_UNPACK = 8 * 1024 * 1024
"""Compressed bytes a second. 56 MiB/s was the slowest seen (images.md section 2); a layer may be 10 GB, and unpacking it
shows no progress."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What a pull may use."""

    runtime: Client
    registry: Registry
    survey: Survey
    lazy: Lazy
    throttle: Throttle
    parking: Parking
    snapshotter: str
    platform: Platform
    hosts_folder: str
    """Of hosts.toml files, as containerd sees it; empty: as it is configured."""
    stall_seconds: float
    is_capped: bool
    """Downloads are ours, at the throttle's rate."""


class Pull:
    """One pull. `state` and `fetched_bytes` may be read while it runs."""

    def __init__(
        self,
        ways: Ways,
        candidate: Candidate,
        ask: Callable[[], Awaitable[Credentials | None]],
        lease: str,
        expires_at: datetime.datetime,
        *,
        has_transfer: bool,
    ) -> None:
        assert isinstance(candidate.image, Image)
        self._ways, self._candidate, self._image = ways, candidate, candidate.image
        self._ask, self._lease, self._expires_at = ask, lease, expires_at
        self._credentials: Credentials | None = None
        self._registry = ways.registry.branch()
        self._fetcher = Fetcher(ways.runtime, self._registry, ways.throttle, ways.parking, lease)
        failure = candidate.failure
        was_corrupt = failure is not None and failure.reason is Reason.CORRUPT_BLOB
        # The runtime keeps the wrong bytes under our lease and would go on from them; our own download throws them away.
        self._is_own = candidate.hold is Hold.SHADOW or ways.is_capped or was_corrupt
        self._has_transfer = has_transfer
        self.extent = warmprogress.NOTHING
        """What a transfer said of itself."""
        self._pace = warmprogress.Pace(at=time.monotonic())
        self.state = PullState.RESOLVING
        self._spans: dict[PullState, tuple[float, int]] = {}

    @property
    def image(self) -> Image:
        return self._image

    @property
    def fetched_bytes(self) -> int:
        """Bytes that our own download has brought."""
        return self._fetcher.fetched_bytes

    def rates(self) -> dict[PullState, float]:
        """Return bytes a second of what was long enough to learn from."""
        return {state: size / seconds for state, (seconds, size) in self._spans.items() if seconds > 0.2 and size}

    async def run(self) -> None:
        """Pull; raises CallFailed or RegistryFailed, or is cancelled."""
        runtime, is_shadow = self._ways.runtime, self._candidate.hold is Hold.SHADOW
        self._credentials = await self._ask()
        self.state = PullState.DOWNLOADING
        await runtime.create_lease(self._lease, self._image.manifest.digest, self._expires_at, is_done=False)
        facts = await self._ways.survey.read()
        if self._is_own:
            began = time.monotonic()
            try:
                await self._watched(self._download(facts))
            except CallFailed as error:
                if error.reason is Reason.STALLED:
                    self._give_up_connections()
                raise
            self._spans[PullState.DOWNLOADING] = (time.monotonic() - began, self.fetched_bytes)
        self.state = PullState.UNPACKING if self._is_own else PullState.DOWNLOADING
        if is_shadow:
            work = unpack.unpack(
                runtime,
                self._image,
                frozenset(facts.snapshots),
                snapshotter=self._ways.snapshotter,
                lease=self._lease,
                note=self._note_layer,
            )
        else:
            work = self._by_runtime()
        began, packed = time.monotonic(), warmth.assess(self._image, facts).unpack_missing_bytes
        await self._watched(work)
        if self._is_own:
            self._spans[PullState.UNPACKING] = (time.monotonic() - began, packed)
        self.state = PullState.VERIFYING
        await self._verify()

    async def _by_runtime(self) -> None:
        """Have the runtime pull."""
        wanted, name = self._candidate.wanted, self._candidate.key
        if self._has_transfer and not self._is_own:
            # The keeper dates it.
            pinned = {warmth.PIN_LABEL: "pinned", warmpins.MARK: "true"}
            wish = transfer.Wish(
                reference=wanted.reference,
                platform=self._ways.platform,
                snapshotter=self._ways.snapshotter,
                hosts_folder=self._ways.hosts_folder,
                labels=pinned if wanted.pin else {},
                credentials=self._credentials,
                lease=self._lease,
            )
            try:
                await transfer.pull(self._ways.runtime, wish, self._note_progress)
            except CallFailed as error:
                if error.code not in _NOT_ABLE:
                    raise
                _log.info("no transfer of %s: %s", name, error.detail[:200])
                await self._ways.runtime.pull(name, self._credentials, lease=self._lease, handler="")
            # CRI's own pull finds all of it here and makes the names that are missing. By digest: one by tag would
            # write the tag's record anew, without its labels.
            name = wanted.reference.at(self._image.root.digest)
        await self._ways.runtime.pull(name, self._credentials, lease=self._lease, handler="")

    def _note_progress(self, said: warmprogress.Progress) -> None:
        before, self.extent = self.extent, warmprogress.add(self.extent, said)
        # Bytes that come are seen in the store, and have to be enough.
        if (self.extent.unpacking, self.extent.unpacked) != (before.unpacking, before.unpacked):
            self._go_on()

    async def _download(self, facts: StoreFacts) -> None:
        """Bring what is missing: the small parts first, then the layers that are not unpacked."""
        reference, image = self._candidate.wanted.reference, self._image
        for part in dict.fromkeys((image.root, image.manifest)):
            if part.digest not in facts.blobs:
                data = await asyncio.to_thread(
                    self._registry.read, reference, part.digest, self._credentials, is_manifest=True
                )
                await self._fetcher.put(part, data)
        packed = [layer.blob for layer in image.layers if layer.chain_id not in facts.snapshots]
        for blob in dict.fromkeys((image.config, *packed)):
            await self._fetcher.fetch(reference, blob, self._credentials)
        for blob in (image.root, *image.blobs):
            await self._keep(blob, facts)

    async def _keep(self, blob: Descriptor, facts: StoreFacts) -> None:
        """Put a blob that was there before under our lease, or its next owner's end would be ours."""
        if blob.digest in facts.blobs:
            await self._ways.runtime.add_resource(self._lease, "content", blob.digest)

    def _give_up_connections(self) -> None:
        """Close those of this image: one that brings next to nothing holds a thread, and is no way to go on."""
        self._registry.close()
        for blob in self._image.blobs:
            self._ways.parking.drop(blob.digest)

    def _note_layer(self, _: Layer) -> None:
        self._go_on()

    def _go_on(self) -> None:
        self._pace = dataclasses.replace(self._pace, at=time.monotonic())

    async def _watched(self, work: Awaitable[None]) -> None:
        """Await work, and give it up when it does not go on."""
        task = asyncio.ensure_future(work)
        self._go_on()
        try:
            while not (await asyncio.wait((task,), timeout=WATCH_SECONDS))[0]:
                await self._watch()
            await task
        finally:
            # What containerd does of ours must have ended before the lease or the snapshots are touched.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        facts = await self._ways.survey.read()
        found = warmth.assess(self._image, facts)
        is_here = found.bytes_missing == 0
        patience, rate = self._ways.stall_seconds, self._least_rate()
        if is_here:
            self.state = PullState.UNPACKING
            patience += max(layer.blob.size for layer in self._image.layers) / SLOWEST_UNPACK
        elif self._is_own:
            patience = patience * OPENING_STALLS + CHUNK_BYTES / rate
        least = max(1, round(patience * rate))
        blobs = sum(blob.digest in facts.blobs for blob in self._image.blobs)
        self._pace = warmprogress.look(
            self._pace,
            done=(blobs, found.layers_missing),
            bytes_missing=found.bytes_missing,
            least=least,
            now=time.monotonic(),
        )
        if time.monotonic() - self._pace.at > patience:
            detail = f"neither a blob nor a layer, and less than {least} bytes, within {patience:.0f} s"
            raise CallFailed(Reason.STALLED, "", detail)

    def _least_rate(self) -> float:
        """Return the bytes a second that a download has to bring, under a cap half of what that lets pass."""
        cap = self._ways.throttle.bytes_per_second
        return SLOWEST_DOWNLOAD if cap is None else min(SLOWEST_DOWNLOAD, cap / 2)

    async def _verify(self) -> None:
        found = warmth.assess(self._image, await self._ways.survey.read())
        if found.level not in {Level.UNPACKED, Level.LAZY}:
            raise CallFailed(
                Reason.INCOMPLETE,
                "",
                f"{found.bytes_missing} bytes and {found.layers_missing} layers are missing after the pull",
            )


def outcome(task: "asyncio.Task[Any]") -> BaseException | None:
    """Return what ended a pull; None: it is warm."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()
