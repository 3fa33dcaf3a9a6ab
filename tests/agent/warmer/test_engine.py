"""Images get warm on a real containerd, as they should be held, and nothing of others is touched."""

from agent.model.warm import Mode, Reason
from muster.model.warmth import Hold, Level, PullState
from tests.agent.warmer.looks import has_reason, settled


def is_held(world, name, hold):
    def check(report):
        image = world.image(name, report)
        return image is not None and image.level is Level.UNPACKED and image.hold is hold

    return check


async def test_a_public_image_becomes_visible_and_complete(world, runtime, faulty, wanted):
    """The runtime lists it, `ctr images check` calls it complete, and no lease of ours is left."""
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    here = world()
    await here.start(wanted(name))
    report = await here.until(is_held(here, name, Hold.VISIBLE), "a visible image")
    image = here.image(name, report)
    assert (image.bytes_missing, image.layers_missing, image.layers_total) == (0, 0, 4)
    assert len(report.layers) == 4
    assert report.tags[0].reference == name
    assert f"{name} " in runtime.run_ctr("images", "check")
    assert "complete" in runtime.run_ctr("images", "check", f"name=={name}")
    await settled(here.client.list_leases, lambda leases: not leases)


async def test_a_shadow_is_whole_and_not_listed(world, runtime, faulty, wanted):
    """At no moment does the runtime list it; a pull of the kubelet's then brings no byte of a layer."""
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    here = world()
    await here.start(wanted(name, Mode.SHADOW))
    await here.until(is_held(here, name, Hold.SHADOW), "a shadow")
    assert runtime.run_ctr("images", "ls", "-q") == ""
    await settled(here.client.list_leases, lambda leases: [lease.is_done for lease in leases] == [True])
    await here.stop()
    faulty.requests.clear()
    here.settings["list"] = None
    await here.start()
    await here.until(lambda report: not report.images)
    await settled(here.client.list_leases, lambda leases: not leases)


async def test_the_kubelet_finds_a_shadow_warm(world, runtime, faulty, wanted):
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    here = world()
    await here.start(wanted(name, Mode.SHADOW))
    await here.until(is_held(here, name, Hold.SHADOW), "a shadow")
    faulty.requests.clear()
    await here.client.pull(name, None, lease="", handler="")
    assert [path for _, path in faulty.requests if "/blobs/" in path] == []
    await here.until(is_held(here, name, Hold.VISIBLE), "the kubelet's image")
    assert "complete" in runtime.run_ctr("images", "check", f"name=={name}")


async def test_a_pull_that_is_not_warm_afterwards_has_failed(world, runtime, faulty, wanted):
    """Something takes a layer away as soon as it is there: we wait longer and longer, and leave no lease behind."""
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    here = world()
    await here.start(wanted(name, Mode.SHADOW))
    settle = here.engine._keeper.settle

    async def and_take_away(image, lease, *, is_shadow):
        await settle(image, lease, is_shadow=is_shadow)
        runtime.run_ctr("snapshots", "rm", image.top)

    here.engine._keeper.settle = and_take_away
    report = await here.until(has_reason(here, name, Reason.INCOMPLETE), "a failure")
    assert here.image(name, report).pull is PullState.FAILED
    assert await here.client.list_leases() == ()
    here.engine._keeper.settle = settle
    await here.until(is_held(here, name, Hold.SHADOW), "a shadow")
