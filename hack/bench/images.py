"""What warming an image is worth, and what it costs others: `make bench-images`.

One image of generated files (`--mib` compressed, two to one), a registry and a containerd on this machine, a fresh
containerd for each figure. The registry is on loopback, so network time is near zero and the ratio is that of unpacking
alone: in the field a cold pull is slower still.

Keys: cold_s: pull and first process. prepulled_s, shadow_s: the same once the warmer has been there, as a visible image and
as a shadow. small_pull_ratio_*: a small pull of the kubelet's beside our pull of the large image, by that pull alone, with
the warmer (which yields) and without (a bare pull). bytes_lost_*: what a pull that is cancelled half-way fetches twice:
without a lease, of ours (with_lease), and of the runtime's own under our lease (visible). lazy_s: mounted by stargz.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator

import grpc

from agent.warmer.client import Client
from hack.bench import footprint, running
from hack.images import estargz, lazy, oci, process, proxy, registry, runtime
from muster.model import pbform, warmth
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

LAYERS = 7
SMALL_MIB = 17
"""The small image of images.md section 1."""
ROUNDS = 3
WAIT_SECONDS = 900.0
_TRUE = "int main(void) { return 0; }\n"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every figure is taken on."""

    folder: pathlib.Path
    binary: pathlib.Path
    door: proxy.Proxy
    image: oci.Image

    @property
    def big(self) -> str:
        return f"{self.door.address}/ml/cuda:v1"

    @property
    def total_bytes(self) -> int:
        return sum(len(blob.data) for blob in self.image.blobs)

    def forget(self) -> None:
        """Count what leaves the registry from here on."""
        self.door.body_bytes = 0
        self.door.path_bytes.clear()

    def bytes_twice(self) -> int:
        """Return the bytes of layers that have left the registry more than once."""
        sent = self.door.path_bytes
        layers = [blob for blob in self.image.blobs if blob.kind == oci.LAYER]
        return sum(max(0, sent[f"/v2/ml/cuda/blobs/{layer.digest}"] - len(layer.data)) for layer in layers)

    def small(self, number: int) -> str:
        return f"{self.door.address}/ml/small{number}:v1"

    @contextlib.contextmanager
    def node(self, name: str, snapshotter: tuple[str, pathlib.Path] | None = None) -> Iterator[runtime.Containerd]:
        """Start a fresh containerd; its folder goes afterwards, an image takes three times its size."""
        made = runtime.Containerd(self.folder / name, self.binary, proxy_snapshotter=snapshotter)
        made.trust(self.door.address)
        made.start()
        try:
            yield made
        finally:
            made.stop()
            made.remove()


def push_images(folder: pathlib.Path, address: str, mib: int) -> oci.Image:
    """Make and push the images; return the large one."""
    source, program = folder / "true.c", folder / "true"
    source.write_text(_TRUE)
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", program, source], check=True)
    first = oci.of_files({"true": program.read_bytes()})
    sizes = 2 * mib * oci.MIB // LAYERS
    layers = [oci.generated(sizes, seed) for seed in range(LAYERS)]
    big = oci.image([first, *layers])
    oci.push(address, "ml/cuda", ["v1"], big)
    lazily = [estargz.of_files({"true": program.read_bytes()})]
    lazily += [estargz.of_files(oci.generated_files(sizes, seed)) for seed in range(LAYERS)]
    oci.push(address, "ml/lazy", ["v1"], oci.image(lazily))
    oci.push(address, "ml/true", ["v1"], oci.image([first]))
    for number in range(1 + 2 * ROUNDS):
        layer = oci.generated(2 * SMALL_MIB * oci.MIB, 1000 + number)
        oci.push(address, f"ml/small{number}", ["v1"], oci.image([layer]))
    return big


