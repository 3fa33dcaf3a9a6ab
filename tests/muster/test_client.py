"""The client rides over broken connections and raises what trying again would not cure."""

import asyncio
import contextlib
import pathlib
import re

import grpc
import pytest

from muster import client
from muster.model.admission import Leased, Started, Waiting
from tests.admitter import admitters
from tests.admitter.admitters import a_gang, hear

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "client.md"


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


async def test_a_watch_goes_on_after_a_restart_and_names_what_went_away(town):
    """The second admitter has never heard of n1; the watcher is told that it is gone."""
    async with contextlib.AsyncExitStack() as first:
        running, address = await first.enter_async_context(town.admitter())
        for name in ("n1", "n2"):
            await first.enter_async_context(town.node(address, name))
        async with town.client(address) as admitter:
            changes = admitter.watch_capacity()
            seen = set()
            async with asyncio.timeout(20):
                while seen != {"n1", "n2"}:
                    seen |= (await anext(changes)).nodes.keys()
            await first.aclose()
            async with town.admitter(port=running.port) as (_, address), town.node(address, "n2"):
                async with asyncio.timeout(20):
                    while "n1" in seen:
                        change = await anext(changes)
                        seen = (seen | change.nodes.keys()) - set(change.removed)
                assert change.synced


async def test_what_was_said_is_said_again_to_an_admitter_that_starts_anew(town):
    """Lease, member, restart: the start is heard on the second admitter."""
    async with contextlib.AsyncExitStack() as first:
        running, address = await first.enter_async_context(town.admitter())
        node = await first.enter_async_context(town.node(address, "n1"))
        async with town.client(address) as admitter, admitter.admit(a_gang(count=1)) as gang:
            states = gang.states()
            await hear(states, Leased)
            gang.member("main", "u1", "n1")
            await admitters.until(lambda: node.units() and node.leases.leases[0].pod_uids)
            await first.aclose()
            async with (
                town.admitter(port=running.port) as (_, address),
                town.node(address, "n1", free=7, counted=[("u1", 1)], leases=node.leases),
            ):
                assert isinstance(await hear(states, Started), Started)


async def test_a_stream_that_breaks_leaves_no_task_behind(town):
    """A gang that waits for days sees many admitters."""
    async with contextlib.AsyncExitStack() as lasting:
        async with town.admitter() as (_, address):
            admitter = await lasting.enter_async_context(town.client(address))
            gang = await lasting.enter_async_context(admitter.admit(a_gang()))
            await hear(gang.states(), Waiting)
            before = len(asyncio.all_tasks())
        await asyncio.sleep(0.5)  # Tries to come back go on meanwhile, and fail.
        for _ in range(400):
            if len(asyncio.all_tasks()) <= before:
                break
            await asyncio.sleep(0.05)
        assert [task for task in asyncio.all_tasks() if "request_iterator" in repr(task)] == []
        assert len(asyncio.all_tasks()) <= before


async def test_a_wrong_certificate_is_not_tried_again(town):
    async with town.admitter() as (_, address), client.connect(address, town.world.node("n1")) as admitter:
        with pytest.raises(client.Refused) as caught:
            await admitter.list_capacity(10)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_an_end_waits_for_the_last_word(town):
    async with town.admitter() as (_, address), town.client(address) as admitter:
        async with admitter.admit(a_gang()) as gang:
            await hear(gang.states(), Waiting)
            ended = await gang.end("enough")
        assert (ended.reason, ended.detail) == ("Finished", "enough")


def test_the_worked_examples_compile():
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        compile(example, str(DOCS), "exec")
