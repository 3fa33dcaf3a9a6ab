"""The answers of a running agent: proof after the reader's word, captures of what was judged."""

import asyncio
import datetime

import pytest

from agent import answers
from agent.model import planes
from agent.publish.board import Board, Notice
from agent.sources import control
from muster.model import codec
from muster.model.reading import Known, Unknown
from muster.model.report import NodeReport, Verdict

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)


class Session:
    mode = "open"
    proof = Unknown("NotConfirmed")
    released = None

    def release(self, seconds):
        self.released = seconds


class Cycles:
    """Every awaited cycle runs the next step."""

    def __init__(self, *steps):
        self.steps, self.woken = list(steps), []

    def wake(self, why):
        self.woken.append(why)

    async def next_cycle(self):
        if not self.steps:
            await asyncio.Event().wait()
        self.steps.pop(0)()


def observed(board, second):
    taken_at = NOW + datetime.timedelta(seconds=second)
    board.notice = Notice(
        report=NodeReport(node="a", taken_at=taken_at, verdict=Verdict.OK, resources=codec.EMPTY),
        observation=planes.Observation(node="a", taken_at=taken_at),
        published_at=0.0,
    )


async def test_a_release_waits_for_the_readers_word():
    """No proof before the reader has closed, however many cycles pass."""
    session = Session()

    def closes():
        session.mode, session.proof = "closed", Known(())

    cycles = Cycles(lambda: None, lambda: None, closes)
    told = answers.Answers(board=Board(), session=session, cycles=cycles)
    assert [line async for line in told.release({"minutes": 2})] == [{"mode": "closed", "open_device_files": []}]
    assert (session.released, cycles.woken) == (120, ["Release"])


async def test_a_reader_that_does_not_answer_is_no_proof(monkeypatch):
    """After a few seconds the command says what is missing."""
    monkeypatch.setattr(answers, "PROOF_SECONDS", 0.05)
    told = answers.Answers(board=Board(), session=Session(), cycles=Cycles())
    (line,) = [line async for line in told.release({"minutes": 2})]
    assert line["error"] == "NotConfirmed"


async def test_a_capture_hands_out_each_observation_once():
    """The newest at once, then one a cycle."""
    board = Board()
    observed(board, 0)
    cycles = Cycles(lambda: None, lambda: observed(board, 5), lambda: observed(board, 10))
    told = answers.Answers(board=board, session=Session(), cycles=cycles)
    taken = [line["taken_at"] async for line in told.capture({"lines": 3})]
    assert taken == ["2026-12-01T10:00:00Z", "2026-12-01T10:00:05Z", "2026-12-01T10:00:10Z"]


@pytest.mark.parametrize("value", [None, -1, "5", True, float("nan"), float("inf"), 10**9, [], {}])
async def test_what_is_no_number_is_refused(value):
    """Bounded, finite, and a number."""
    told = answers.Answers(board=Board(), session=Session(), cycles=Cycles())
    for answer, name in ((told.release, "minutes"), (told.capture, "lines")):
        with pytest.raises(control.BadRequest, match=name):
            assert [line async for line in answer({name: value})]
