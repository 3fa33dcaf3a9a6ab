"""The loop with a clock of its own: when cycles run, and what a failure at each step leaves published."""

import asyncio

import pytest
import structlog.testing

from agent import loop
from agent.model import planes
from agent.model.history import History, ResourceMemory
from agent.publish.evidence import Evidence
from muster.model import codec
from muster.model.lease import LeaseSet, NodeLease
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests.agent.loopworld import RESOURCE, World
from tests.fakes import agent_shell as fakes


async def test_polls_at_exact_times():
    """One cycle after the start delay, then one every five seconds, whatever a cycle takes."""
    world = World(start_delay=1.5)
    world.sampler.seconds = 0.25
    async with world.running():
        await world.clock.advance(12)
    assert world.times == [1.5, 6.5, 11.5]
    assert [fresh for _, fresh, *_ in world.sampler.taken] == [True, False, False]


async def test_the_first_cycle_waits_for_the_reader_but_not_for_ever():
    """A reader that starts beside the agent gives the baseline; one that never comes is BLIND after five seconds."""

    class Ready:
        pass

    async def events():
        await world.clock.sleep(2)
        yield Ready()
        await world.clock.sleep(100)

    world = World(patience=5.0)
    watching = asyncio.create_task(world.loop.watch(events()))
    async with world.running():
        await world.clock.advance(4)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert world.times == [2]
    alone = World(patience=5.0)
    async with alone.running():
        await alone.clock.advance(6)
    assert alone.times == [5]


async def test_a_slow_cycle_leaves_the_machine_some_rest():
    """A cycle longer than a poll is followed by a fifth of a poll of quiet, not by the next at once."""
    world = World()
    world.sampler.seconds = 7.0
    async with world.running():
        await world.clock.advance(9)
    assert world.times == [0, 8]


async def test_a_wake_up_runs_a_fresh_cycle_within_fifty_milliseconds():
    """Events that come together make one cycle."""
    world = World()
    async with world.running():
        await world.clock.advance(2)
        world.loop.wake("xid")
        world.loop.wake("xid")
        await world.clock.advance(0.05)
        assert [(at, fresh) for at, fresh, *_ in world.sampler.taken] == [(0, True), (2.05, True)]
        await world.clock.advance(5)
    assert world.times == [0, 2.05, 7.05]


async def test_a_storm_of_events_is_throttled():
    """At most one cycle every 200 ms, however many events come."""
    world = World()
    async with world.running():
        await world.clock.advance(1)
        for _ in range(100):
            world.loop.wake("xid")
            await world.clock.advance(0.01)
    assert len(world.times) <= 1 + 1 + 1 / loop.STORM_SECONDS


async def test_a_wake_up_during_a_cycle_is_not_lost():
    """What happens while a sample is being taken is looked at in the next."""
    world = World()
    world.sampler.seconds = 1.0
    async with world.running():
        await world.clock.advance(0.5)
        world.loop.wake("mig_config")
        await world.clock.advance(2)
    assert world.times == [0, 1.05]


async def test_a_good_cycle_tells_everybody():
    """Feed, board and evidence get the same outcome; ages are of the monotonic clock."""
    world = World()
    async with world.running():
        await world.clock.advance(1)
    (report, topology) = world.feed.published[0]
    assert report.verdict is Verdict.OK
    assert topology.generation == 1
    assert world.feed.ages == {"nvml": 0, "pci": 7}
    assert world.board.notice.report is report
    memory = ResourceMemory(verdict=Verdict.OK, strict=8, lenient=8, seen_strict=8, seen_lenient=8)
    history = History(started=True, resources=codec.freeze({RESOURCE: memory}))
    assert world.keeper.kept == [Evidence(boot_id="b1", start_counter=1, history=history, learned_gpus=1)]
    assert world.board.age_seconds(world.clock.monotonic()) == 1