@contextlib.contextmanager
def warmer(node: runtime.Containerd, image: str, mode: str, door: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the warmer's program on a node, with one image listed, or none; `door`: the registry that hints may name."""
    wanted = node.folder / "list.json"
    listed = [{"image": image, "mode": mode}] if image else []
    wanted.write_text(json.dumps({"budget_bytes": 10**12, "images": listed}))
    command = [sys.executable, "-m", "agent.main", "warm", "--exit-with-parent", "true"]
    command += ["--socket", str(node.folder / "w.sock"), "--containerd-socket", str(node.socket)]
    command += ["--list", str(wanted), "--registry-hosts-dir", str(node.registries)]
    command += ["--hint-registries", door] if door else []
    with (node.folder / "warmer.log").open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(timeout=30)


async def states(node: runtime.Containerd) -> AsyncIterator[warmth.ImageWarmth]:
    """Yield what the warmer says of its one wanted image, as it changes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        async with grpc.aio.insecure_channel(f"unix:{node.folder}/w.sock") as channel:
            stub = warmer_pb2_grpc.WarmerServiceStub(channel)
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for response in stub.Watch(warmer_pb2.WatchRequest()):
                    for image in pbform.from_pb(warmth.NodeWarmth, response.warmth).images:
                        if image.is_wanted:
                            yield image
        await asyncio.sleep(0.1)
    raise TimeoutError("the warmer did not finish")


async def until_held(node: runtime.Containerd, hold: warmth.Hold) -> None:
    """Wait until the image is warm."""
    async for image in states(node):
        if image.level is warmth.Level.UNPACKED and image.hold is hold:
            return


async def until_pulling(node: runtime.Containerd) -> None:
    """Wait until our pull is under way."""
    async for image in states(node):
        if image.pull in {warmth.PullState.DOWNLOADING, warmth.PullState.UNPACKING}:
            return


async def pull(node: runtime.Containerd, image: str) -> float:
    """Pull as the kubelet does; return the seconds."""
    client = Client(node.socket, "bench")
    started = time.monotonic()
    try:
        await client.pull(image, None, lease="", handler="")
    finally:
        await client.close()
    return time.monotonic() - started


async def start(node: runtime.Containerd, image: str, name: str, snapshotter: str = "overlayfs") -> float:
    """Pull as the kubelet does and run the first process; return the seconds."""
    seconds, started = await pull(node, image), time.monotonic()
    node.run_ctr("run", "--rm", "--snapshotter", snapshotter, image, name, "/true")
    return seconds + time.monotonic() - started


async def used(bench: Bench, node: runtime.Containerd) -> None:
    """Run one container of another image: the first of a containerd's life costs a second, whatever its image."""
    await start(node, f"{bench.door.address}/ml/true:v1", "first")


async def starts(bench: Bench) -> dict[str, float | dict[str, float]]:
    """Measure cold, prepulled and shadow, and the warmer's memory at rest."""
    with bench.node("cold") as node:
        await used(bench, node)
        cold = await start(node, bench.big, "cold")
    with bench.node("visible") as node, warmer(node, bench.big, "visible") as child:
        await until_held(node, warmth.Hold.VISIBLE)
        await used(bench, node)
        prepulled = await start(node, bench.big, "prepulled")
        await asyncio.sleep(10)
        pss, alone = footprint.pss_mib(child.pid), footprint.alone_mib([child.pid])
    with bench.node("shadow") as node, warmer(node, bench.big, "shadow"):
        await until_held(node, warmth.Hold.SHADOW)
        await used(bench, node)
        shadow = await start(node, bench.big, "shadow")
    return {
        "cold_s": round(cold, 2),
        "prepulled_s": round(prepulled, 3),
        "shadow_s": round(shadow, 3),
        "ratio": round(cold / prepulled, 1),
        "warmer": {"pss_mib": round(pss, 1), "alone_mib": round(alone, 1)},
    }


async def hinted(bench: Bench) -> dict[str, float]:
    """Measure from an admitter's hint to an unpacked image."""
    name = f"{bench.door.address}/ml/cuda@{bench.image.root.digest}"
    with bench.node("hinted") as node, warmer(node, "", "", bench.door.address):
        while not (node.folder / "w.sock").exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.05)
        told = time.monotonic()
        async with grpc.aio.insecure_channel(f"unix:{node.folder}/w.sock") as channel:
            stub = warmer_pb2_grpc.WarmerServiceStub(channel)
            await stub.Tell(warmer_pb2.TellRequest(hints=[warmer_pb2.Hint(reference=name)]))
        await until_held(node, warmth.Hold.VISIBLE)
    return {"hint_to_warm_s": round(time.monotonic() - told, 2)}


