"""A registry that drips is given up like one that says nothing; a real gRPC server stands for containerd."""

import asyncio
import contextlib
import datetime
import threading
import time

import grpc
import pytest
from google.protobuf import empty_pb2

from agent.core import warmref
from agent.core.warmplan import Candidate
from agent.model.warm import Descriptor, Image, Layer, Mode, Platform, Reason, Wanted
from agent.warmer import pull
from agent.warmer.client import CallFailed, Client
from agent.warmer.fetch import Throttle
from agent.warmer.lazy import Lazy
from agent.warmer.parking import Parking
from agent.warmer.registry import Registry
from agent.warmer.survey import Survey
from hack.images import oci
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
from tests.agent.warmer.webserver import Server, reply, trust

AT = datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC)
PLATFORM = Platform(os="linux", architecture="amd64")
CONTENT = oci.image([oci.of_files({"true": b"x"})])
CONFIG, LAYER, MANIFEST = (
    Descriptor(digest=blob.digest, size=len(blob.data), kind=blob.kind) for blob in CONTENT.blobs
)
IMAGE = Image(
    root=MANIFEST,
    manifest=MANIFEST,
    config=CONFIG,
    layers=(Layer(blob=LAYER, diff_id="sha256:d", chain_id="sha256:d"),),
)


class Content(content_pb2_grpc.ContentServicer):
    """Takes blobs; of those that come in pieces it forgets the pieces."""

    def __init__(self):
        self.blobs = {}

    async def List(self, request, context):  # noqa: N802
        yield content_pb2.ListContentResponse(
            info=[content_pb2.Info(digest=digest, size=size) for digest, size in self.blobs.items()]
        )

    async def ListStatuses(self, request, context):  # noqa: N802
        return content_pb2.ListStatusesResponse()

    async def Write(self, requests, context):  # noqa: N802
        offset = 0
        async for request in requests:
            offset += len(request.data)
            if request.action == content_pb2.COMMIT:
                self.blobs[request.expected] = request.total
            yield content_pb2.WriteContentResponse(action=request.action, offset=offset)


class Images(images_pb2_grpc.ImagesServicer):
    async def List(self, request, context):  # noqa: N802
        return images_pb2.ListImagesResponse()


class Leases(leases_pb2_grpc.LeasesServicer):
    async def List(self, request, context):  # noqa: N802
        return leases_pb2.ListResponse()

    async def Create(self, request, context):  # noqa: N802
        return leases_pb2.CreateResponse()

    async def AddResource(self, request, context):  # noqa: N802
        return empty_pb2.Empty()


class Snapshots(snapshots_pb2_grpc.SnapshotsServicer):
    async def List(self, request, context):  # noqa: N802
        yield snapshots_pb2.ListSnapshotsResponse()


@pytest.fixture
async def client(tmp_path):
    server = grpc.aio.server()
    content_pb2_grpc.add_ContentServicer_to_server(Content(), server)
    images_pb2_grpc.add_ImagesServicer_to_server(Images(), server)
    leases_pb2_grpc.add_LeasesServicer_to_server(Leases(), server)
    snapshots_pb2_grpc.add_SnapshotsServicer_to_server(Snapshots(), server)
    server.add_insecure_port(f"unix:{tmp_path}/c.sock")
    await server.start()
    made = Client(tmp_path / "c.sock", "muster")
    yield made
    await made.close()
    await server.stop(None)


@pytest.fixture
def registry():
    made = Server()
    yield made
    made.stop()


async def nothing():
    return None


def a_pull(client, folder, address):
    lazy = Lazy(client, "overlayfs", None)
    ways = pull.Ways(
        runtime=client,
        registry=Registry(folder, timeout_seconds=5),
        survey=Survey(client, PLATFORM, "overlayfs", lazy),
        lazy=lazy,
        throttle=Throttle(None),
        parking=Parking(),
        snapshotter="overlayfs",
        platform=PLATFORM,
        hosts_folder=str(folder),
        stall_seconds=0.5,
        is_capped=False,
    )
    wanted = Wanted(reference=warmref.parse(f"{address}/ml/app:v1"), mode=Mode.SHADOW)
    candidate = Candidate(wanted=wanted, image=IMAGE)
    return ways, pull.Pull(ways, candidate, nothing, "lease", AT, has_transfer=False)


@pytest.mark.parametrize("part", ["its headers", "a layer"])
async def test_a_registry_that_drips_is_given_up_with_its_connection(client, registry, tmp_path, monkeypatch, part):
    """A byte now and then is no silence for a socket, and there is one pull at a time."""
    monkeypatch.setattr(pull, "SLOWEST_DOWNLOAD", 1 << 30)
    monkeypatch.setattr(pull, "WATCH_SECONDS", 0.1)
    given_up = threading.Event()

    def drip(handler):
        if part == "a layer":
            handler.send_response(200)
            handler.send_header("Content-Length", str(LAYER.size))
            handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"H")
                time.sleep(0.05)
        given_up.set()

    data = {blob.digest: blob.data for blob in CONTENT.blobs}
    registry.routes[f"/v2/ml/app/blobs/{LAYER.digest}"] = drip
    registry.routes["/v2/"] = lambda handler: reply(handler, 200, data[handler.path.rpartition("/")[2]])
    trust(tmp_path, registry.address)
    ways, job = a_pull(client, tmp_path, registry.address)
    async with asyncio.timeout(60):
        with pytest.raises(CallFailed) as raised:
            await job.run()
    assert raised.value.reason is Reason.STALLED
    assert await asyncio.to_thread(given_up.wait, 60)
    assert ways.parking._parked == {}
