"""What tests of the warmer wait for, and how they count what a registry sent."""

import asyncio

from muster.model.warmth import Hold, Level


def has_reason(world, name, reason):
    def check(report):
        image = world.image(name, report)
        return image is not None and image.reason == reason.value

    return check


def is_warm(world, name):
    def check(report):
        image = world.image(name, report)
        return image is not None and image.level is Level.UNPACKED and image.hold is not Hold.NOTHING

    return check


async def settled(read, condition):
    """Wait until what is read fulfils a condition."""
    async with asyncio.timeout(60):
        while not condition(await read()):  # noqa: ASYNC110 -- containerd tells nobody
            await asyncio.sleep(0.1)


def layers_asked(faulty):
    return [path for method, path in faulty.requests if method == "GET" and "/blobs/" in path]


def blob_path(blob):
    return f"/v2/ml/cuda/blobs/{blob.digest}"


def sent_twice(faulty, content):
    """Return the bytes of layers that left the registry more than once."""
    return sum(max(0, faulty.path_bytes[blob_path(blob)] - len(blob.data)) for blob in content.blobs[1:])
