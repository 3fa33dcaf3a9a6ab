"""From a warmer to the admitter and back, through running programs: what a queue wants of images reaches the node that it waits for.

The warmer is a server of ours over the real contract, so that this runs without containerd; `make demo ARGS="--images"` and
tests/agent/warmer are the same with a real one.
"""

import asyncio
import contextlib
import threading
import time
from concurrent import futures

import grpc
import pytest

from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode
from muster import client
from muster.model import pbform, warmth
from muster.model.admission import Gang, Leased, Podset, Waiting
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

pytestmark = pytest.mark.e2e

WAIT_SECONDS = 120.0
DIGEST = "sha256:" + 64 * "a"
REFERENCE = "r.example/ml/train:v1"
HINTED = f"r.example/ml/train@{DIGEST}"


class Warmer(warmer_pb2_grpc.WarmerServiceServicer):
    """Has an image as soon as it was told to."""

    def __init__(self):
        self.reason = ""
        self.asked, self.hints, self.had = [], [], set()
        self._told = threading.Condition()

    def Tell(self, request, context):  # noqa: N802
        with self._told:
            self.hints = [hint.reference for hint in request.hints]
            self.had |= set(self.hints)
            self._told.notify_all()
        return warmer_pb2.TellResponse()

    def Resolve(self, request, context):  # noqa: N802
        self.asked.append(request.reference)
        if self.reason:
            return warmer_pb2.ResolveResponse(reason=self.reason, detail="said the test")
        return warmer_pb2.ResolveResponse(digest=DIGEST, bytes_total=600 * 1024 * 1024)

    def Watch(self, request, context):  # noqa: N802
        sent = None
        while context.is_active():
            images = tuple(self._image(reference) for reference in sorted(self.had))
            if images != sent:
                sent = images
                state = warmth.NodeWarmth(
                    observed_at=warmth.NOTHING.observed_at,
                    store=warmth.ImageStore(snapshotter="overlayfs"),
                    images=images,
                )
                response = warmer_pb2.WatchResponse()
                pbform.fill(response.warmth, state)
                yield response
            with self._told:
                self._told.wait(0.2)

    @staticmethod
    def _image(reference):
        return warmth.ImageWarmth(
            digest=DIGEST,
            reference=reference,
            platform="linux/amd64",
            snapshotter="overlayfs",
            level=warmth.Level.UNPACKED,
            hold=warmth.Hold.VISIBLE,
            is_wanted=True,
            bytes_total=600 * 1024 * 1024,
            bytes_missing=0,
            layers_total=3,
            layers_missing=0,
        )


@contextlib.contextmanager
def serving(path):
    warmer = Warmer()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    warmer_pb2_grpc.add_WarmerServiceServicer_to_server(warmer, server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield warmer
    finally:
        server.stop(None).wait()


def until(condition, fleet, what):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        fleet.check()
        if condition():
            return
        time.sleep(0.1)
    pytest.fail(f"not seen: {what}\n{fleet.log_of('admitter')[-3000:]}")


@pytest.fixture
def world(tmp_path):
    node, socket = FakeNode(tmp_path, "gpu-a"), tmp_path / "w.sock"
    with (
        serving(socket) as warmer,
        Fleet(
            tmp_path,
            [node],
            scale=0.2,
            settings={"--warmer-socket": str(socket)},
            admitter_settings={
                "--hint-registries": "r.example",
                "--warm-hold-seconds": "3600",
                "--image-fresh-seconds": "1",
                "--image-check-seconds": "60",
            },
        ) as fleet,
    ):
        fleet.start()
        yield warmer, fleet


async def ask(fleet, stop, states):
    """Ask for a gang of eight GPUs that names its image; keep what is said."""
    podset = Podset(count=1, request=8, images=(REFERENCE,))
    gang = Gang(namespace="team-a", name="train", request_id="r1", podsets=(podset,))
    async with client.connect(fleet.address, fleet.client_files) as muster, muster.admit(gang) as stream:

        async def listen():
            async for state in stream.states():
                states.append(state)

        task = asyncio.create_task(listen())
        while not stop.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_gang_waits_for_an_image_that_is_not_there_then_for_one_that_is_cold_and_starts_when_it_is_warm(world):
    warmer, fleet = world
    warmer.reason = "NotFound"
    until(lambda: "overlayfs" in fleet.muster("status", "--images").stdout, fleet, "the warmer's state")
    stop, states = threading.Event(), []
    thread = threading.Thread(target=lambda: asyncio.run(ask(fleet, stop, states)))
    thread.start()
    try:
        said = lambda reason: any(isinstance(state, Waiting) and state.reason == reason for state in states)  # noqa: E731
        until(lambda: said("ImageUnavailable"), fleet, "ImageUnavailable")
        why = fleet.muster("why", "gang/team-a/train").stdout
        assert REFERENCE in why
        assert not any(isinstance(state, Leased) for state in states)
        assert warmer.hints == []
        warmer.reason = ""
        until(lambda: warmer.hints == [HINTED], fleet, "the hint")
        until(lambda: any(isinstance(state, Leased) for state in states), fleet, "the lease")
        shown = fleet.muster("status", "--images").stdout
        assert "unpacked" in shown
        until(lambda: warmer.hints == [], fleet, "the hint taken back: nobody waits for it any more")
        assert set(warmer.asked) == {REFERENCE}
    finally:
        stop.set()
        thread.join(30)
