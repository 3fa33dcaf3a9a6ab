"""What was pulled just before an unclean boot is weighed once, by the digest that its pull was noted under."""

import datetime

import pytest

from agent.model.warm import Descriptor, Image, Layer, Lease, Limits, Snapshot, StoreFacts
from agent.warmer.config import WarmerConfig
from agent.warmer.journal import Journal
from agent.warmer.keeping import Keeper
from muster.clock import SystemClock

AT = datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC)
MANIFEST = Descriptor(digest="sha256:manifest", size=1, kind="manifest")
INDEX = Descriptor(digest="sha256:index", size=1, kind="index")
LAYERS = tuple(
    Layer(blob=Descriptor(digest=f"sha256:l{name}", size=1, kind="layer"), diff_id="d", chain_id=f"sha256:c{name}")
    for name in "ab"
)
HERE = StoreFacts(snapshots={layer.chain_id: Snapshot() for layer in LAYERS})


class Runtime:
    """Snapshots of five bytes each, and our lease."""

    def __init__(self):
        self.weighed, self.leases = 0, [Lease(id="ours", digest=MANIFEST.digest, expires_at=AT, is_done=True)]

    async def snapshot_bytes(self, snapshotter, key):
        self.weighed += 1
        return 5

    async def list_leases(self):
        return tuple(self.leases)

    async def delete_lease(self, lease):
        self.leases.remove(lease)


def suspecting(tmp_path, size):
    first = Journal(tmp_path / "j.json", "boot 1")
    first.pulled(MANIFEST.digest, AT, size)
    first._file.close()
    return Journal(tmp_path / "j.json", "boot 2")


@pytest.fixture
def runtime():
    return Runtime()


@pytest.fixture
def keeper(runtime):
    return Keeper(WarmerConfig(), runtime, Limits(budget_bytes=0), SystemClock())


@pytest.mark.parametrize("root", [MANIFEST, INDEX], ids=["a manifest alone", "under an index"])
async def test_an_image_that_weighs_what_it_did_is_trusted_again(tmp_path, keeper, runtime, root):
    journal = suspecting(tmp_path, 10)
    image = Image(root=root, manifest=MANIFEST, config=MANIFEST, layers=LAYERS)
    await keeper.judge(journal, [image], StoreFacts())
    assert list(journal.suspects) == [MANIFEST.digest], "until it is there to be weighed"
    await keeper.judge(journal, [image], HERE)
    assert journal.suspects == {}
    assert len(runtime.leases) == 1


async def test_one_that_does_not_is_weighed_once_and_let_go_to_be_pulled_again(tmp_path, keeper, runtime):
    journal = suspecting(tmp_path, 11)
    image = Image(root=INDEX, manifest=MANIFEST, config=MANIFEST, layers=LAYERS)
    for _ in range(3):
        await keeper.judge(journal, [image], HERE)
    assert (runtime.leases, runtime.weighed) == ([], len(LAYERS))
    assert list(journal.suspects) == [MANIFEST.digest]
    await keeper.judge(journal, [image], StoreFacts())
    await keeper.judge(journal, [image], HERE)
    assert runtime.weighed == 2 * len(LAYERS), "what was gone and came back may be whole"
