"""The loop: wake-ups become passes, and everybody is told what concerns them."""

import asyncio
import contextlib
import dataclasses

import pytest

from admitter.core.book import Book
from admitter.loop import AdmissionLoop
from admitter.model.decision import Policy
from admitter.model.gang import Member
from admitter.model.leadership import Alone, NotLeading
from admitter.model.record import GangState, Terms
from admitter.publish.capacity import CapacityBoard
from admitter.publish.decisionlog import DecisionLog
from admitter.publish.figures import Figures
from muster.model.report import Verdict
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, TAKEN, a_gang, a_lease, a_node, a_view
from tests.admitter.core.test_lastgood import a_resource_of
from tests.feedworld import until


class Clock:
    def __init__(self):
        self.now = NOW

    def monotonic(self):
        return self.now


class Feed:
    """A hub that shows the view it was given."""

    def __init__(self, view):
        self.content = view
        self.sent = []
        self.terms = []
        self._fresh = asyncio.Event()

    def show(self, *nodes):
        self.content = a_view(*nodes, version=self.content.version + 1)
        self._fresh.set()

    def view(self):
        return self.content

    async def changed(self, since):
        while self.content.version <= since:
            await self._fresh.wait()
            self._fresh.clear()
        return self.content.version

    def send_leases(self, node, leases):
        self.sent.append((node, leases.term, sum(lease.units for lease in leases.leases)))

    def set_term(self, term):
        self.terms.append(term)


class World:
    def __init__(self, *nodes):
        self.clock = Clock()
        self.feed = Feed(a_view(*nodes))
        self.figures = Figures()
        self.guard = Alone("me")
        self.loop = AdmissionLoop(
            make_book=lambda terms: Book(terms, Policy()),
            guard=self.guard,
            feed=self.feed,
            clock=self.clock,
            log=DecisionLog(None, lambda: TAKEN),
            board=CapacityBoard(self.feed.view),
            figures=self.figures,
            renew=self.renew,
            tick_seconds=3600,
        )
        self.lead(1)

    def lead(self, term):
        self.guard.term = term
        self.loop.lead(Terms(term=term, prefix="t1-abc", opens_at=0.0))

    @property
    def book(self):
        return self.loop.leading()

    def renew(self, known):
        self.guard.term = known + 1
        return Terms(term=known + 1, prefix="t2-abc", opens_at=self.clock.now + 75)

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def told(attachment, state):
    async with asyncio.timeout(20):
        while (record := await attachment.next()).state is not state:
            continue
    return record


async def test_a_change_of_the_view_is_a_pass():
    async with World(("n1", 0)).running() as world:
        attachment = world.loop.open(a_gang(), "client")
        await told(attachment, GangState.WAITING)
        world.feed.show(("n1", 1))
        record = await told(attachment, GangState.LEASED)
        assert record.lease.snapshot_version == world.feed.content.version
        assert world.feed.sent == [("n1", 1, 0), ("n1", 1, 1)]


async def test_an_agent_is_told_only_what_is_new():
    world = World(("n1", 8), ("n2", 8))
    for _ in range(3):
        world.loop.decide_once()
    # Once each, though there is nothing: an agent may still hold what an earlier term told it.
    assert world.feed.sent == [("n1", 1, 0), ("n2", 1, 0)]
    attachment = world.loop.open(a_gang(), "client")
    for _ in range(3):
        world.loop.decide_once()
    assert world.feed.sent[2:] == [("n1", 1, 1)]
    world.loop.end(attachment, "done")
    world.loop.decide_once()
    assert world.feed.sent[3:] == [("n1", 1, 0)]


async def test_a_node_that_was_forgotten_is_told_anew_when_it_comes_back():
    world = World(("n1", 8), ("n2", 8))
    world.loop.decide_once()
    world.feed.show(("n2", 8))
    world.loop.decide_once()
    world.feed.show(("n1", 8), ("n2", 8))
    world.loop.decide_once()
    assert world.feed.sent == [("n1", 1, 0), ("n2", 1, 0), ("n1", 1, 0)]


async def test_a_node_is_told_nothing_before_it_has_spoken_in_this_term():
    world = World(a_node("n1", 8, term=0))
    world.loop.open(a_gang(), "client")
    world.loop.decide_once()
    assert world.feed.sent == []
    assert world.book.records["team-a/train"].state is GangState.WAITING


async def test_a_slow_stream_gets_the_newest_record():
    world = World(("n1", 0))
    attachment = world.loop.open(a_gang(), "client")
    world.loop.decide_once()
    world.feed.show(("n1", 1))
    world.loop.decide_once()
    assert (await attachment.next()).state is GangState.LEASED


async def test_an_older_stream_hears_of_the_newer_and_speaks_for_nobody():
    world = World(("n1", 8))
    old = world.loop.open(a_gang(), "client")
    world.loop.open(a_gang(), "client")
    assert await old.next() is None
    world.loop.end(old, "mine")
    world.loop.join(old, Member(podset="main", uid="u", node="n1"))
    world.loop.close(old)
    record = world.book.records["team-a/train"]
    assert (record.state, record.members, record.detached_at) == (GangState.WAITING, (), None)


async def test_a_stream_that_closes_starts_the_grace():
    world = World(("n1", 8))
    attachment = world.loop.open(a_gang(), "client")
    world.clock.now += 5
    world.loop.close(attachment)
    assert world.book.records["team-a/train"].detached_at == NOW + 5


async def test_a_lost_term_counter_makes_a_new_term():
    world = World(a_node("n1", 8, leases=(a_lease(2, identifier="t4-old-1"),), lease_term=4))
    world.loop.decide_once()
    assert (world.feed.terms, world.loop.term) == ([1, 5], 5)
    world.feed.show(a_node("n1", 8, leases=(a_lease(2, identifier="t4-old-1"),), lease_term=4, term=5))
    world.loop.decide_once()
    assert world.feed.sent == [("n1", 5, 2)]


