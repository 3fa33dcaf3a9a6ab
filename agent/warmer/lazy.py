"""Read the rest of lazily mounted images, slowly, while the node has nothing better to do.

In: images whose layers a remote snapshotter mounted. Out: their files read once, which fetches what was missing; and for
every such layer how much of it is here, or why it cannot be read.

Invariants: a layer is warm by its state file and by a file that could be read, never by the runtime's word alone. Whoever
needs the node goes first: he is asked about before every piece. Nothing outside a layer's own mount is ever opened
(lazyfiles.py). The node is never switched to a lazy snapshotter; an image is only read if the runtime mounted it so.

Why a loop of its own: a FUSE mount can hang when its daemon does, and the warmer's other work must not wait for it.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import pathlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping

from agent.core import warmlazy, warmyield
from agent.model.warm import Image, Snapshot
from agent.warmer import lazyfiles
from agent.warmer.client import CallFailed, Client
from agent.warmer.fetch import Throttle
from agent.warmer.lazythread import LayerThread

_log = logging.getLogger("muster.warmer")

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""A daemon that is stuck, or waits for a registry that is."""
LOOKS_AT_ONCE = 8
"""A daemon that hangs has each of its layers waited for once: with 50 layers that is 4 min, and 25 one by one."""
PROBE_SECONDS = 60.0
"""Between two looks whether a layer can really be read."""
RETRY_SECONDS = 60.0
"""After a layer could not be read, or a view made: each try asks its registry, or containerd."""
MISMATCH_SECONDS = 600.0
"""After a view whose folders are not the image's layers: it will not be another one soon."""


@dataclasses.dataclass(slots=True)
class _Layer:
    """What is known of one mounted layer."""

    folder: pathlib.Path | None = None
    """Where it is mounted; None: not known yet."""
    fetched: float | None = None
    read_problem: str = ""
    """Why it could not be read when that was tried last; only a read takes that back."""
    said: str = ""
    """The error in its state file."""
    forgiven: str = ""
    """An error of its state file, which stays there, after which all of it could be read."""
    is_read: bool = False
    """All its files were read, whatever the state file counts."""
    thread: LayerThread = dataclasses.field(default_factory=LayerThread)
    probe_at: float = 0.0
    retry_at: float = 0.0
    place: lazyfiles.Place = lazyfiles.BEGINNING
    """Where reading goes on, after a pause or at what could not be read."""

    @property
    def problem(self) -> str:
        return self.read_problem or self.said