@pytest.mark.parametrize("step", ["session", "sample", "judge", "hang"])
async def test_a_failure_at_any_step_takes_the_numbers_out_and_heals(step, monkeypatch):
    """The last report is published again as BLIND without numbers; the second good cycle puts them back."""
    world = World()
    async with world.running():
        await world.clock.advance(1)
        if step == "session":
            world.session.error = RuntimeError("boom")
        elif step == "sample":
            world.sampler.error = RuntimeError("boom")
        elif step == "judge":
            world.judge_error = RuntimeError("boom")
        else:
            monkeypatch.setattr(loop, "CYCLE_DEADLINE_SECONDS", 0.05)
            world.sampler.seconds = 10_000.0
        with structlog.testing.capture_logs() as logs:
            await world.clock.advance(4)
            await asyncio.wait_for(world.loop.next_cycle(), 10) if step == "hang" else None
            await fakes.settle()
        assert [line["event"] for line in logs if line["log_level"] == "error"] == [
            "cycle failed: the node is published as BLIND"
        ]
        blind, _ = world.feed.published[-1]
        resource = blind.resources[RESOURCE]
        assert (blind.verdict, resource.verdict) == (Verdict.BLIND, Verdict.BLIND)
        assert isinstance(resource.admit_strict, Unknown)
        assert isinstance(resource.admit_lenient, Unknown)
        assert isinstance(resource.pick_risk, Unknown)
        assert blind.taken_at > world.feed.published[0][0].taken_at
        assert world.board.events["failed_cycles"] == 1
        world.session.error = world.sampler.error = world.judge_error = None
        world.sampler.seconds = 0.0
        await world.clock.advance(5)
        assert world.feed.published[-1][0].verdict is Verdict.OK
        assert admitted(world) == (Known(0), Known(0))
        await world.clock.advance(5)
        assert admitted(world) == (Known(8), Known(8))


async def test_a_failed_cycle_between_two_clean_samples_parts_them():
    """A rise that waits for its second sample starts anew, and so it does over a restart right after the failure."""
    world = World()
    async with world.running():
        await world.clock.advance(1)
        for _ in range(2):
            world.sampler.error = RuntimeError("boom")
            with structlog.testing.capture_logs():
                await world.clock.advance(5)
            world.sampler.error = None
            await world.clock.advance(5)
            assert admitted(world) == (Known(0), Known(0))
        world.sampler.error = RuntimeError("boom")
        with structlog.testing.capture_logs():
            await world.clock.advance(5)
    again = World(evidence=world.keeper.kept[-1])
    async with again.running():
        await again.clock.advance(1)
        assert admitted(again) == (Known(0), Known(0))
        await again.clock.advance(5)
        assert admitted(again) == (Known(8), Known(8))


def admitted(world):
    """What was published last: strict, lenient."""
    resource = world.feed.published[-1][0].resources[RESOURCE]
    return resource.admit_strict, resource.admit_lenient


async def test_a_cancelled_call_does_not_end_the_loop():
    """gRPC raises CancelledError for a call whose channel closed; only cancelling the loop itself ends it."""
    world = World()
    with structlog.testing.capture_logs():
        async with world.running():
            await world.clock.advance(1)
            world.sampler.error = asyncio.CancelledError()
            await world.clock.advance(5)
            assert world.feed.published[-1][0].verdict is Verdict.BLIND
            world.sampler.error = None
            await world.clock.advance(5)
    assert world.feed.published[-1][0].verdict is Verdict.OK


async def test_a_session_that_cannot_be_followed_is_tried_again():
    """A failure beside the cycles is said and ends nothing."""
    world = World()
    world.session.error = RuntimeError("boom")
    minding = asyncio.create_task(world.loop.mind_session())
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            world.loop.wake("Slice")
            await fakes.settle()
    minding.cancel()
    await asyncio.gather(minding, return_exceptions=True)
    assert world.session.followed == 2
    assert [line["log_level"] for line in logs] == ["error", "error"]


async def test_a_failure_before_any_report_publishes_nothing():
    """There is nothing true to say yet; the admitter does not count the node."""
    world = World()
    world.sampler.error = OSError("boom")
    with structlog.testing.capture_logs():
        async with world.running():
            await world.clock.advance(6)
    assert world.feed.published == []
    assert world.board.notice is None


