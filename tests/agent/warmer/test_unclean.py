"""Files that a power loss damaged under snapshots that containerd calls ready: seen, and pulled again; real containerd."""

import json

import pytest

from agent.model.warm import Mode
from muster.pb.containerd.v1 import snapshots_pb2
from tests.agent.warmer.looks import is_warm, layers_asked

pytestmark = pytest.mark.real("containerd", "docker-registry", "root")


@pytest.fixture
async def rebooted(world, runtime, faulty, name, wanted, tmp_path):
    """Return a warmer that has warmed a shadow, and a function that boots the node without an announcement."""
    state, boot = tmp_path / "state.json", tmp_path / "boot_id"
    boot.write_text("first\n")
    here = world(state_file=state, boot_id_path=boot)
    await here.start(wanted(name, Mode.SHADOW))
    await here.until(is_warm(here, name), "a shadow")
    await here.stop()

    async def reboot():
        said = json.loads(state.read_text())
        state.write_text(json.dumps({**said, "clean": False}))
        boot.write_text("second\n")
        faulty.requests.clear()
        await here.start(wanted(name, Mode.SHADOW))
        return here

    return here, reboot


def files(runtime):
    root = runtime.root / "io.containerd.snapshotter.v1.overlayfs" / "snapshots"
    return sorted(path for path in root.glob("*/fs/**/*") if path.is_file() and path.stat().st_size)


async def test_a_damaged_shadow_is_pulled_again(rebooted, runtime, faulty, name):
    here, reboot = rebooted
    damaged, *_ = files(runtime)
    size = damaged.stat().st_size
    damaged.write_bytes(b"")
    await reboot()
    await here.until(lambda _: layers_asked(faulty), "layers that are fetched anew")
    report = await here.until(is_warm(here, name), "a shadow")
    await here.until(lambda report: not here.image(name, report).unverified, "trust")
    assert not here.image(name, report).unverified
    assert size in {path.stat().st_size for path in files(runtime)}
    assert all(path.stat().st_size for path in files(runtime))


async def test_a_whole_one_is_trusted_again_and_nothing_is_fetched(rebooted, runtime, faulty, name):
    here, reboot = rebooted
    await reboot()
    await here.until(lambda report: is_warm(here, name)(report) and not here.image(name, report).unverified, "trust")
    assert layers_asked(faulty) == []


async def test_containerd_itself_says_what_it_noted_at_the_commit(rebooted, runtime, name):
    """Why files are looked at: Usage stays what it was without them."""
    here, reboot = rebooted
    await reboot()
    await here.until(is_warm(here, name), "a shadow")

    async def usage():
        chains = sorted(await here.client.list_snapshots("overlayfs"))
        requests = [snapshots_pb2.UsageRequest(snapshotter="overlayfs", key=chain) for chain in chains]
        return [(await here.client._call(here.client._snapshots.Usage, each)).size for each in requests]

    before = await usage()
    for path in files(runtime):
        path.write_bytes(b"")
    assert await usage() == before
    assert sum(before) > 0
