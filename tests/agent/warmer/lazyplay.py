"""Lazily mounted images on plain folders, and a client that says where they are: no daemon, no mount.

What a mount does that a folder cannot, as to hang or to give errors, is done by standing in for the blocking calls.
"""

import asyncio
import contextlib
import json
import time

from agent.model.warm import Descriptor, Image, Layer, Snapshot
from agent.warmer import lazy as lazily

ANSWER = 30.0
"""Bound of every wait; none is expected to come near it."""


def made(name, layers=1):
    """Return an image of so many layers."""
    root = Descriptor(digest=f"sha256:{name}", size=10, kind="application/vnd.oci.image.manifest.v1+json")
    parts = tuple(Layer(blob=root, diff_id=f"{name}{each}", chain_id=f"{name}{each}") for each in range(layers))
    return Image(root=root, manifest=root, config=root, layers=parts)


def remote(*images):
    """Return the snapshots of images whose layers all lie elsewhere."""
    return {layer.chain_id: Snapshot(is_remote=True) for image in images for layer in image.layers}


class Runtime:
    """Says that the layers of an image lie in folders of a test."""

    def __init__(self, root):
        self.root = root
        self.views = []
        self.removed = []
        self.faults = {}
        """What is raised, by the top of an image."""
        self.mounts = {}
        """What is said instead, by the top of an image."""
        self.asked = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def folder(self, chain):
        return self.root / chain

    def bytes_of(self, chain):
        """Return the size of all files of a layer: in a plain folder the state file is one of them."""
        return sum(each.stat().st_size for each in self.folder(chain).rglob("*") if each.is_file())

    def mount(self, image, **said):
        """Make the folders of an image, with a state file and a file of 10 bytes each."""
        for layer in image.layers:
            folder = self.folder(layer.chain_id)
            (folder / ".stargz-snapshotter").mkdir(parents=True, exist_ok=True)
            (folder / "file").write_bytes(b"x" * 10)
            state = {"digest": "sha256:aa", "size": 10, "fetchedSize": 5, **said}
            (folder / ".stargz-snapshotter" / "state.json").write_text(json.dumps(state))
        return image

    async def view(self, snapshotter, key, parent):
        self.views.append(parent)
        self.asked.set()
        await self.hold.wait()
        if parent in self.faults:
            raise self.faults[parent]
        if parent in self.mounts:
            return self.mounts[parent]
        last = int(parent[-1])
        lower = ":".join(str(self.folder(f"{parent[:-1]}{each}")) for each in range(last, -1, -1))
        return (("overlay", "overlay", (f"lowerdir={lower}",)),)

    async def remove_snapshot(self, snapshotter, key):
        self.removed.append(key)


class Loop:
    """One loop over lazy layers, and what it said whenever it said something."""

    def __init__(self, runtime, throttle=None):
        self.lazy = lazily.Lazy(runtime, "stargz", throttle, lambda: time.monotonic() + self.passed)
        self.passed = 0.0
        self.snapshots = {}
        self.is_busy = False
        self.task = None
        self.changes = []
        """Problems by layer, as of each change."""

    def tell(self, wanted, others=(), snapshots=None):
        self.snapshots = remote(*wanted, *others) if snapshots is None else snapshots
        self.lazy.tell(tuple(wanted), tuple(others), self.snapshots)

    def shown(self, chain):
        return self.lazy.shown(self.snapshots)[chain]

    def _changed(self):
        self.changes.append({chain: each.problem for chain, each in self.lazy.shown(self.snapshots).items()})

    @contextlib.asynccontextmanager
    async def running(self):
        self.task = asyncio.create_task(self.lazy.run(lambda: self.is_busy, self._changed))
        try:
            yield
        finally:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, condition):
        async with asyncio.timeout(ANSWER):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.005)
