"""Admission over real sockets: a gang waits, is leased, starts and ends; whoever may not ask is told so."""

import asyncio
import contextlib
import json

import grpc
import pytest

from muster import client
from muster.model.admission import Ended, Gang, Leased, Podset, Quantity, Started, Waiting
from muster.model.report import Verdict
from muster.pb.muster.v1 import admission_pb2
from tests.admitter import admitters
from tests.admitter.admitters import a_gang, hear, until


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


async def test_the_main_story(town, tmp_path):
    """24 GPUs of four nodes, one of which has lost a GPU: held, explained, leased when the fault clears, started."""
    async with contextlib.AsyncExitStack() as stack, town.admitter() as (_, address):
        nodes = [await stack.enter_async_context(town.node(address, f"n{i}")) for i in (1, 2)]
        bad = await stack.enter_async_context(town.node(address, "n3", free=0, verdict=Verdict.OVER))
        admitter = await stack.enter_async_context(town.client(address))
        async with admitter.admit(a_gang(count=3, gpus=8)) as gang:
            states = gang.states()
            waiting = await hear(states, Waiting)
            assert waiting.reason == "NotEnoughUnits"
            assert "needs 24 GPUs (3x8); 16 admissible on 2 of 3 nodes: n3 OVER strict 0; position 1" in waiting.summary
            await bad.say(8)
            leased = await hear(states, Leased)
            assert {place.node: place.units for place in leased.placements} == {"n1": 8, "n2": 8, "n3": 8}
            await until(lambda: [node.units() for node in (*nodes, bad)] == [8, 8, 8])
            for index, node in enumerate((*nodes, bad), start=1):
                gang.member("main", f"u{index}", f"n{index}")
                await node.say(0, counted=[(f"u{index}", 8)])
            assert isinstance(await hear(states, Started), Started)
            assert await gang.end("done") == Ended(reason="Finished", detail="done")
        await until(lambda: nodes[0].units() == 0)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    assert kinds == ["opened", "waiting", "leased", "started", "ended"]


async def test_a_lost_client_finds_its_lease_again(town):
    async with town.admitter() as (_, address), town.node(address, "n1"), town.client(address) as admitter:
        async with admitter.admit(a_gang()) as gang:
            first = await hear(gang.states(), Leased)
        async with admitter.admit(a_gang()) as gang:
            assert await hear(gang.states(), Leased) == first


async def test_a_client_that_stays_away_loses_its_lease(town):
    async with (
        town.admitter(lease_grace_seconds=0.2) as (_, address),
        town.node(address, "n1") as node,
        town.client(address) as admitter,
    ):
        async with admitter.admit(a_gang()) as gang:
            await hear(gang.states(), Leased)
            await until(lambda: node.units() == 8)
        await until(lambda: node.units() == 0)
        async with admitter.admit(a_gang()) as gang:
            assert (await hear(gang.states(), Ended)).reason == "ClientGone"


async def test_the_newest_stream_has_the_gang(town):
    async with town.admitter() as (_, address), town.client(address) as admitter, admitter.admit(a_gang()) as old:
        states = old.states()
        await hear(states, Waiting)
        async with admitter.admit(a_gang()) as new:
            await hear(new.states(), Waiting)
            with pytest.raises(client.Refused) as caught:
                await hear(states, Ended)
            assert caught.value.code is grpc.StatusCode.ABORTED


async def test_a_second_request_for_a_living_gang_is_a_duplicate(town):
    async with town.admitter() as (_, address), town.client(address) as admitter, admitter.admit(a_gang()) as gang:
        await hear(gang.states(), Waiting)
        async with admitter.admit(a_gang(request_id="r2")) as second:
            assert (await hear(second.states(), Ended)).reason == "Duplicate"


async def test_another_client_cannot_touch_the_gang(town):
    async with (
        town.admitter() as (_, address),
        town.client(address) as admitter,
        town.client(address, "thief") as thief,
        admitter.admit(a_gang()) as gang,
    ):
        await hear(gang.states(), Waiting)
        async with thief.admit(a_gang()) as stolen:
            with pytest.raises(client.Refused) as caught:
                await hear(stolen.states(), Waiting)
            assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_node_may_not_ask(town):
    async with (
        town.admitter() as (_, address),
        client.connect(address, town.world.node("n1")) as admitter,
        admitter.admit(a_gang()) as gang,
    ):
        with pytest.raises(client.Refused) as caught:
            await hear(gang.states(), Waiting)
    assert (caught.value.code, caught.value.detail) == (grpc.StatusCode.PERMISSION_DENIED, "node n1 may only feed")


async def test_bad_requests_are_refused_with_every_problem(town):
    podset = Podset(name="X", count=0, request=Quantity(name="!", quantity=0), topology="required=rack")
    bad = Gang(namespace="", name="g", request_id="r", podsets=(podset,))
    async with (
        town.admitter() as (_, address),
        town.client(address) as admitter,
        admitter.admit(bad) as gang,
    ):
        with pytest.raises(client.Refused) as caught:
            await gang.end()
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    for path in ("open.namespace", "[0].name", "[0].count", "[0].topology", "resource.name", "resource.quantity"):
        assert path in caught.value.detail


BAD_TALK = {
    "nothing first": [admission_pb2.AdmitRequest()],
    "a member first": [admission_pb2.AdmitRequest(member=admission_pb2.Member(podset="main", uid="u", node="n"))],
    "a member of no podset": [
        None,
        admission_pb2.AdmitRequest(member=admission_pb2.Member(podset="?", uid="", node="")),
    ],
    "a second open": [None, None],
}


@pytest.mark.parametrize("words", BAD_TALK.values(), ids=BAD_TALK)
async def test_what_does_not_belong_there_ends_the_stream(town, words):
    good = admission_pb2.OpenGang(
        namespace="team-a", gang="g", request_id="r", podsets=[admission_pb2.Podset(count=1, gpus=1)]
    )
    async with town.admitter() as (_, address), town.raw(address) as stub:
        call = stub.Admit()
        for word in words:
            await call.write(word or admission_pb2.AdmitRequest(open=good))
        async with asyncio.timeout(20):
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in call:
                    continue
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_admitter_that_starts_anew_gives_the_lease_back_and_nothing_twice(town):
    """The agent keeps what it was told; the new term hears it, the client comes back by itself."""
    async with town.admitter() as (running, address), town.node(address, "n1") as node:
        port = running.port
        async with town.client(address) as admitter, admitter.admit(a_gang()) as gang:
            states = gang.states()
            first = await hear(states, Leased)
            await until(lambda: node.units() == 8)
    told = node.leases
    async with (
        town.admitter(port=port, lease_grace_seconds=600.0) as (_, address),
        town.client(address) as admitter,
        admitter.admit(a_gang(name="other", count=1)) as other,
    ):
        assert (await hear(other.states(), Waiting)).reason == "NewTerm"
        async with town.node(address, "n1", leases=told) as node, admitter.admit(a_gang()) as gang:
            again = await hear(gang.states(), Leased)
            assert (again.lease_id, again.term) == (first.lease_id, 2)
            await until(lambda: node.units() == 8)


async def test_a_client_rides_over_a_restart(town):
    async with town.admitter() as (running, address):
        port = running.port
    async with (
        town.client(f"127.0.0.1:{port}") as admitter,
        admitter.admit(a_gang(count=1)) as gang,
        town.admitter(port=port, new_term_grace_seconds=0.0) as (_, address),
    ):
        states = gang.states()
        await hear(states, Waiting)
        async with town.node(address, "n1"):
            await hear(states, Leased)