async def test_the_readers_events_wake_and_its_absence_is_said_once():
    """Every retry of the stream tells that the reader is away; only the first is news."""
    world = World()

    class Event:
        def __init__(self, kind="", state=""):
            self.kind, self.state = kind, state

    async def events():
        yield Event(kind="xid")
        for _ in range(5):
            yield Event(state=loop.READER_AWAY)
        yield Event(state="opened")

    await world.loop.watch(events())
    assert world.board.events["reader_losses"] == 1
    assert world.session.losses == 1
    assert world.board.events["wakes"] == 3


async def test_the_session_follows_a_wake_up_while_a_cycle_hangs():
    """A maintenance marker is obeyed at once, not after the cycle."""
    world = World()
    world.sampler.seconds = 20.0
    minding = asyncio.create_task(world.loop.mind_session())
    async with world.running():
        before = world.session.followed
        world.loop.wake("Slice")
        await fakes.settle()
        assert world.session.followed == before + 1
    minding.cancel()
    await asyncio.gather(minding, return_exceptions=True)


async def test_a_closed_session_and_the_expected_count_reach_the_sampler():
    """Operator beats learned; learned is the most ever seen."""
    world = World()
    async with world.running():
        await world.clock.advance(1)
        world.session.mode = "closed"
        await world.clock.advance(5)
    assert [taken[2:] for taken in world.sampler.taken] == [
        (False, None),
        (True, planes.Expected(gpus=1, source="learned")),
    ]
    told = World(expected_gpus=8)
    async with told.running():
        await told.clock.advance(1)
    assert told.sampler.taken[0][3] == planes.Expected(gpus=8, source="operator")


async def test_one_sentence_a_cycle_repeats_at_debug():
    """A steady node says itself once at info."""
    world = World()
    with structlog.testing.capture_logs() as logs:
        async with world.running():
            await world.clock.advance(11)
    sentences = [(line["log_level"], line["event"]) for line in logs if line["event"].startswith("node is")]
    assert sentences == [("info", "node is OK"), ("debug", "node is OK"), ("debug", "node is OK")]


async def test_a_hung_reader_is_replaced_once_in_a_boot_whoever_restarts():
    """The evidence remembers it, so that an agent that starts again does not replace another one."""
    world = World()
    world.watchdog.why = "the driver is silent"
    with structlog.testing.capture_logs():
        async with world.running():
            await world.clock.advance(21)
    assert world.watchdog.replaced == ["the driver is silent"]
    assert world.keeper.kept[-1].reader_replaced
    assert world.board.events["reader_replacements"] == 1
    again = World(evidence=world.keeper.kept[-1])
    again.watchdog.why = "the driver is silent"
    async with again.running():
        await again.clock.advance(21)
    assert again.watchdog.replaced == []


async def test_leases_are_kept_at_once_and_by_every_later_cycle():
    """A restart between two cycles must not loosen what was leased in between."""
    world = World()
    held = LeaseSet(term=4, leases=(NodeLease(id="a", gang="ns/g", resource="nvidia.com/gpu", units=2),))
    world.loop.hold(held)
    assert world.keeper.kept[-1].leases == held
    async with world.running():
        await world.clock.advance(6)
    assert len(world.keeper.kept) > 1
    assert world.keeper.kept[-1].leases == held


async def test_a_reader_that_was_not_ended_leaves_the_replacement_unused():
    """Nobody took the Exit call: the next cycle asks again; a driver that is closed for maintenance is no reason."""
    world = World()
    world.watchdog.why, world.watchdog.can = "the driver is silent", False
    async with world.running():
        await world.clock.advance(6)
        assert len(world.watchdog.replaced) == 2
        world.session.mode = "closed"
        await world.clock.advance(10)
    assert len(world.watchdog.replaced) == 2
    assert not world.keeper.kept[-1].reader_replaced


async def test_a_reader_that_answers_nothing_is_replaced_while_nvml_is_closed():
    """Else nobody learns of its end until the maintenance is over; what the new one hears first is the mode."""
    world = World()
    world.session.mode, world.watchdog.why_closed = "closed", "it answers nothing"
    async with world.running():
        await world.clock.advance(6)
    assert world.watchdog.replaced == ["it answers nothing"]
    assert world.keeper.kept[-1].reader_replaced
