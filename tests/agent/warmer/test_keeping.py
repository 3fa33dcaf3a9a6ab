"""What was pulled just before an unclean boot is looked at once, by the digest that its pull was noted under."""

import datetime

import pytest

from agent.model.warm import Descriptor, Image, Layer, Lease, Limits, Snapshot, StoreFacts
from agent.warmer import fingerprint
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
    """An image in one folder, and our lease."""

    def __init__(self, folder):
        self.folder, self.looks = folder, 0
        self.leases = [Lease(id="ours", digest=MANIFEST.digest, expires_at=AT, is_done=True)]

    async def view(self, snapshotter, key, parent):
        self.looks += 1
        return (("bind", str(self.folder), ("ro",)),)

    async def remove_snapshot(self, snapshotter, key):
        pass

    async def list_leases(self):
        return tuple(self.leases)

    async def delete_lease(self, lease):
        self.leases.remove(lease)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "fs"
    made.mkdir()
    (made / "true").write_bytes(b"x" * 100)
    return made


def suspecting(tmp_path, folder):
    first = Journal(tmp_path / "j.json", "boot 1")
    first.pulled(MANIFEST.digest, AT, fingerprint.of([folder]))
    first._file.close()
    return Journal(tmp_path / "j.json", "boot 2")


@pytest.fixture
def runtime(folder):
    return Runtime(folder)


@pytest.fixture
def keeper(runtime):
    return Keeper(WarmerConfig(), runtime, Limits(budget_bytes=0), SystemClock())


@pytest.mark.parametrize("root", [MANIFEST, INDEX], ids=["a manifest alone", "under an index"])
async def test_an_image_that_is_what_it_was_is_trusted_again(tmp_path, folder, keeper, runtime, root):
    journal = suspecting(tmp_path, folder)
    image = Image(root=root, manifest=MANIFEST, config=MANIFEST, layers=LAYERS)
    await keeper.judge(journal, [image], StoreFacts())
    assert list(journal.suspects) == [MANIFEST.digest], "until it is there to be looked at"
    await keeper.judge(journal, [image], HERE)
    assert journal.suspects == {}
    assert len(runtime.leases) == 1


async def test_one_that_is_not_is_looked_at_once_and_let_go_once_to_be_pulled_again(tmp_path, folder, keeper, runtime):
    journal, held = suspecting(tmp_path, folder), tuple(runtime.leases)
    (folder / "true").write_bytes(b"")
    image = Image(root=INDEX, manifest=MANIFEST, config=MANIFEST, layers=LAYERS)
    for _ in range(3):
        await keeper.judge(journal, [image], HERE)
    assert (runtime.leases, runtime.looks) == ([], 1)
    assert list(journal.suspects) == [MANIFEST.digest]
    runtime.leases.extend(held)
    await keeper.judge(journal, [image], StoreFacts())
    await keeper.judge(journal, [image], HERE)
    assert runtime.looks == 2, "what was gone and came back may be whole"
    assert len(runtime.leases) == 1, "it is not pulled over and over"