class Lazy:
    """All lazily mounted layers of one node. Belongs to one event loop."""

    def __init__(
        self,
        runtime: Client,
        snapshotter: str,
        throttle: Throttle | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare it; without a throttle nothing is read but what says how much is here."""
        self._runtime, self._snapshotter, self._throttle, self._monotonic = runtime, snapshotter, throttle, monotonic
        self._layers: dict[str, _Layer] = {}
        self._snapshots: Mapping[str, Snapshot] = {}
        self._mounted: tuple[Image, ...] = ()
        self._wanted: tuple[Image, ...] = ()
        self._learn_at: dict[str, float] = {}
        """When an image may be tried again whose view did not help, by its top."""
        self._wake = asyncio.Event()
        self.read_bytes = 0

    def tell(self, wanted: tuple[Image, ...], others: tuple[Image, ...], snapshots: Mapping[str, Snapshot]) -> None:
        """Take which images there are now; only those that are wanted are read."""
        is_new = self._snapshots.keys() != snapshots.keys()
        self._snapshots = snapshots
        self._wanted = tuple(image for image in wanted if _is_mounted(image, snapshots))
        self._mounted = (*self._wanted, *(image for image in others if _is_mounted(image, snapshots)))
        for chain in [chain for chain in self._layers if chain not in snapshots]:
            del self._layers[chain]
        for top in [top for top in self._learn_at if top not in snapshots]:
            del self._learn_at[top]
        if is_new:
            self._wake.set()

    def shown(self, snapshots: Mapping[str, Snapshot]) -> Mapping[str, Snapshot]:
        """Return the snapshots with what their layers said last."""
        said = {
            chain: dataclasses.replace(snapshots[chain], fetched=layer.fetched, problem=layer.problem)
            for chain, layer in self._layers.items()
            if chain in snapshots and snapshots[chain].is_remote
        }
        return {**snapshots, **said} if said else snapshots

    async def run(self, is_busy: Callable[[], bool], changed: Callable[[], None]) -> None:
        """Look, and read, until cancelled. `changed` hears of everything new."""
        while True:
            self._wake.clear()
            for image in self._mounted:
                await self._guarded(self._learn(image), changed, *self._remote(image))
            slots = asyncio.Semaphore(LOOKS_AT_ONCE)
            looks = [self._guarded(self._look(each, slots, is_busy), changed, each) for each in self._layers.values()]
            await asyncio.gather(*looks)
            unread = self._unread()
            if unread is not None and not is_busy():
                await self._guarded(self._read(unread, is_busy), changed, unread)
            if self._unread() is None or is_busy():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()

    async def _guarded(self, work: Awaitable[None], changed: Callable[[], None], *layers: _Layer) -> None:
        """Do one thing for some layers, and tell; a fault of ours in it makes them broken, and ends nothing else."""
        before = [(layer.fetched, layer.problem) for layer in layers]
        try:
            await work
        except Exception as error:  # noqa: BLE001 -- one image must not end the warmer for all others
            _log.error("a lazily mounted image cannot be looked at, by a fault of ours", exc_info=error)
            for layer in layers:
                self._fail(layer, error)
        if before != [(layer.fetched, layer.problem) for layer in layers]:
            changed()

    def _remote(self, image: Image) -> tuple[_Layer, ...]:
        """Return the layers of an image that lie elsewhere; where they are mounted may not be known yet."""
        found = [one.chain_id for one in image.layers if one.chain_id in self._snapshots]
        return tuple(self._layers.setdefault(chain, _Layer()) for chain in found if self._snapshots[chain].is_remote)

    def _unread(self) -> _Layer | None:
        """Return the next layer to read, of the first wanted image that has one."""
        if self._throttle is None:
            return None
        for image in self._wanted:
            for one in image.layers:
                layer = self._layers.get(one.chain_id)
                if layer is None or layer.folder is None or layer.is_read or self._monotonic() < layer.retry_at:
                    continue
                if layer.fetched != 1.0 or layer.problem:
                    return layer
        return None

    async def _learn(self, image: Image) -> None:
        """Learn where the layers of an image are mounted: a view says it, and is removed at once."""
        if not _is_mounted(image, self._snapshots):
            return  # It went while another image was looked at.
        if all(layer.folder is not None for layer in self._remote(image)):
            return
        if self._monotonic() < self._learn_at.get(image.top, 0.0):
            return
        self._learn_at[image.top] = self._monotonic() + RETRY_SECONDS
        key = f"{warmyield.OWN_PREFIX}view-{uuid.uuid4().hex[:12]}"
        try:
            mounts = await self._runtime.view(self._snapshotter, key, image.top)
            await self._runtime.remove_snapshot(self._snapshotter, key)
        except CallFailed as error:
            _log.info("a lazily mounted image cannot be looked at: %s", error.detail[:200])
            return
        folders = warmlazy.folders(mounts)
        if len(folders) != len(image.layers):
            _log.info("a lazily mounted image of %d layers has %d folders", len(image.layers), len(folders))
            self._learn_at[image.top] = self._monotonic() + MISMATCH_SECONDS
            return
        self._learn_at.pop(image.top, None)
        for one, folder in zip(image.layers, reversed(folders), strict=True):
            layer = self._layers.get(one.chain_id)
            if layer is not None and layer.folder is None:
                layer.folder, layer.read_problem = pathlib.Path(folder), ""

    async def _look(self, layer: _Layer, slots: asyncio.Semaphore, is_busy: Callable[[], bool]) -> None:
        """Read what a layer says of itself, and now and then a file of it, which may ask its registry."""
        folder = layer.folder
        if folder is None:
            return
        try:
            async with slots:
                share = warmlazy.parse(await layer.thread.run(lambda: lazyfiles.state(folder), ANSWER_SECONDS))
                if share is not None:
                    layer.fetched = share.fraction
                    layer.said = share.error if share.error != layer.forgiven else ""
                if self._monotonic() >= layer.probe_at and not is_busy():
                    layer.probe_at = self._monotonic() + PROBE_SECONDS
                    await layer.thread.run(functools.partial(lazyfiles.probe, folder, layer.place), ANSWER_SECONDS)
                    layer.read_problem = ""
        except FileNotFoundError:
            layer.fetched = None  # Not to be seen from here, or not stargz.
        except OSError as error:
            self._fail(layer, error)

    async def _read(self, layer: _Layer, is_busy: Callable[[], bool]) -> None:
        """Read on in a layer, for a while or until the node is needed."""
        folder = layer.folder
        assert self._throttle is not None
        assert folder is not None
        until = self._monotonic() + LOOK_SECONDS
        following: lazyfiles.Place | None = layer.place
        try:
            while following is not None:
                layer.place = following
                size, following = await layer.thread.run(
                    functools.partial(lazyfiles.read, folder, following), ANSWER_SECONDS
                )
                self.read_bytes += size
                await self._throttle.spend(size)
                if following is not None and (is_busy() or self._monotonic() > until):
                    layer.place = following
                    return
            share = warmlazy.parse(await layer.thread.run(lambda: lazyfiles.state(folder), ANSWER_SECONDS))
        except FileNotFoundError:
            share = None
        except OSError as error:
            self._fail(layer, error)
            return
        layer.is_read, layer.read_problem, layer.said, layer.place = True, "", "", lazyfiles.BEGINNING
        if share is not None:
            layer.fetched, layer.forgiven = share.fraction, share.error

    def _fail(self, layer: _Layer, error: Exception) -> None:
        said = (error.strerror if isinstance(error, OSError) else "") or repr(error)[:200]
        if isinstance(error, TimeoutError):
            said = "no answer"
        if layer.read_problem != said:
            _log.info("a lazily mounted layer cannot be read: %s", said)
        layer.read_problem, layer.is_read = said, False
        layer.retry_at = self._monotonic() + RETRY_SECONDS


def _is_mounted(image: Image, snapshots: Mapping[str, Snapshot]) -> bool:
    """True if all of an image is there and some of it lies elsewhere."""
    found = [snapshots.get(layer.chain_id) for layer in image.layers]
    return all(found) and any(snapshot is not None and snapshot.is_remote for snapshot in found)
