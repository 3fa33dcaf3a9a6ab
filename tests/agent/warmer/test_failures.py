"""Every row of images.md section 11, on a real containerd and a real registry behind a proxy with faults."""

import asyncio
import contextlib
import pathlib
import subprocess

import pytest

from agent.core import warmref
from agent.model.warm import Mode, Reason
from agent.warmer import serve
from agent.warmer.client import Client
from hack.images import oci
from hack.images import runtime as runtimes
from hack.images.proxy import Fault
from muster.model.warmth import Hold, Level, PullState
from tests.agent.warmer.looks import has_reason, is_warm, layers_asked, settled

SHADOW, VISIBLE = Mode.SHADOW, Mode.VISIBLE


async def test_429_holds_the_host_for_all_its_images(world, faulty, name, wanted):
    """The registry says when to come back; until then no image of that host is asked for again."""
    faulty.faults = [Fault(status=429, headers={"Retry-After": "600"})]
    here = world()
    await here.start(wanted(name), wanted(name.replace("v1", "v2")))
    await here.until(has_reason(here, name, Reason.TOO_MANY_REQUESTS), "429")
    asked = len(faulty.requests)
    await here.until(has_reason(here, name.replace("v1", "v2"), Reason.HOST_HELD), "the other image held")
    assert asked == len(faulty.requests) == 1
    host = warmref.parse(name)
    answer = await here.engine.resolve(host)
    assert answer.reason is Reason.HOST_HELD
    assert len(faulty.requests) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [(401, Reason.UNAUTHORIZED), (403, Reason.UNAUTHORIZED), (404, Reason.NOT_FOUND)]
)
async def test_a_refusal_is_told_and_not_repeated(world, faulty, name, wanted, status, reason):
    faulty.faults = [Fault(status=status)]
    here = world()
    await here.start(wanted(name))
    report = await here.until(has_reason(here, name, reason), reason.value)
    assert here.image(name, report).pull is PullState.FAILED
    asked = len(faulty.requests)
    here.engine.hint(())
    here.engine._wake.set()
    await asyncio.sleep(1)
    assert len(faulty.requests) == asked


@pytest.mark.parametrize("mode", [SHADOW, VISIBLE])
async def test_a_corrupt_blob_is_never_kept(world, faulty, name, wanted, content, mode):
    """Nothing of it stays; when the registry is well again the image gets warm."""
    layer = content.blobs[1].digest
    faulty.faults = [Fault(path=f"blobs/{layer}", corrupt=True)]
    here = world()
    await here.start(wanted(name, mode))
    await here.until(has_reason(here, name, Reason.CORRUPT_BLOB), "a corrupt blob")
    assert layer not in await here.client.list_blobs()
    faulty.faults = []
    await here.until(is_warm(here, name), "a warm image")


async def test_a_corrupt_blob_that_heals_is_asked_for_once_more(world, faulty, name, wanted, content):
    layer = content.blobs[1].digest
    faulty.faults = [Fault(path=f"blobs/{layer}", corrupt=True, times=1)]
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(is_warm(here, name), "a warm image")
    assert sum(layer in path for path in layers_asked(faulty)) == 2


@pytest.mark.parametrize("mode", [SHADOW, VISIBLE])
async def test_a_stalled_connection_is_given_up(world, faulty, name, wanted, content, mode):
    layer = content.blobs[2].digest
    faulty.faults = [Fault(path=f"blobs/{layer}", stall_after=100_000)]
    here = world(stall_seconds=2.0)
    await here.start(wanted(name, mode))
    await here.until(has_reason(here, name, Reason.STALLED), "a stall")
    faulty.faults = []
    await here.until(is_warm(here, name), "a warm image")


async def test_a_cut_connection_goes_on_where_it_was(world, faulty, name, wanted, content):
    """No byte that had come is fetched again."""
    layer = content.blobs[1]
    faulty.faults = [Fault(path=f"blobs/{layer.digest}", cut_after=3 * oci.MIB, times=1)]
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(is_warm(here, name), "a warm image")
    small = len(content.blobs[0].data) + 4 * len(content.root.data)
    assert faulty.body_bytes <= sum(len(blob.data) for blob in content.blobs) + small + oci.MIB


async def test_a_registry_that_is_gone_is_waited_for(world, runtime, faulty, name, wanted):
    """The level of what is here stays; nothing is dropped because a registry does not answer."""
    here = world()
    await here.start(wanted(name))
    await here.until(is_warm(here, name), "a warm image")
    await here.stop()
    faulty.faults = [Fault(status=503)]
    await here.start(wanted(name))
    report = await here.until(has_reason(here, name, Reason.REGISTRY_UNREACHABLE), "an unreachable registry")
    assert here.image(name, report).level is Level.UNPACKED


