"""The NVML session follows markers and releases, and counts as closed only with proof."""

import datetime

import structlog.testing

from agent.model.history import History
from agent.sources import session
from muster.model import kube
from muster.model.reading import Known, Unknown
from tests.fakes.agent_shell import FakeClock

NODE = Known(kube.NodeObject(capacity={}, allocatable={}))


class Setter:
    def __init__(self):
        self.asked, self.answer = [], Known(())

    async def set_session(self, mode, reason):
        self.asked.append(mode)
        return self.answer


class World:
    def __init__(self):
        self.clock, self.reader, self.marked = FakeClock(), Setter(), False
        self.keeper = session.SessionKeeper(
            time=self.clock, reader=self.reader, node=lambda: NODE, manners=self.manners
        )

    def manners(self, node, history, now, released_until):
        assert node == NODE
        closed = self.marked or (released_until is not None and released_until > now)
        return session.Wanted(mode="closed" if closed else "open", reason="test")

    async def follow(self):
        with structlog.testing.capture_logs():
            await self.keeper.follow(History(), self.clock.utc())


async def test_an_open_session_is_not_asked_for():
    """That is how every reader starts, the next one too."""
    world = World()
    await world.follow()
    world.keeper.lost()
    await world.follow()
    assert world.reader.asked == []


async def test_a_marker_closes_and_its_end_opens():
    """Each change is asked for once."""
    world = World()
    world.marked = True
    await world.follow()
    await world.follow()
    assert world.keeper.mode == "closed"
    assert world.keeper.proof == Known(())
    world.marked = False
    await world.follow()
    assert world.reader.asked == ["closed", "open"]


async def test_closed_is_wanted_even_while_the_reader_is_silent():
    """Nobody may read NVML then, and the reader is asked again in every cycle."""
    world = World()
    world.marked, world.reader.answer = True, Unknown("TIMEOUT")
    await world.follow()
    await world.follow()
    assert world.keeper.mode == "closed"
    assert isinstance(world.keeper.proof, Unknown)
    assert world.reader.asked == ["closed", "closed"]


async def test_closed_with_open_files_is_asked_for_again():
    """Proof is that nothing is open; until then it is no proof."""
    world = World()
    world.marked, world.reader.answer = True, Known(("/dev/nvidia0",))
    await world.follow()
    world.reader.answer = Known(())
    await world.follow()
    await world.follow()
    assert world.reader.asked == ["closed", "closed"]
    assert world.keeper.proof == Known(())


async def test_a_reader_that_did_not_answer_is_told_again_when_the_marker_has_gone():
    """It may have closed and said so too late: nobody else would ever open it again."""
    world = World()
    world.marked, world.reader.answer = True, Unknown("TIMEOUT")
    await world.follow()
    world.marked = False
    await world.follow()
    world.reader.answer = Known(())
    await world.follow()
    await world.follow()
    assert world.reader.asked == ["closed", "open", "open"]
    assert world.keeper.proof == Known(())


async def test_a_new_reader_is_told_again():
    """What the old one confirmed died with it."""
    world = World()
    world.marked = True
    await world.follow()
    world.keeper.lost()
    assert isinstance(world.keeper.proof, Unknown)
    await world.follow()
    assert world.reader.asked == ["closed", "closed"]
    world.keeper.lost()
    world.marked = False
    await world.follow()
    assert world.reader.asked == ["closed", "closed", "open"]


async def test_a_release_ends_by_itself():
    """Ten minutes are ten minutes of the clock that only moves forward; zero ends it."""
    world = World()
    world.keeper.release(600)
    await world.follow()
    assert world.keeper.mode == "closed"
    await world.clock.advance(datetime.timedelta(minutes=10).total_seconds())
    await world.follow()
    assert world.keeper.mode == "open"
    world.keeper.release(600)
    world.keeper.release(0)
    await world.follow()
    assert world.keeper.mode == "open"
