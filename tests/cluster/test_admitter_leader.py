"""One leader among several admitters, on a real Lease: killed, stopped and resumed, cut off, given up."""

import asyncio
import signal

import grpc
import pytest
from lightkube.resources import coordination_v1

from tests.admitter.kubetown import LEASE, KubeTown, until


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


def term_of(town):
    return town.lease().spec.leaseTransitions


async def test_one_of_two_leads_and_the_other_says_so(town):
    token = town.token()
    town.account("operator")
    operator = town.token("operator")
    del token
    async with town.kube_admitter(name="first") as (first, _):
        await until(lambda: town.holder() == "first", "a leader")
        async with town.kube_admitter(name="second") as (second, _):
            await until(lambda: first._loop.term == 1, "its term")
            assert (await town.status(first.token_port, operator)).term == 1

            async def words():
                return await town.status(second.token_port, operator)

            code, text = await words()
            while "first leads" not in text:
                await asyncio.sleep(0.1)
                code, text = await words()
            assert code is grpc.StatusCode.UNAVAILABLE
            assert second._loop.term == 0


async def test_a_leader_that_stops_gives_its_lease_back(town):
    async with town.kube_admitter(name="first", lease_seconds=120.0):
        await until(lambda: town.holder() == "first", "a leader")
    assert town.lease().spec.holderIdentity in ("", None)
    async with town.kube_admitter(name="second", lease_seconds=120.0) as (second, _):
        await until(lambda: second._loop.term == 2, "the next term, long before the old Lease would have ended")


async def test_a_killed_leader_is_followed_in_a_higher_term(town):
    async with town.program("first") as first:
        await until(lambda: town.holder() == "first", "a leader")
        async with town.program("second"):
            first.kill()
            await until(lambda: town.holder() == "second", "the second")
            assert term_of(town) == 2


async def test_a_stopped_leader_that_goes_on_writes_nothing(town):
    """Its next renewal carries a version that is gone, and its guard is over before that."""
    async with town.program("first") as first:
        log = town.folder / "first.log"
        await until(lambda: "term began" in log.read_text(), "a leader")
        async with town.program("second"):
            first.send_signal(signal.SIGSTOP)
            await until(lambda: town.holder() == "second", "the second")
            first.send_signal(signal.SIGCONT)
            await until(lambda: "no longer leading" in log.read_text(), "the first to notice")
            assert (town.holder(), term_of(town)) == ("second", 2)


async def test_a_deleted_lease_comes_back_and_no_term_comes_twice(town):
    """The leader's next renewal makes it anew; what somebody else makes meanwhile is refused or overtaken."""
    async with town.kube_admitter(name="first") as (first, _):
        await until(lambda: first._loop.term == 1, "a term")
        old = town.lease().metadata.uid
        town.kube.delete(coordination_v1.Lease, LEASE, namespace=town.namespace)
        await until(lambda: town.holder() == "first" and town.lease().metadata.uid != old, "the Lease")
        await until(lambda: first._loop.term == term_of(town), "its term")


async def test_two_that_start_at_once_make_one_leader(town):
    async with town.kube_admitter(name="a") as (one, _), town.kube_admitter(name="b") as (other, _):
        await until(lambda: one._loop.term + other._loop.term > 0, "a leader")
        seen = set()
        for _ in range(40):
            seen.add((one._loop.term > 0) + (other._loop.term > 0))
            await asyncio.sleep(0.05)
    assert seen == {1}
