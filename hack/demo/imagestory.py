"""`make demo ARGS="--images"`: an image is warmed while its gang waits; what a start takes cold and warm.

Real: admitter, agent, warmer, containerd, registry. Fake: the GPUs and the kubelet, whose pull and first process are done
here, by CRI and by ctr. The last line is a JSON object. Exit status: 0 as expected, 1 not, 2 something is missing.
"""

import asyncio
import json
import pathlib
import subprocess
import tempfile
from collections.abc import Callable

from hack.bench import running
from hack.fakenode.fleet import NotStarted
from hack.images import oci, process, queued, registry, runtime

LAYERS = 4
DEFAULT_MIB = 96
"""Compressed: some seconds of unpacking on two cores."""
REPOSITORY = "ml/train"
_TRUE = "int main(void) { return 0; }\n"

Say = Callable[[str], None]


def play(say: Say, mib: int = DEFAULT_MIB) -> int:
    """Tell the story and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        try:
            binary = runtime.built() or runtime.debian()
            origin = registry.Registry(folder / "registry")
            origin.start()
        except process.Missing as error:
            say(f"demo --images: {error}")
            return 2
        try:
            figures = asyncio.run(_tell(folder, binary, origin.address, say, mib))
        except KeyboardInterrupt:
            say("interrupted")
            return 2
        except (NotStarted, process.DidNotStart, subprocess.CalledProcessError, TimeoutError) as error:
            say(f"demo --images: {error or 'not done in time'}")
            return 2
        finally:
            origin.stop()
    print(json.dumps(figures, sort_keys=True), flush=True)
    return 0 if figures["ok"] else 1


async def _tell(folder: pathlib.Path, binary: pathlib.Path, address: str, say: Say, mib: int) -> dict[str, object]:
    name = f"{address}/{REPOSITORY}:v1"
    size = await asyncio.to_thread(push_image, folder, address, mib)
    say(f"A registry holds {name}: {size / oci.MIB:.0f} MiB compressed, twice that unpacked.")
    cold = await _cold(folder, binary, address, name)
    say(f"Cold: a node that has nothing of it takes {cold:.1f} s from the pull to the first process.")
    world = queued.Queued(folder / "n", binary, address, name)
    try:
        await asyncio.to_thread(world.start)
        async with world.asking():
            figures = await _queued(world, say)
    finally:
        await asyncio.to_thread(world.stop)
    warm = figures["warm_s"]
    say(f"Time to the first process: {cold:.2f} s cold, {warm:.2f} s warm, {cold / warm:.1f} times less.")
    return {
        **running.machine(),
        "demo": "images",
        "hardware": "fake GPUs, real containerd",
        "containerd": ".".join(map(str, runtime.version_of(binary))),
        "image_mib": round(size / oci.MIB),
        "cold_s": round(cold, 2),
        "ratio": round(cold / warm, 1),
        "ok": warm < cold,
        **{key: round(value, 2) for key, value in figures.items()},
    }


async def _queued(world: queued.Queued, say: Say) -> dict[str, float]:
    await world.roll_call()
    await world.hold()
    say(f"{queued.NODE} has 8 GPUs, and another gang runs on all of them.")
    why = await world.ask()
    say(f"team-a/train asks for 8 GPUs and names its image. It waits: {why}")
    hint_to_warm = await world.warmed()
    say(f"While it waits the node was told, and after {hint_to_warm:.1f} s the image is unpacked there:")
    shown = await asyncio.to_thread(world.fleet.muster, "status", "--images")
    for line in shown.stdout.strip().splitlines():
        say(f"  {line}")
    leased = await world.leased()
    say(f"The other gang ends; {leased:.1f} s later team-a/train has its lease.")
    warm = await queued.first_process(world.store, world.image, "warm")
    return {"hint_to_warm_s": hint_to_warm, "lease_s": leased, "warm_s": warm}


async def _cold(folder: pathlib.Path, binary: pathlib.Path, address: str, name: str) -> float:
    store = runtime.Containerd(folder / "cold", binary)
    store.trust(address)
    await asyncio.to_thread(store.start)
    try:
        # The first container of a containerd's life costs a second, whatever its image.
        await queued.first_process(store, f"{address}/{REPOSITORY}-first:v1", "first")
        return await queued.first_process(store, name, "cold")
    finally:
        await asyncio.to_thread(store.stop)
        store.remove()


def push_image(folder: pathlib.Path, address: str, mib: int) -> int:
    """Make and push the image, and a small one; return the large one's compressed bytes."""
    source, program = folder / "true.c", folder / "true"
    source.write_text(_TRUE)
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", program, source], check=True)
    first = oci.of_files({"true": program.read_bytes()})
    image = oci.image([first, *(oci.generated(2 * mib * oci.MIB // LAYERS, seed) for seed in range(LAYERS))])
    oci.push(address, REPOSITORY, ["v1"], image)
    oci.push(address, f"{REPOSITORY}-first", ["v1"], oci.image([first]))
    return sum(len(blob.data) for blob in image.blobs)
