"""Lazily mounted images on a real stargz-snapshotter: how much is here, and the rest, read while the node is idle."""

import asyncio
import random

import pytest

from agent.model.warm import Mode, Reason
from agent.warmer import lazy as lazily
from hack.images import estargz, lazy, oci
from hack.images import runtime as runtimes
from hack.images.proxy import Fault
from muster.model.reading import Known
from muster.model.warmth import Level
from tests.agent.warmer.looks import has_reason

pytestmark = pytest.mark.real("containerd", "docker-registry", "root", "stargz")
FILES = 3


@pytest.fixture(scope="session")
def estar():
    """Return an image of two eStargz layers, 6 MiB compressed each."""
    source = random.Random(11)

    def layer(number):
        return estargz.of_files({f"opt/{number}/{file}": source.randbytes(2 * oci.MIB) for file in range(FILES)})

    return oci.image([layer(0), layer(1)])


@pytest.fixture
def name(origin, faulty, estar):
    oci.push(origin.address, "ml/lazy", ["v1"], estar)
    return f"{faulty.address}/ml/lazy:v1"


@pytest.fixture
def stargz(tmp_path):
    made = lazy.Stargz(tmp_path / "sg", lazy.built())
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look often: a test has no minute to spare."""
    monkeypatch.setattr(lazily, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(lazily, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(lazily, "RETRY_SECONDS", 0.5)


@pytest.fixture
def runtime(tmp_path, stargz, faulty):
    made = runtimes.Containerd(tmp_path / "c", runtimes.built(), proxy_snapshotter=(lazy.NAME, stargz.socket))
    made.trust(faulty.address)
    made.start()
    yield made
    made.stop()


def fetched(world, name, share):
    """Return a condition on the share of an image that is here."""

    def check(report):
        image = world.image(name, report)
        if image is None or image.level is not Level.LAZY:
            return False
        match image.fetched_fraction:
            case Known(value):
                return share(value)
            case _:
                return False

    return check


def files_of(stargz):
    return [path for path in stargz.root.glob("snapshotter/snapshots/*/fs/opt/*/*") if path.is_file()]


async def test_the_rest_is_read_while_the_node_is_idle(world, runtime, stargz, faulty, name, wanted):
    """A pull brings next to nothing; afterwards a registry that is gone takes no file away."""
    here = world(snapshotter=lazy.NAME)
    await here.start(wanted(name, Mode.VISIBLE))
    await here.until(fetched(here, name, lambda share: share == 1.0), "a whole image")
    faulty.faults = [Fault(status=503)]
    assert len(files_of(stargz)) == 2 * FILES
    assert {len(path.read_bytes()) for path in files_of(stargz)} == {2 * oci.MIB}


async def test_without_a_rate_nothing_is_read(world, runtime, stargz, faulty, name, wanted):
    here = world(snapshotter=lazy.NAME, lazy_mib_per_second=0.0)
    await here.start(wanted(name, Mode.VISIBLE))
    report = await here.until(fetched(here, name, lambda share: share < 0.5), "a lazy image")
    assert here.image(name, report).level is Level.LAZY
    assert here.engine._ways.lazy.read_bytes == 0


async def test_a_starting_pod_goes_first(world, runtime, stargz, faulty, name, wanted):
    here = world(snapshotter=lazy.NAME, lazy_mib_per_second=4.0)
    await here.start(wanted(name, Mode.VISIBLE))
    await here.until(lambda _: here.engine._ways.lazy.read_bytes > 0, "a read that is under way")
    here.engine.busy.starting(1)
    # The piece that is being read when it is told, and the word of it, are all that may still come.
    await asyncio.sleep(1)
    read = here.engine._ways.lazy.read_bytes
    await asyncio.sleep(1)
    assert here.engine._ways.lazy.read_bytes == read < 2 * FILES * 2 * oci.MIB
    here.engine.busy.starting(0)
    await here.until(fetched(here, name, lambda share: share == 1.0), "a whole image")
    assert here.engine._ways.lazy.read_bytes <= 2 * FILES * 2 * oci.MIB, "nothing was read twice"


async def test_an_image_that_nobody_wants_is_told_and_not_read(world, runtime, stargz, faulty, name):
    here = world(snapshotter=lazy.NAME)
    await here.start()
    await here.client.pull(name, None, lease="", handler="")
    await here.until(fetched(here, name, lambda share: share < 0.5), "a lazy image")
    assert here.engine._ways.lazy.read_bytes == 0


async def test_a_registry_that_is_gone_makes_it_broken_until_it_is_back(
    world, runtime, stargz, faulty, name, wanted, monkeypatch
):
    """The runtime goes on listing it; the error stays in the state file, and is forgiven once all of it was read."""
    here = world(snapshotter=lazy.NAME)
    await here.start()
    await here.client.pull(name, None, lease="", handler="")
    await here.until(fetched(here, name, lambda share: share < 0.5), "a lazy image")
    await here.stop()
    faulty.faults = [Fault(path="/blobs/", status=503)]
    await here.start(wanted(name, Mode.VISIBLE))
    report = await here.until(has_reason(here, name, Reason.LAZY_BROKEN), "a broken image")
    image = here.image(name, report)
    assert image.level is Level.PARTIAL
    assert image.layers_missing > 0
    assert name in runtime.run_ctr("images", "ls", "-q")
    faulty.faults = []
    await here.until(fetched(here, name, lambda share: share == 1.0), "a whole image")


async def test_a_daemon_that_was_killed_makes_it_broken(world, runtime, stargz, faulty, name, wanted):
    here = world(snapshotter=lazy.NAME)
    await here.start(wanted(name, Mode.VISIBLE))
    await here.until(fetched(here, name, lambda share: share == 1.0), "a whole image")
    stargz.kill()
    await here.until(
        lambda report: report.store.problem != "" or has_reason(here, name, Reason.LAZY_BROKEN)(report),
        "a snapshotter that is gone",
    )
    assert here.engine.warmth.store.problem or here.image(name).level is not Level.LAZY
