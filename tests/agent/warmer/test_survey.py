"""One look at containerd, of which one snapshotter's program is down: a real gRPC server stands for it."""

import asyncio
import datetime

import grpc
import pytest

from agent.model.warm import Platform, Snapshot
from agent.warmer import abilities, estate, survey
from agent.warmer.client import Client
from agent.warmer.config import WarmerConfig
from agent.warmer.lazy import Lazy
from agent.warmer.survey import Survey
from muster.model.reading import Unknown
from muster.pb.containerd.v1 import (
    content_pb2,
    content_pb2_grpc,
    images_pb2,
    images_pb2_grpc,
    leases_pb2,
    leases_pb2_grpc,
    snapshots_pb2,
    snapshots_pb2_grpc,
)

AT = datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC)
PLATFORM = Platform(os="linux", architecture="amd64")


class Content(content_pb2_grpc.ContentServicer):
    async def List(self, request, context):  # noqa: N802
        yield content_pb2.ListContentResponse()

    async def ListStatuses(self, request, context):  # noqa: N802
        return content_pb2.ListStatusesResponse()


class Images(images_pb2_grpc.ImagesServicer):
    async def List(self, request, context):  # noqa: N802
        return images_pb2.ListImagesResponse()


class Leases(leases_pb2_grpc.LeasesServicer):
    async def List(self, request, context):  # noqa: N802
        return leases_pb2.ListResponse()


class Snapshots(snapshots_pb2_grpc.SnapshotsServicer):
    """Each has one snapshot, but for those that are down or hang."""

    def __init__(self):
        self.down, self.hanging, self.asked = set(), set(), []

    async def List(self, request, context):  # noqa: N802
        self.asked.append(request.snapshotter)
        if request.snapshotter in self.hanging:
            await asyncio.sleep(3600)
        if request.snapshotter in self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "dial unix /run/devmapper.sock: connection refused")
        info = snapshots_pb2.Info(name=f"sha256:{request.snapshotter}", kind=snapshots_pb2.COMMITTED)
        yield snapshots_pb2.ListSnapshotsResponse(info=[info])


@pytest.fixture
async def containerd(tmp_path):
    """Return its snapshotters, and a survey of overlayfs that looks at two others besides."""
    server, snapshotters = grpc.aio.server(), Snapshots()
    content_pb2_grpc.add_ContentServicer_to_server(Content(), server)
    images_pb2_grpc.add_ImagesServicer_to_server(Images(), server)
    leases_pb2_grpc.add_LeasesServicer_to_server(Leases(), server)
    snapshots_pb2_grpc.add_SnapshotsServicer_to_server(snapshotters, server)
    server.add_insecure_port(f"unix:{tmp_path}/c.sock")
    await server.start()
    client = Client(tmp_path / "c.sock", "muster")
    looking = Survey(client, PLATFORM, "overlayfs", Lazy(client, "overlayfs", None))
    looking.elsewhere = frozenset(("devmapper", "native"))
    yield snapshotters, looking
    await client.close()
    await server.stop(None)


async def test_all_snapshotters_are_looked_at(containerd):
    facts = await containerd[1].read()
    assert facts.snapshots == {"sha256:overlayfs": Snapshot()}
    assert facts.elsewhere == {
        "devmapper": {"sha256:devmapper": Snapshot()},
        "native": {"sha256:native": Snapshot()},
    }


@pytest.mark.parametrize("how", ["down", "hanging"])
async def test_one_that_does_not_answer_hides_only_itself(containerd, how, monkeypatch):
    monkeypatch.setattr(survey, "ELSEWHERE_SECONDS", 0.5)
    snapshotters, looking = containerd
    getattr(snapshotters, how).add("devmapper")
    for _ in range(3):
        facts = await looking.read()
        assert facts.snapshots == {"sha256:overlayfs": Snapshot()}
        assert facts.elsewhere == {"native": {"sha256:native": Snapshot()}}
    assert snapshotters.asked.count("devmapper") == 1, "a look does not wait for it again and again"
    getattr(snapshotters, how).clear()
    monkeypatch.setattr(looking, "_away_until", {"devmapper": 0.0})
    assert sorted((await looking.read()).elsewhere) == ["devmapper", "native"]


async def test_its_handlers_are_not_known_meanwhile(containerd):
    """A pod that names one is on a node of which nobody can say; one that names none stays with its own snapshotter."""
    snapshotters, looking = containerd
    snapshotters.down.add("devmapper")
    known = estate.Estate(WarmerConfig(), looking, PLATFORM, monotonic=lambda: 0.0, jitter=lambda: 0.0)
    handlers = {"": "devmapper", "kata": "devmapper", "plain": "native", "runc": "overlayfs"}
    known.abilities = abilities.Abilities(handlers=handlers)
    facts = await looking.read()
    report = await known.report(
        facts, (), estate.Plan(), pulls={}, disk=Unknown("NotVisible"), unverified=frozenset(), now=AT
    )
    assert report.store.handlers == {"": "devmapper", "plain": "native", "runc": "overlayfs"}


async def test_our_own_snapshotter_is_all_there_is(containerd):
    snapshotters, looking = containerd
    snapshotters.down.add("overlayfs")
    with pytest.raises(survey.CallFailed):
        await looking.read()
