"""Admission at its edges: streams that break and come back, names that do not fit, a long queue."""

import asyncio
import contextlib

import grpc
import pytest

from muster import client
from muster.model.admission import Ended, Leased, Started, Waiting
from muster.pb.muster.v1 import admission_pb2
from tests.admitter import admitters
from tests.admitter.admitters import a_gang, hear, until

GANGS = 300


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


async def test_a_client_that_is_back_within_the_grace_starts_the_gang_it_had(town):
    async with town.admitter() as (_, address), town.node(address, "n1") as node, town.client(address) as admitter:
        async with admitter.admit(a_gang()) as gang:
            first = await hear(gang.states(), Leased)
            gang.member("main", "u0", "n1")
            await until(lambda: [uid for lease in node.leases.leases for uid in lease.pod_uids] == ["u0"])
        async with admitter.admit(a_gang(request_id="r2")) as other:
            assert (await hear(other.states(), Ended)).reason == "Duplicate"
        async with admitter.admit(a_gang()) as gang:
            states = gang.states()
            assert await hear(states, Leased) == first
            # What the first stream said still counts.
            for index in range(1, 8):
                gang.member("main", f"u{index}", "n1")
            await node.say(0, counted=[(f"u{index}", 1) for index in range(8)])
            await hear(states, Started)


async def test_a_client_that_is_back_after_the_grace_asks_anew_under_another_request(town):
    async with (
        town.admitter(lease_grace_seconds=0.2) as (_, address),
        town.node(address, "n1") as node,
        town.client(address) as admitter,
    ):
        async with admitter.admit(a_gang()) as gang:
            first = await hear(gang.states(), Leased)
            await until(lambda: node.units() == 8)
        await until(lambda: node.units() == 0)
        async with admitter.admit(a_gang()) as gang:
            assert (await hear(gang.states(), Ended)).reason == "ClientGone"
        async with admitter.admit(a_gang(request_id="r2")) as gang:
            assert (await hear(gang.states(), Leased)).lease_id != first.lease_id


NAMES = {
    "100 KB": "n" * 100_000,
    "a line break": "train\n",
    "a terminal's escape": "\x1b[31mtrain",
    "a zero byte": "tr\x00ain",
    "a slash": "team/train",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("field", ["namespace", "gang", "request_id"])
async def test_a_name_that_does_not_fit_is_refused_by_its_field_in_few_words(town, field, name):
    fields = {"namespace": "team-a", "gang": "train", "request_id": "r1"} | {field: name}
    opening = admission_pb2.OpenGang(**fields, podsets=[admission_pb2.Podset(count=1, gpus=1)])
    async with town.admitter() as (_, address), town.raw(address) as stub:
        call = stub.Admit()
        await call.write(admission_pb2.AdmitRequest(open=opening))
        async with asyncio.timeout(admitters.WAIT_SECONDS):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            details = await call.details()
    assert details.startswith(f"open.{field}: ")
    assert len(details) < 200
    assert details.isprintable()


async def test_three_hundred_gangs_wait_and_status_still_answers(town):
    """Every gang has its own line, and the room that comes is given to the first of them alone."""
    async with (
        contextlib.AsyncExitStack() as stack,
        town.admitter() as (_, address),
        town.node(address, "n1", free=0) as node,
        town.client(address) as admitter,
    ):
        first = await stack.enter_async_context(admitter.admit(a_gang(name="g0")))
        states = first.states()
        await hear(states, Waiting)
        for index in range(1, GANGS):
            await stack.enter_async_context(admitter.admit(a_gang(name=f"g{index}")))
        status = await waiting(admitter, GANGS)
        assert sorted(gang.why.position for gang in status.gangs) == list(range(1, GANGS + 1))
        await node.say(8)
        await hear(states, Leased)
        status = await waiting(admitter, GANGS - 1)
        assert [gang.name for gang in status.gangs if gang.state == "leased"] == ["g0"]


async def waiting(admitter, count):
    """Return the status once so many gangs wait, each with its reason."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(client.Unreachable):
                status = await admitter.status(20)
                if sum(gang.state == "waiting" and gang.HasField("why") for gang in status.gangs) == count:
                    return status
            await asyncio.sleep(0.1)
