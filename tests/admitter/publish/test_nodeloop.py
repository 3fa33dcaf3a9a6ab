"""The leader's loop over all Nodes, against an API server that a test commands."""

import asyncio

import pytest

from admitter.model.leadership import STANDBY, Leadership
from admitter.model.nodestatus import TaintPolicy
from admitter.model.ruling import NOTHING_HELD, Ground, Hold, Ruling
from admitter.publish import nodeloop
from admitter.publish.nodes import Outcome
from muster.model.nodeconditions import ConditionType
from tests.admitter.nodeworld import LOST, Api, a_kube_node

DONE = ("conditions", "a", "done")


async def test_a_new_node_is_written_once_and_then_left_alone():
    api = Api("a")
    assert await api.look() == [DONE]
    assert await api.looks(300) == []
    assert api.figures.scene.conditions == {
        ("GPUCapacityTruthful", "True"): 1,
        ("GPUHealthy", "True"): 1,
        ("MIGLayoutMatches", "True"): 1,
    }


async def test_a_slow_watch_makes_no_second_write():
    api = Api("a")
    api.lags = True
    assert await api.look() == [DONE]
    assert await api.looks(14) == []
    api.watched = dict(api.stored)
    assert await api.looks(60) == []


async def test_a_write_that_the_watch_never_shows_is_made_again():
    api = Api("a")
    api.lags = True
    await api.look()
    assert await api.looks(17) == [DONE]


async def test_a_fault_is_written_with_its_events():
    api = Api("a")
    await api.look()
    api.reports["a"] = LOST
    assert await api.look() == [
        DONE,
        ("event", "a SetGPUCapacityTruthful GpuLost", "done"),
        ("event", "a SetGPUHealthy GpuLost", "done"),
    ]
    assert api.figures.requests == {("conditions", "done"): 2, ("event", "done"): 2}


async def test_a_standby_writes_nothing_and_a_new_term_listens_first():
    api = Api("a", "b")
    await api.look()
    del api.reports["b"]
    api.leadership = STANDBY
    assert await api.looks(100) == []
    assert api.figures.scene is None
    api.leadership = Leadership(term=2, until=float("inf"))
    # `b` was not heard in this term: silent only after a term's own patience, then settled.
    assert await api.looks(89) == []
    assert await api.looks(5) == [
        ("conditions", "b", "done"),
        ("event", "b SetGPUCapacityTruthful AgentSilent", "done"),
        ("event", "b SetGPUHealthy AgentSilent", "done"),
        ("event", "b SetMIGLayoutMatches AgentSilent", "done"),
    ]


async def test_who_stops_leading_while_it_writes_stops_writing():
    api = Api("a", "b", "c")
    api.answers["conditions"] = Outcome.NOT_LEADING
    await api.look()
    assert api.says("a") == {}
    assert set(api.figures.requests) == {("conditions", "not-leading")}


async def test_nothing_is_written_from_objects_that_are_old_or_not_all_there():
    api = Api("a")
    api.is_synced = False
    assert await api.look() == []
    api.is_synced, api.stale_for = True, 31.0
    assert await api.look() == []
    api.stale_for = 29.0
    assert await api.look() == [DONE]


async def test_an_api_server_that_does_not_answer_is_asked_ever_more_rarely():
    api = Api(*(f"n{number}" for number in range(50)))
    api.answers["conditions"] = Outcome.BUSY
    tries = []
    for second in range(240):
        sent = await api.look()
        assert len(sent) <= 1, "the first failure ends the look"
        tries += [second] * len(sent)
    assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    api.answers.clear()
    assert len({node for _, node, outcome in await api.looks(120) if outcome == "done"}) == 50


async def test_rights_that_are_missing_for_taints_do_not_stop_conditions():
    api = Api("a", "b", taints=TaintPolicy(enabled=True, cap_nodes=5))
    api.answers["taint"] = Outcome.REFUSED
    api.reports["a"] = LOST
    sent = await api.looks(75)
    assert ("taint", "a", "refused") in sent
    assert sum(each[0] == "taint" for each in sent) <= 5
    api.reports["b"] = LOST
    assert ("conditions", "b", "done") in await api.look()


async def test_the_fleets_limit_holds_and_what_turns_bad_comes_first():
    names = [f"n{number:03}" for number in range(200)]
    api = Api(*names, per_minute=60)
    await api.look()
    api.reports["n199"] = LOST
    # It has no condition yet; a turn to False still goes before the others' first word.
    assert (await api.look())[0] == ("conditions", "n199", "done")
    assert api.figures.scene.backlog > 100
    written = [each for each in await api.looks(58) if each[0] == "conditions"]
    assert len(written) <= 60
    await api.looks(200)
    assert all(api.says(name) for name in names)
    assert api.figures.scene.backlog == 0


async def test_a_node_that_comes_back_under_its_name_is_a_new_node():
    api = Api("a")
    await api.look()
    api.stored = api.watched = {}
    assert await api.looks(5) == []
    api.stored = {"a": a_kube_node("a", uid="another")}
    api.watched = dict(api.stored)
    assert await api.look() == [DONE]


async def test_a_condition_that_somebody_else_owns_is_left_alone_for_a_while():
    api = Api("a")
    api.foreign = frozenset({ConditionType.HEALTH})
    assert await api.look() == [DONE]
    assert set(api.says("a")) == {"GPUCapacityTruthful", "MIGLayoutMatches"}
    assert await api.looks(590) == []
    assert api.figures.scene.foreign == 1
    api.foreign = frozenset()
    assert await api.looks(20) == [DONE]
    assert set(api.says("a")) == {"GPUCapacityTruthful", "GPUHealthy", "MIGLayoutMatches"}


async def test_held_nodes_keep_their_conditions():
    api = Api("a", "b")
    await api.look()
    hold = Hold(ground=Ground.RULE, culprit="lost/3", since=0.0, nodes=frozenset({"a"}))
    api.ruling = Ruling(holds=(hold,))
    api.reports = {"a": LOST, "b": LOST}
    assert [each[1] for each in await api.looks(100) if each[0] == "conditions"] == ["b"]
    api.ruling = NOTHING_HELD
    assert (await api.look())[0] == DONE


async def test_a_bug_in_a_look_is_counted_and_the_next_look_comes(monkeypatch):
    monkeypatch.setattr(nodeloop, "TICK_SECONDS", 0.0)
    api = Api("a")
    api.ruling = None  # no Ruling at all: the look fails

    mended = asyncio.Event()
    look = api.loop.look

    async def watched_look():
        try:
            await look()
        finally:
            api.ruling = NOTHING_HELD
        mended.set()

    monkeypatch.setattr(api.loop, "look", watched_look)
    task = asyncio.create_task(api.loop.run())
    await asyncio.wait_for(mended.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert api.figures.failed_looks == 1
    assert api.says("a")["GPUHealthy"] == "True AllHealthy"