async def lazily(bench: Bench) -> dict[str, float | None]:
    """Measure pull and first process of the image as eStargz, mounted lazily; null where there is no stargz daemon."""
    binary = lazy.built()
    if binary is None:
        return {"lazy_s": None}
    daemon = lazy.Stargz(bench.folder / "stargz", binary)
    daemon.start()
    try:
        with bench.node("lazy", (lazy.NAME, daemon.socket)) as node:
            first, image = (f"{bench.door.address}/ml/{name}:v1" for name in ("true", "lazy"))
            await start(node, first, "first", lazy.NAME)
            return {"lazy_s": round(await start(node, image, "lazy", lazy.NAME), 3)}
    finally:
        daemon.stop()


async def small_pulls(bench: Bench) -> dict[str, float]:
    """Measure a small pull alone, beside the warmer's, and beside a bare pull; the median of each."""
    alone, with_yield, without = [], [], []
    for number in range(ROUNDS):
        with bench.node("alone") as node:
            alone.append(await pull(node, bench.small(number)))
        with bench.node("yield") as node, warmer(node, bench.big, "shadow"):
            await until_pulling(node)
            with_yield.append(await pull(node, bench.small(number)))
        with bench.node("bare") as node:
            bare = asyncio.create_task(pull(node, bench.big))
            await asyncio.sleep(1.5)
            without.append(await pull(node, bench.small(number)))
            bare.cancel()
            await asyncio.gather(bare, return_exceptions=True)
    base = statistics.median(alone)
    return {
        "small_pull_alone_s": round(base, 3),
        "small_pull_ratio_with_yield": round(statistics.median(with_yield) / base, 2),
        "small_pull_ratio_without": round(statistics.median(without) / base, 2),
    }


async def losses(bench: Bench) -> dict[str, int]:
    """Measure what is fetched twice after a pull was stopped half-way."""
    lost = {}
    with bench.node("lost") as node:
        bench.forget()
        bare = asyncio.create_task(pull(node, bench.big))
        await half_way(bench)
        bare.cancel()
        await asyncio.gather(bare, return_exceptions=True)
        await asyncio.sleep(2)
        await pull(node, bench.big)
        lost["bytes_lost_without"] = bench.bytes_twice()
    for mode, hold in (("shadow", warmth.Hold.SHADOW), ("visible", warmth.Hold.VISIBLE)):
        with bench.node(mode) as node, warmer(node, bench.big, mode):
            bench.forget()
            await half_way(bench)
            await tell_starting(node, 1)
            await asyncio.sleep(2)
            await tell_starting(node, 0)
            await until_held(node, hold)
            lost["bytes_lost_with_lease" if mode == "shadow" else "bytes_lost_visible"] = bench.bytes_twice()
    return lost


async def half_way(bench: Bench) -> None:
    """Wait until half the image has come."""
    async with asyncio.timeout(WAIT_SECONDS):
        while bench.door.body_bytes < bench.total_bytes / 2:  # noqa: ASYNC110 -- a thread counts
            await asyncio.sleep(0.02)


async def tell_starting(node: runtime.Containerd, pods: int) -> None:
    """Tell the warmer that pods are starting."""
    async with grpc.aio.insecure_channel(f"unix:{node.folder}/w.sock") as channel:
        stub = warmer_pb2_grpc.WarmerServiceStub(channel)
        await stub.Tell(warmer_pb2.TellRequest(starting_pods=pods))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-images", description=__doc__)
    parser.add_argument("--mib", type=int, default=800, help="compressed size of the image")
    parser.add_argument("--containerd", choices=("built", "debian"), default="", help="default: built where it is")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-images-"))
    try:
        built = runtime.built()
        binary = built if built is not None and arguments.containerd != "debian" else runtime.debian()
        origin = registry.Registry(folder / "registry")
    except process.Missing as error:
        print(f"bench-images: {error}", file=sys.stderr)
        return 2
    origin.start()
    door = proxy.Proxy(origin.address)
    door.start()
    try:
        image = push_images(folder, origin.address, arguments.mib)
        bench = Bench(folder=folder, binary=binary, door=door, image=image)
        figures: dict[str, object] = {
            "bench": "images",
            **running.machine(),
            "hardware": "real",
            "containerd": ".".join(map(str, runtime.version_of(binary))),
            "image_mib": round(bench.total_bytes / oci.MIB),
        }
        for part in (starts, hinted, lazily, losses, small_pulls):
            figures |= asyncio.run(part(bench))
            print(json.dumps(figures), file=sys.stderr, flush=True)
        print(json.dumps(figures, sort_keys=True))
    finally:
        door.stop()
        origin.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
