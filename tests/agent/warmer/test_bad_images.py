"""Images that cannot be warmed, in a real registry: one clear reason each, at once, and nothing half-done."""

from agent.model.warm import Mode, Reason
from hack.images import oci
from muster.model.warmth import Level
from tests.agent.warmer.looks import is_warm


def images():
    """Return name -> (image, reason)."""
    layer = oci.generated(oci.MIB, 400)
    config = oci.image([layer]).blobs[0]
    platforms = {f"cpu{number}": oci.image([layer], architecture=f"cpu{number}") for number in range(50)}
    outside = oci.Blob("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", layer.blob.data)
    return {
        "config": (oci.of_parts(oci.Blob(oci.CONFIG, b"not JSON"), [layer.blob]), Reason.BAD_CONFIG),
        "counts": (oci.of_parts(config, [layer.blob, layer.blob]), Reason.BAD_CONFIG),
        "empty": (oci.of_parts(config, [oci.Blob(oci.LAYER, b"")]), Reason.EMPTY_LAYER),
        "foreign": (oci.of_parts(config, [outside]), Reason.FOREIGN_LAYER),
        "platforms": (oci.index(platforms), Reason.NO_PLATFORM),
    }


async def test_each_has_its_reason_and_leaves_nothing_behind(world, runtime, origin, faulty, name, wanted):
    """A good image beside them gets warm all the same."""
    bad = images()
    for kind, (image, _) in bad.items():
        oci.push(origin.address, f"ml/bad-{kind}", ["v1"], image)
    names = {kind: name.replace("ml/cuda", f"ml/bad-{kind}") for kind in bad}
    here = world()
    await here.start(*(wanted(each, Mode.SHADOW) for each in names.values()))

    def all_refused(report):
        return all((image := here.image(each, report)) is not None and image.reason for each in names.values())

    report = await here.until(all_refused, "a reason for each")
    told = {kind: here.image(each, report) for kind, each in names.items()}
    assert {kind: image.reason for kind, image in told.items()} == {kind: why.value for kind, (_, why) in bad.items()}
    assert {image.level for image in told.values()} == {Level.COLD}
    assert all(0 < len(image.detail) <= 300 for image in told.values())
    assert await here.client.list_blobs() == {}
    assert await here.client.list_ingests() == ()
    assert await here.client.list_leases() == ()
    await here.stop()
    await here.start(*(wanted(each, Mode.SHADOW) for each in names.values()), wanted(name))
    await here.until(is_warm(here, name), "the good one")
