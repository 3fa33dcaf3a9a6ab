"""A real containerd's Transfer service: progress in bytes and layers, credentials, labels from the first moment."""

import asyncio

import pytest

from agent.core import warmpins, warmprogress, warmref, warmth
from agent.model.warm import Mode, Platform, Reason
from agent.warmer import abilities, transfer
from agent.warmer.client import CallFailed, Client
from hack.images import oci
from hack.images import runtime as runtimes
from muster.model.warmth import Level
from tests.agent.warmer.looks import is_warm, settled

pytestmark = [
    pytest.mark.real("containerd", "docker-registry", "root"),
    pytest.mark.parametrize("runtime", ["built"], indirect=True),
]
LABELS = {"example.com/mark": "ours"}


class Heard:
    def __init__(self):
        self.extent = warmprogress.NOTHING

    def __call__(self, said):
        self.extent = warmprogress.add(self.extent, said)


def wish(runtime, name, **more):
    return transfer.Wish(
        **{
            "reference": warmref.parse(name),
            "platform": Platform(os="linux", architecture="amd64"),
            "snapshotter": "overlayfs",
            "hosts_folder": str(runtime.registries),
            "labels": LABELS,
            "credentials": None,
            "lease": "",
            **more,
        }
    )


@pytest.fixture
async def client(runtime):
    made = Client(runtime.socket, "muster")
    yield made
    await made.close()


async def test_it_says_every_byte_and_unpacks_every_layer(runtime, client, name, content):
    heard = Heard()
    await transfer.pull(client, wish(runtime, name), heard)
    assert heard.extent.fetched_bytes == sum(len(blob.data) for blob in content.blobs)
    layers = {f"layer-{blob.digest}" for blob in content.blobs[1:-1]}
    assert heard.extent.unpacked <= layers
    assert set(heard.extent.unpacking) <= layers
    assert heard.extent.unpacking
    assert len(await client.list_snapshots("overlayfs")) == len(layers)
    assert (await client.list_records())[name].labels.items() >= LABELS.items()


async def test_the_runtimes_own_pull_gives_it_its_other_names(runtime, client, name, content):
    await transfer.pull(client, wish(runtime, name), lambda _: None)
    repository = name.rpartition(":")[0]
    await client.pull(f"{repository}@{content.root.digest}", None, lease="", handler="")
    seen = await client.cri_image(name)
    assert list(seen.repo_digests) == [f"{repository}@{content.root.digest}"]
    assert (await client.list_records())[name].labels.items() >= LABELS.items()


async def test_only_the_nodes_platform_comes(runtime, client, origin, name):
    images = {
        arch: oci.image([oci.generated(oci.MIB, seed)], architecture=arch)
        for seed, arch in ((7, "amd64"), (8, "arm64"))
    }
    both = oci.index(images)
    oci.push(origin.address, "ml/two", ["v1"], both)
    await transfer.pull(client, wish(runtime, name.replace("ml/cuda", "ml/two")), lambda _: None)
    blobs = await client.list_blobs()
    assert images["amd64"].blobs[1].digest in blobs
    assert images["arm64"].blobs[1].digest not in blobs


async def test_a_password_is_given_when_it_is_asked_for(runtime, client, guarded):
    runtime.trust(guarded.address)
    name = f"{guarded.address}/ml/private:v1"
    for credentials in (None, ("muster", "wrong")):
        with pytest.raises(CallFailed) as refused:
            await transfer.pull(client, wish(runtime, name, credentials=credentials), lambda _: None)
        assert refused.value.reason is Reason.UNAUTHORIZED
    await transfer.pull(client, wish(runtime, name, credentials=guarded.credentials), lambda _: None)
    assert name in await client.list_records()


async def test_a_transfer_that_is_cancelled_leaves_its_bytes_under_the_lease(runtime, client, faulty, name):
    runtime.run_ctr("leases", "create", "--id", "held")
    faulty.bytes_per_second = 4 * oci.MIB
    pulling = asyncio.create_task(transfer.pull(client, wish(runtime, name, lease="held"), lambda _: None))
    async with asyncio.timeout(60):
        while faulty.body_bytes < 4 * oci.MIB:  # noqa: ASYNC110 -- a thread counts
            await asyncio.sleep(0.05)
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    faulty.bytes_per_second = None
    async with asyncio.timeout(60):
        while not any(ingest.offset for ingest in await client.list_ingests()):  # noqa: ASYNC110 -- it tells nobody
            await asyncio.sleep(0.05)
    assert name not in await client.list_records()


async def test_the_warmer_uses_it(world, runtime, name, wanted, content, caplog):
    """An image that may be listed comes by transfer, pinned from its first moment."""
    caplog.set_level("INFO", "muster.warmer")
    here = world()
    await here.start(wanted(name, Mode.VISIBLE, pin=True))
    await here.until(is_warm(here, name), "a warm image")
    await here.until(lambda report: here.image(name, report).is_pinned, "a pin")
    total = sum(len(blob.data) for blob in content.blobs)
    assert f"the runtime told of {total} bytes" in caplog.text
    await settled(here.client.list_records, lambda records: records[name].labels[warmpins.MARK].endswith("Z"))


async def test_a_pin_that_had_its_time_is_taken_off_and_not_set_again(world, runtime, name, wanted):
    here = world(pin_hours=1 / 3600)
    await here.start(wanted(name, Mode.VISIBLE, pin=True))
    await here.until(is_warm(here, name), "a warm image")
    await settled(here.client.list_records, lambda records: warmth.PIN_LABEL not in records[name].labels)
    await here.until(lambda report: not here.image(name, report).is_pinned, "no pin")
    for _ in range(3):
        here.engine.wake()
        await here.until(lambda _: not here.engine._wake.is_set(), "another look")
    records = await here.client.list_records()
    assert (warmth.PIN_LABEL in records[name].labels, warmpins.MARK in records[name].labels) == (False, True)


async def test_what_the_runtime_can_is_read(runtime, client):
    found = await abilities.read(client)
    assert found.has_transfer
    assert found.version.lstrip("v").startswith("2.")
    assert found.handlers == {"": "overlayfs", "runc": "overlayfs"}


async def test_a_handler_with_a_snapshotter_of_its_own(world, runtime, tmp_path, faulty, name, wanted):
    """What that snapshotter has of an image is told as an image of its own; what it lacks is not told."""
    other = runtimes.Containerd(tmp_path / "other", runtime.binary, handlers={"plain": "native"})
    other.trust(faulty.address)
    other.start()
    try:
        here = world()
        here.runtime = other
        await here.start(wanted(name))
        report = await here.until(is_warm(here, name), "a warm image")
        assert report.store.handlers == {"": "overlayfs", "plain": "native", "runc": "overlayfs"}
        assert {image.snapshotter for image in report.images} == {"overlayfs"}
        await here.client.pull(name, None, lease="", handler="plain")
        both = {("overlayfs", Level.UNPACKED), ("native", Level.UNPACKED)}
        await here.until(
            lambda report: {(image.snapshotter, image.level) for image in report.images} == both,
            "the same image elsewhere",
        )
    finally:
        await here.stop()
        other.stop()
