"""Messages that no honest agent sends: each ends its own stream, changes nothing and harms nobody else."""

import grpc
import pytest

from admitter.core.feedstate import Reason
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2
from tests import feedworld


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


HOSTILE = {
    "a negative count": feedworld.a_snapshot(
        2, feedworld.a_report(resources={"nvidia.com/gpu": feedworld.a_resource(admit_strict=Known(-9))})
    ),
    "more than it advertises": feedworld.a_snapshot(
        2, feedworld.a_report(resources={"nvidia.com/gpu": feedworld.a_resource(advertised=Known(1))})
    ),
    "not a number": feedworld.a_snapshot(
        2, feedworld.a_report(resources={"nvidia.com/gpu": feedworld.a_resource(pick_risk=Known(float("nan")))})
    ),
    "another node's report": feedworld.a_snapshot(2, feedworld.a_report(node="node-2")),
    "no report": feed_pb2.Snapshot(sequence=2),
    "a device twice": feedworld.a_snapshot(
        2, feedworld.a_report(devices=feedworld.a_report().devices + feedworld.a_report().devices)
    ),
}


def with_an_unknown_enum():
    message = feedworld.a_snapshot(2)
    message.report.verdict = 99
    return message


def with_an_impossible_time():
    message = feedworld.a_snapshot(2)
    message.report.taken_at.seconds = 2**62
    return message


@pytest.mark.parametrize(
    "message",
    [*HOSTILE.values(), with_an_unknown_enum(), with_an_impossible_time()],
    ids=[*HOSTILE, "an unknown verdict", "an impossible time"],
)
async def test_a_hostile_snapshot_ends_its_stream_and_changes_nothing(world, message):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        before = hub.view().nodes
        await wire.say(snapshot=message)
        code, words = await wire.hear_end()
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)
        assert words
        assert hub.view().nodes == before
        assert sum(hub.refused.values()) == 1


@pytest.mark.parametrize("data", [b"\xff" * 64, b"", b"\x0a\xff\xff\xff\xff\x0f"], ids=["noise", "empty", "truncated"])
async def test_bytes_without_meaning_end_their_stream(world, data):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub) as wire:
        await wire.say_bytes(data)
        code, _ = await wire.hear_end()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert hub.refused == {Reason.MALFORMED: 1}
        assert feedworld.free_in(hub) == 8


@pytest.mark.parametrize(
    ("size", "counted"),
    [(5 * 1024 * 1024, {Reason.OVERSIZED: 1}), (100_000_000, {})],
    ids=["a little too long", "a hundred megabytes, refused by gRPC before it is ours to count"],
)
async def test_a_message_that_is_too_long_ends_its_stream_and_nobody_elses(world, size, counted):
    async with world.hub() as (hub, address), feedworld.a_settled_wire(world, address, hub):
        options = (("grpc.max_send_message_length", -1),)
        async with world.wire(address, node="node-2", options=options) as wire:
            await wire.greet(node="node-2")
            await wire.say_bytes(b"\x00" * size)
            code, _ = await wire.hear_end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await feedworld.until(lambda: hub.connected == {"node-1"})
        assert set(hub.view().nodes) == {"node-1"}
        assert hub.refused == counted