async def test_a_tag_that_moved_is_followed(world, origin, faulty, name, wanted):
    """The new image becomes warm; what only the old shadow held goes."""
    first, second = (oci.image([oci.generated(oci.MIB, seed)]) for seed in (100, 101))
    oci.push(origin.address, "ml/moving", ["v1"], first)
    moving = name.replace("ml/cuda", "ml/moving")
    here = world(tag_seconds=1.0)
    await here.start(wanted(moving, SHADOW))
    await here.until(is_warm(here, moving), "the first image")
    oci.push(origin.address, "ml/moving", ["v1"], second)

    def has_moved(report):
        image = here.image(moving, report)
        return is_warm(here, moving)(report) and image.digest == second.root.digest

    report = await here.until(has_moved, "the second image")
    assert [tag.digest for tag in report.tags] == [second.root.digest]
    await settled(here.client.list_blobs, lambda blobs: first.root.digest not in blobs)
    assert {lease.digest for lease in await here.client.list_leases()} == {second.root.digest}


async def test_containerd_killed_midway_loses_no_byte(world, runtime, faulty, name, wanted, content):
    """The report says that it is old; after the restart the pull goes on under the same lease."""
    faulty.bytes_per_second = 4 * oci.MIB
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(
        lambda report: (
            0 < here.image(name, report).bytes_missing < here.image(name, report).bytes_total * 0.7
            if here.image(name, report)
            else False
        ),
        "half an image",
    )
    runtime.kill()
    report = await here.until(lambda report: report.store.problem != "", "a containerd that is gone")
    assert report.store.problem.startswith("RuntimeAway")
    faulty.bytes_per_second = None
    runtime.start()
    report = await here.until(is_warm(here, name), "a warm image")
    assert report.store.problem == ""
    total = sum(len(blob.data) for blob in content.blobs)
    assert faulty.body_bytes < total + 4 * oci.MIB, "what had come was not fetched again"


async def test_a_full_disk_is_given_back_at_once(runtime, world, small_disk, tmp_path, faulty, name, wanted):
    """The guard is told to look elsewhere: containerd runs into ENOSPC, and our lease goes."""
    full = runtimes.Containerd(tmp_path / "full", runtime.binary, root=small_disk)
    full.trust(faulty.address)
    full.start()
    try:
        here = world(image_root=pathlib.Path("/"), disk_share=0.8)
        here.runtime = full
        await here.start(wanted(name, SHADOW))
        report = await here.until(
            lambda report: (
                has_reason(here, name, Reason.DISK_FULL)(report) or has_reason(here, name, Reason.DISK_GUARD)(report)
            ),
            "a full disk",
        )
        if here.image(name, report).reason == Reason.DISK_GUARD.value:
            pytest.skip("this machine's disk is too full for the guard to let a pull begin")
        await settled(here.client.list_leases, lambda leases: not leases)
        await settled(here.client.list_blobs, lambda blobs: not blobs)
    finally:
        await here.stop()
        full.stop()


async def test_the_guard_keeps_a_pull_from_filling_the_disk(world, small_disk, runtime, faulty, name, wanted):
    here = world(image_root=small_disk)
    await here.start(wanted(name, SHADOW))
    report = await here.until(has_reason(here, name, Reason.DISK_GUARD), "the guard")
    assert "to stay under 80% of the disk" in here.image(name, report).detail
    assert layers_asked(faulty) == [path for path in layers_asked(faulty) if "blobs" in path][:1], (
        "the configuration only"
    )


async def test_a_second_warmer_is_refused_by_name(world, runtime, faulty, name, wanted):
    here = world()
    await here.start()
    service = serve.WarmerService(here.config(), here.engine)
    async with serve.serving(service, here.config().socket):
        with pytest.raises(OSError, match="another warmer answers there"):
            async with serve.serving(service, here.config().socket):
                pass


async def test_leases_of_others_are_never_touched(world, runtime, faulty, name, wanted):
    """Two warmers of one containerd, each with its own mark: neither sees the other's."""
    other = Client(runtime.socket, "somebody-else")
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(is_warm(here, name), "a shadow")
    assert await other.list_leases() == ()
    await other.create_lease("theirs", "sha256:1", here.engine._keeper.expires_at(), is_done=True)
    await here.stop()
    await here.start()
    await settled(here.client.list_leases, lambda leases: not leases)
    assert [lease.id for lease in await other.list_leases()] == ["theirs"]
    await other.close()


async def test_what_is_listed_and_lost_its_snapshots_is_not_warm(world, runtime, faulty, name, wanted):
    """The level is that of the snapshots, whatever the runtime lists."""
    here = world()
    await here.start(wanted(name))
    await here.until(is_warm(here, name), "a warm image")
    await here.stop()
    chain_ids = [line.split()[0] for line in runtime.run_ctr("snapshots", "ls").splitlines()[1:]]
    for chain_id in chain_ids * len(chain_ids):  # One with children cannot go yet.
        with contextlib.suppress(subprocess.CalledProcessError):
            runtime.run_ctr("snapshots", "rm", chain_id)
    here.settings["disk_share"] = 0.05
    here.settings["image_root"] = pathlib.Path("/nowhere")
    await here.start(wanted(name))
    report = await here.until(lambda report: here.image(name, report) is not None, "a report")
    image = here.image(name, report)
    assert (image.level, image.hold, image.layers_missing) == (Level.PARTIAL, Hold.VISIBLE, 4)
