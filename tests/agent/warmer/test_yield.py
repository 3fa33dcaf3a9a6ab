"""A pull of ours stands back for the kubelet, at once, and no byte comes twice."""

import asyncio

from agent.model.warm import Mode, Reason
from hack.images import oci
from hack.images.proxy import Fault
from muster.model.warmth import PullState
from tests.agent.warmer.looks import blob_path, has_reason, is_warm, sent_twice, settled

SHADOW, VISIBLE = Mode.SHADOW, Mode.VISIBLE


async def test_a_pull_stands_back_for_a_starting_pod_and_loses_nothing(world, faulty, name, wanted, content):
    faulty.bytes_per_second = 8 * oci.MIB
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(lambda report: here.image(name, report).pull is PullState.DOWNLOADING, "a pull")
    here.engine.busy.starting(1)
    report = await here.until(has_reason(here, name, Reason.YIELDING), "a pull that stands back")
    assert here.image(name, report).pull is PullState.PAUSED
    assert here.engine.yields == 1
    faulty.bytes_per_second = None
    here.engine.busy.starting(0)
    await here.until(is_warm(here, name), "a warm image")
    assert sent_twice(faulty, content) == 0


async def test_a_registry_that_cuts_a_pull_that_stands_back_costs_the_rest_only(world, faulty, name, wanted, content):
    """The connection is gone when the pull goes on: it asks from where it was, and no failure is told."""
    faulty.bytes_per_second = 8 * oci.MIB
    layer = content.blobs[2]
    faulty.faults = [Fault(path=f"blobs/{layer.digest}", cut_after=2 * oci.MIB, times=1)]
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(lambda _: faulty.path_bytes[blob_path(layer)] > oci.MIB, "half a layer")
    here.engine.busy.starting(1)
    await here.until(has_reason(here, name, Reason.YIELDING), "a pull that stands back")
    await settled(lambda: asyncio.sleep(0, faulty.path_bytes[blob_path(layer)]), lambda sent: sent >= 2 * oci.MIB)
    here.engine.busy.starting(0)
    report = await here.until(is_warm(here, name), "a warm image")
    assert here.image(name, report).reason == ""
    assert sent_twice(faulty, content) == 0


async def test_a_lease_that_is_renewed_while_its_pull_stands_back_keeps_what_came(world, faulty, name, wanted, content):
    """Half a blob is under the lease like a whole one, and containerd collects what is under none."""
    faulty.bytes_per_second = 8 * oci.MIB
    layer = content.blobs[2]
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(lambda _: faulty.path_bytes[blob_path(layer)] > oci.MIB, "half a layer")
    here.engine.busy.starting(1)
    await here.until(has_reason(here, name, Reason.YIELDING), "a pull that stands back")
    before = {ingest.ref: ingest.offset for ingest in await here.client.list_ingests()}
    (lease,) = await here.client.list_leases()
    await here.engine._keeper.renew(lease)
    assert {ingest.ref: ingest.offset for ingest in await here.client.list_ingests()} == before
    assert any(before.values())
    assert [each.id != lease.id for each in await here.client.list_leases()] == [True]
    faulty.bytes_per_second = None
    here.engine.busy.starting(0)
    await here.until(is_warm(here, name), "a warm image")
    assert sent_twice(faulty, content) == 0


async def test_a_pull_stands_back_for_the_kubelets_own(world, origin, faulty, name, wanted):
    oci.push(origin.address, "ml/small", ["v1"], oci.image([oci.generated(oci.MIB, 200)]))
    faulty.bytes_per_second = 8 * oci.MIB
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(lambda report: here.image(name, report).pull is PullState.DOWNLOADING, "a pull")
    await here.client.pull(name.replace("ml/cuda", "ml/small"), None, lease="", handler="")
    await here.until(lambda _: here.engine.yields > 0, "a yield")
    faulty.bytes_per_second = None
    await here.until(is_warm(here, name), "a warm image")


async def test_a_pull_by_the_runtime_stands_back_and_goes_on_under_its_lease(world, faulty, name, wanted):
    faulty.bytes_per_second = 8 * oci.MIB
    here = world()
    await here.start(wanted(name, Mode.VISIBLE))
    await here.until(lambda _: faulty.body_bytes > 4 * oci.MIB, "a pull that is under way")
    here.engine.busy.starting(1)
    await here.until(lambda report: here.image(name, report).pull is PullState.PAUSED, "a pull that stands back")
    assert len(await here.client.list_leases()) == 1
    faulty.bytes_per_second = None
    here.engine.busy.starting(0)
    await here.until(is_warm(here, name), "a warm image")
    await settled(here.client.list_leases, lambda leases: not leases)


async def test_what_the_kubelet_brought_meanwhile_is_not_paused(world, faulty, name, wanted):
    """Our pull stood back, the kubelet wanted the same image: nothing is left to go on with."""
    faulty.bytes_per_second = 8 * oci.MIB
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(lambda report: here.image(name, report).pull is PullState.DOWNLOADING, "a pull")
    here.engine.busy.starting(1)
    await here.until(lambda report: here.image(name, report).pull is PullState.PAUSED, "a pull that stands back")
    faulty.bytes_per_second = None
    await here.client.pull(name, None, lease="", handler="")
    report = await here.until(is_warm(here, name), "the kubelet's image")
    assert here.image(name, report).pull is PullState.IDLE