async def test_a_standby_has_no_gangs_and_says_where_the_leader_is():
    world = World(("n1", 8))
    attachment = world.loop.open(a_gang(), "client")
    world.loop.stand_by()
    assert await attachment.next() is None
    assert attachment.is_lost
    world.loop.decide_once()
    assert (world.loop.records(), world.feed.sent, world.feed.terms) == ((), [], [1, 0])
    with pytest.raises(NotLeading):
        world.loop.open(a_gang(), "client")
    world.loop.join(attachment, Member(podset="main", uid="u", node="n1"))
    world.loop.close(attachment)


async def test_a_leader_whose_time_is_over_tells_nobody_anything():
    """The guard says no before anybody has told the loop to stand by: a process that was stopped and goes on."""
    world = World(("n1", 8))
    world.loop.open(a_gang(), "client")
    world.guard.term = 0
    world.loop.decide_once()
    assert world.feed.sent == []
    assert world.figures.scene.records == ()
    with pytest.raises(NotLeading):
        world.loop.open(a_gang(name="other"), "client")


async def test_a_term_that_begins_again_knows_nothing_of_the_last_one():
    world = World(("n1", 8))
    world.loop.open(a_gang(), "client")
    world.loop.stand_by()
    world.lead(2)
    assert (world.loop.records(), world.feed.terms) == ((), [1, 0, 2])


async def test_what_the_api_server_says_of_a_node_is_in_the_view():
    world = World(("n1", 8))
    world.loop._facts = dict
    world.loop.decide_once()
    assert world.figures.scene.view.facts == {}


def test_nothing_is_granted_on_a_node_that_is_silent_barred_or_not_there():
    world = World(("n1", 8), ("n2", 8))
    world.loop.decide_once()
    view = world.loop.believed
    assert [world.loop.grants_on(name) for name in ("n1", "n2", "n3")] == [True, True, False]
    world.loop.believed = dataclasses.replace(view, barred={"n2": "it broke a promise"})
    assert [world.loop.grants_on(name) for name in ("n1", "n2")] == [True, False]
    world.loop.believed = dataclasses.replace(view, now=view.now + view.node_ttl_seconds + 1)
    assert not world.loop.grants_on("n1")


async def test_a_pass_that_fails_is_counted_and_the_next_one_is_taken():
    world = World(("n1", 8))
    good = world.feed.content
    world.feed.content = dataclasses.replace(good, nodes=None)
    async with world.running():
        attachment = world.loop.open(a_gang(), "client")
        await until(lambda: world.figures.failed_passes)
        world.feed.content = good
        world.feed.show(("n1", 8))
        assert (await told(attachment, GangState.LEASED)).lease is not None


class Poison(dict):
    """What a pod asks for, where looking at it is a bug of ours."""

    def items(self):
        raise ZeroDivisionError("a bug")


async def test_a_pass_goes_on_without_the_gang_that_it_fails_on_and_counts_it():
    world = World(("n1", 8))
    async with world.running():
        bad = world.loop.open(a_gang(name="bad", requests=Poison(cpu=1)), "client")
        good = world.loop.open(a_gang(name="good"), "client")
        assert (await told(good, GangState.LEASED)).lease is not None
        assert (await told(bad, GangState.WAITING)).why.reason is WaitReason.INTERNAL_ERROR
    assert world.figures.confined.failures["ask"] == 1
    assert world.figures.failed_passes == 0


async def test_a_node_that_cannot_be_told_keeps_no_other_from_its_leases():
    world = World(("n1", 8), ("n2", 8))
    sent = world.feed.send_leases

    def send(node, leases):
        if node == "n1":
            raise ValueError("out of range")
        sent(node, leases)

    world.feed.send_leases = send
    world.loop.open(a_gang(count=2, gpus=8), "client")
    world.loop.decide_once()
    assert [node for node, _, units in world.feed.sent if units] == ["n2"]
    assert world.figures.confined.failures["slice"]


def fleet(*, bad, term=1):
    """Eight nodes, of which a rule has lowered some."""
    lowered = a_resource_of(0, verdict=Verdict.OVER)
    return [a_node(f"n{i}", {GPU: lowered if i < bad else a_resource_of(8)}, term=term) for i in range(8)]


async def test_while_the_breaker_holds_the_last_good_numbers_are_admitted_from_and_the_log_says_so():
    world = World(*fleet(bad=0))
    world.loop.decide_once()
    world.feed.show(*fleet(bad=8))
    world.feed.content = dataclasses.replace(world.feed.content, now=NOW + 1)
    attachment = world.loop.open(a_gang(count=8, gpus=8), "client")
    world.loop.decide_once()
    assert (await attachment.next()).state is GangState.LEASED
    assert world.figures.decisions["hold-began"] == 1
    assert world.figures.scene.view.nodes["n0"].report.verdict is Verdict.OVER, "people see what the agents say"


async def test_a_standby_that_comes_to_lead_knows_what_was_good():
    world = World(*fleet(bad=0))
    world.loop.stand_by()
    world.loop.decide_once()
    world.feed.show(*fleet(bad=8, term=2))
    world.feed.content = dataclasses.replace(world.feed.content, now=NOW + 1)
    world.loop.decide_once()
    assert world.figures.decisions["hold-began"] == 0, "a standby decides nothing"
    world.lead(2)
    attachment = world.loop.open(a_gang(count=8, gpus=8), "client")
    world.loop.decide_once()
    assert (await attachment.next()).state is GangState.LEASED
