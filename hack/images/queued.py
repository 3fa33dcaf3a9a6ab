"""A gang whose image is warmed while it waits: a real admitter, agent, warmer, containerd and registry around fake GPUs.

In: a folder, a containerd, an image in a registry on loopback. Out: `Queued`, which plays the story a step at a time, with
the seconds that each took.

Invariant: `stop` ends all that was started here. The image store is empty at the beginning, so what is there at the end
was brought by the hint.
"""

import asyncio
import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.warmer.client import Client
from hack.fakenode.fleet import Fleet, NotStarted
from hack.fakenode.node import GPU_RESOURCE, FakeNode
from hack.images import runtime
from muster import client
from muster.model.admission import Gang, Leased, NodeCapacity, Podset, Started, State, Waiting
from muster.model.warmth import ImageWarmth, Level

NAMESPACE = "team-a"
NODE = "gpu-a"
SCALE = 0.05
WAIT_SECONDS = 180.0
"""Of each step: an image of 800 MiB is unpacked in 30 s on two cores (images.md section 2)."""
HOLD_SECONDS = 600


async def first_process(node: runtime.Containerd, image: str, name: str) -> float:
    """Pull as the kubelet does and run the first process; return the seconds."""
    puller, started = Client(node.socket, "queued"), time.monotonic()
    try:
        await puller.pull(image, None, lease="", handler="")
    finally:
        await puller.close()
    await asyncio.to_thread(node.run_ctr, "run", "--rm", "--snapshotter", "overlayfs", image, name, "/true")
    return time.monotonic() - started


class Queued:
    """One node with eight fake GPUs and a real containerd, an admitter, and two gangs that want the GPUs."""

    def __init__(self, folder: pathlib.Path, binary: pathlib.Path, registry: str, image: str) -> None:
        """`registry` is host:port, `image` a name in it."""
        self.image = image
        self.store = runtime.Containerd(folder / "c", binary)
        self.store.trust(registry)
        self._socket = folder / "w.sock"
        self._folder, self._registry = folder, registry
        self._warmer: subprocess.Popen[bytes] | None = None
        self.node = FakeNode(folder, NODE)
        self.fleet = Fleet(
            folder,
            [self.node],
            scale=SCALE,
            settings={"--warmer-socket": str(self._socket)},
            admitter_settings={"--hint-registries": registry, "--warm-hold-seconds": str(HOLD_SECONDS)},
        )
        self.states: dict[str, list[State]] = {}
        self._streams: dict[str, client.GangStream] = {}

    def start(self) -> None:
        """Start everything; the node serves a few seconds later."""
        self.store.start()
        command = [sys.executable, "-m", "agent.main", "warm", "--exit-with-parent", "true"]
        command += ["--socket", str(self._socket), "--containerd-socket", str(self.store.socket)]
        command += ["--registry-hosts-dir", str(self.store.registries), "--hint-registries", self._registry]
        with (self._folder / "warmer.log").open("wb") as log:
            self._warmer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.fleet.start()

    def stop(self) -> None:
        """End all of it."""
        self.fleet.stop()
        if self._warmer is not None:
            self._warmer.terminate()
            self._warmer.wait(30)
        self.store.stop()

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator["Queued"]:
        """Be connected for as long as the block runs."""
        async with (
            client.connect(self.fleet.address, self.fleet.client_files) as muster,
            contextlib.AsyncExitStack() as gangs,
        ):
            self._muster, self._gangs = muster, gangs
            self._listening: list[asyncio.Task[None]] = []
            try:
                yield self
            finally:
                for task in self._listening:
                    task.cancel()
                await asyncio.gather(*self._listening, return_exceptions=True)

    async def roll_call(self) -> None:
        """Wait until the node serves eight GPUs and its warmer has said what it has."""

        async def is_there() -> bool:
            found = await self._capacity()
            return found is not None and found.admissible.get(GPU_RESOURCE) == 8 and found.warmth is not None

        await self._until(is_there)

    async def hold(self) -> None:
        """Have another gang take the GPUs, with pods that run."""
        await self._ask("holder", images=())
        await self._until_state("holder", Leased)
        uid = "0b5e7a10-0000-4000-8000-000000000000"
        self._streams["holder"].member("main", uid, NODE)
        await asyncio.to_thread(self.node.start_pod, NAMESPACE, "holder-0", uid, GPU_RESOURCE, 8)
        await asyncio.to_thread(self.fleet.publish)
        await self._until_state("holder", Started)

    async def ask(self) -> str:
        """Ask for the gang with the image; return why it waits."""
        await self._ask("train", images=(self.image,))
        why = await self._until_state("train", Waiting)
        assert isinstance(why, Waiting)
        return why.summary

    async def warmed(self) -> float:
        """Wait until the image is unpacked on the node; return the seconds."""
        began = time.monotonic()

        async def is_warm() -> bool:
            found = await self.seen()
            return found is not None and found.level is Level.UNPACKED

        await self._until(is_warm)
        return time.monotonic() - began

    async def leased(self) -> float:
        """End the holder and wait until the gang has its lease; return the seconds."""
        began = time.monotonic()
        for uid in self.node.pod_uids():
            await asyncio.to_thread(self.node.end_pod, uid)
        await asyncio.to_thread(self.fleet.publish)
        await self._streams["holder"].end("Finished")
        await self._until_state("train", Leased)
        return time.monotonic() - began

    async def seen(self) -> ImageWarmth | None:
        """Return the image as the admitter sees it on the node."""
        found = await self._capacity()
        images = found.warmth.images if found is not None and found.warmth is not None else ()
        repository = self.image.rpartition(":")[0]
        return next((image for image in images if image.reference.startswith(repository)), None)

    async def _capacity(self) -> NodeCapacity | None:
        with contextlib.suppress(client.Unreachable):
            for change in await self._muster.list_capacity(10.0):
                if NODE in change.nodes:
                    return change.nodes[NODE]
        return None

    async def _ask(self, name: str, images: tuple[str, ...]) -> None:
        podset = Podset(count=1, request=8, images=images, max_runtime_seconds=3600.0)
        gang = Gang(namespace=NAMESPACE, name=name, request_id=f"queued-{name}", podsets=(podset,))
        stream = self._streams[name] = await self._gangs.enter_async_context(self._muster.admit(gang))
        self.states[name] = []
        self._listening.append(asyncio.create_task(self._listen(name, stream)))

    async def _listen(self, name: str, stream: client.GangStream) -> None:
        async for state in stream.states():
            self.states[name].append(state)

    def _check(self) -> None:
        self.fleet.check()
        if self._warmer is not None and self._warmer.poll() is not None:
            log = (self._folder / "warmer.log").read_text(errors="replace")
            raise NotStarted(f"the warmer ended with status {self._warmer.returncode}:\n{log[-2000:]}")

    async def _until_state(self, name: str, kind: type[State]) -> State:
        async def is_there() -> bool:
            return any(isinstance(state, kind) for state in self.states[name])

        await self._until(is_there)
        return next(state for state in self.states[name] if isinstance(state, kind))

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await condition():
                self._check()
                await asyncio.sleep(0.1)
