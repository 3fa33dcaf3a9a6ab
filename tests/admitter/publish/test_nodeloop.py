"""The leader's loop over all Nodes, against an API server that a test commands."""

import asyncio
import dataclasses
import datetime

import pytest

from admitter.core.keepers import Daemon
from admitter.model.cluster import (
    ANYWHERE,
    Condition,
    Constraints,
    Expression,
    KubeNode,
    KubePod,
    NodeTerm,
    Owner,
    Toleration,
)
from admitter.model.leadership import STANDBY, Leadership
from admitter.model.nodestatus import StatusPolicy, TaintPolicy
from admitter.model.ruling import NOTHING_HELD, Ground, Hold, Ruling
from admitter.publish import nodeloop
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodeloop import NodeLoop
from admitter.publish.nodes import Outcome, Sent
from admitter.publish.nodetaints import Tainter
from muster.model import kube, labels
from muster.model.nodeconditions import ConditionType
from muster.model.report import DeviceState, Verdict
from tests.admitter.clusters import TTL, a_node, a_view
from tests.admitter.nodewords import UTC, a_device, a_finding, a_report

WELL = a_report()
LOST = a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[a_device(3, DeviceState.LOST, "GpuLost")])
PLUGIN = Daemon(namespace="gpu", name="plugin", constraints=ANYWHERE, host_folders=("/var/lib/kubelet/device-plugins",))


def a_kube_node(name, *, uid="", conditions=(), taints=(), version="1"):
    return KubeNode(
        name=name,
        uid=uid or f"uid-{name}",
        resource_version=version,
        object=kube.NodeObject(capacity={}, allocatable={}, taints=tuple(taints)),
        conditions=tuple(conditions),
    )


class Api:
    """An API server and its watch, the feed, the clock and the guard: all that the loop sees."""

    def __init__(self, *names, per_minute=600, taints=None, policy=None, daemons=()):
        self.now = 1000.0
        self.stored = {name: a_kube_node(name) for name in names}
        self.watched = dict(self.stored)
        self.lags = False
        self.reports = dict.fromkeys(names, WELL)
        self.heard = {}
        self.is_synced, self.stale_for = True, 0.0
        self.leadership = Leadership(term=1, until=float("inf"))
        self.ruling = NOTHING_HELD
        self.answers = {}
        self.foreign = frozenset()
        self.sent = []
        self.told = []
        self.waiting = {}
        self.daemons = daemons
        self.asked_daemons = 0
        self.figures = NodeFigures()
        tainter = Tainter(
            policy=taints or TaintPolicy(),
            daemons=self,
            serving_namespaces=frozenset(),
            tell=self.told.append,
        )
        self.loop = NodeLoop(
            writer=self,
            cluster=self,
            view=self.view,
            ruling=lambda: self.ruling,
            guard=self,
            clock=self,
            policy=policy or StatusPolicy(),
            tainter=tainter,
            per_minute=per_minute,
            figures=self.figures,
        )

    # What the loop asks.
    def monotonic(self):
        return self.now

    def utc(self):
        return UTC + datetime.timedelta(seconds=self.now)

    def age(self):
        return self.stale_for

    def nodes(self):
        return self.watched

    def pods(self):
        return self.waiting

    def view(self):
        nodes = [
            dataclasses.replace(a_node(name, heard=self.heard.get(name, self.now)), report=report)
            for name, report in self.reports.items()
        ]
        return a_view(*nodes, now=self.now)

    def may_write(self, term):
        return term == self.leadership.term

    async def list_daemons(self):
        self.asked_daemons += 1
        return self.daemons

    # What the loop sends.
    def _answer(self, kind, node):
        outcome = self.answers.get(kind, Outcome.DONE)
        self.sent.append((kind, node, outcome.value))
        return outcome

    async def set_conditions(self, write, term):
        outcome = self._answer("conditions", write.node)
        if outcome is Outcome.DONE:
            ours = {name: item for name, item in write.conditions.items() if name not in self.foreign}
            listed = tuple(
                Condition(
                    type=name.value,
                    status=item.status.value,
                    reason=item.reason,
                    message=item.message,
                    since=item.since,
                )
                for name, item in ours.items()
            )
            self._store(write.node, conditions=listed)
        return Sent(outcome=outcome, foreign=self.foreign)

    async def change_taint(self, change, term):
        outcome = self._answer("taint", change.node)
        if outcome is Outcome.DONE:
            ours = (kube.Taint(key=labels.UNTRUSTED.full, value=change.value, effect="NoSchedule"),)
            before = self.stored[change.node].object
            self._store(change.node, object=dataclasses.replace(before, taints=ours if change.value else ()))
        return Sent(outcome=outcome)

    async def send_note(self, node, uid, note, term):
        return Sent(outcome=self._answer("event", f"{node} {note.action} {note.reason}"))

    def _store(self, name, **changes):
        self.stored[name] = dataclasses.replace(self.stored[name], **changes)
        if not self.lags:
            self.watched = dict(self.stored)

    # What a test does.
    async def look(self, seconds=1.0):
        """Look once, then let time pass; return what was sent."""
        self.sent.clear()
        await self.loop.look()
        self.now += seconds
        return list(self.sent)

    async def looks(self, seconds):
        """Look every second for so long; return what was sent."""
        return [each for _ in range(int(seconds)) for each in await self.look()]

    def says(self, name):
        return {item.type: f"{item.status} {item.reason}" for item in self.stored[name].conditions}

    def taint(self, name):
        return [taint.value for taint in self.stored[name].object.taints]


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


TAINTS = TaintPolicy(enabled=True, cap_nodes=1)


async def test_a_taint_comes_after_its_spell_within_the_cap_and_goes_when_the_node_is_well():
    api = Api("a", "b", taints=TAINTS)
    api.reports = {"a": LOST, "b": LOST}
    await api.looks(60)
    assert (api.taint("a"), api.taint("b")) == ([], [])
    sent = await api.looks(5)
    assert sent == [("taint", "a", "done"), ("event", "a SetTaint Tainted", "done")]
    assert api.taint("a") == ["OVER"]
    assert api.figures.scene.withheld["cap"] == 1
    api.reports["a"] = WELL
    await api.looks(130)
    assert (api.taint("a"), api.taint("b")) == ([], ["OVER"])
    assert [(event.kind, event.detail) for event in api.told] == [
        ("tainted", "a: muster.dev/untrusted=OVER:NoSchedule: the verdict has stood for 60 s"),
        ("untainted", "a: muster.dev/untrusted is gone: the node has been well for 120 s"),
        ("tainted", "b: muster.dev/untrusted=OVER:NoSchedule: the verdict has stood for 60 s"),
    ]


async def test_a_taint_that_the_watch_does_not_show_yet_is_not_put_twice():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(60)
    api.lags = True
    assert [each[0] for each in await api.looks(10)] == ["taint", "event"]


async def test_switched_off_nobody_is_tainted_and_old_taints_go():
    api = Api("a", "b")
    api.reports = {"a": LOST, "b": WELL}
    api._store("b", object=dataclasses.replace(api.stored["b"].object, taints=_ours("OVER")))
    await api.looks(200)
    assert (api.taint("a"), api.taint("b")) == ([], [])
    assert api.asked_daemons == 0


def _ours(value):
    return (kube.Taint(key=labels.UNTRUSTED.full, value=value, effect="NoSchedule"),)


async def test_nobody_is_tainted_who_would_lose_the_cure():
    api = Api("a", taints=TAINTS, daemons=(PLUGIN,))
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld == {"cure": 1, "cap": 0, "breaker": 0, "daemonsets-unread": 0}
    assert api.says("a")["GPUCapacityTruthful"] == "False GpuLost"


async def test_nobody_is_tainted_while_the_daemonsets_cannot_be_read():
    api = Api("a", taints=TAINTS, daemons=None)
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld["daemonsets-unread"] == 1
    assert api.asked_daemons == 4, "once in 30 s"


async def test_a_cure_that_turns_up_later_lifts_the_taint():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(70)
    assert api.taint("a") == ["OVER"]
    api.daemons = (PLUGIN,)
    await api.looks(31)
    assert api.taint("a") == []
    assert api.told[-1].detail == (
        "a: muster.dev/untrusted is gone: it would keep out the cure: gpu/plugin does not tolerate it"
    )


async def test_a_cure_that_waits_for_the_node_lifts_the_taint_with_its_name():
    """Its DaemonSet's template tolerates the taint by now; the pod was made before."""
    tolerant = dataclasses.replace(PLUGIN, constraints=_tolerant())
    api = Api("a", taints=TAINTS, daemons=(tolerant,))
    api.reports["a"] = LOST
    await api.looks(70)
    pinned = NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=("a",)),))
    owner = Owner(kind="DaemonSet", name="plugin", uid="u", is_controller=True)
    pod = KubePod(
        uid="p",
        namespace="gpu",
        name="plugin-x",
        resource_version="1",
        phase=kube.PodPhase.PENDING,
        owners=(owner,),
        constraints=Constraints(required=(pinned,)),
    )
    api.waiting = {"p": pod}
    await api.looks(2)
    assert api.taint("a") == []
    assert api.told[-1].detail.endswith("it keeps out the cure: gpu/plugin-x is Pending because of it")
    await api.looks(100)
    assert api.taint("a") == [], "the pod still waits for somebody to bind it"
    api.waiting = {"p": dataclasses.replace(pod, node="a")}
    await api.looks(2)
    assert api.taint("a") == ["OVER"]


def _tolerant():
    return Constraints(tolerations=(Toleration(operator="Exists"),))


async def test_while_the_breaker_holds_nobody_is_tainted():
    api = Api("a", "b", taints=TAINTS)
    api.ruling = Ruling(holds=(Hold(ground=Ground.RULE, culprit="x", since=0.0, nodes=frozenset({"b"})),))
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld["breaker"] == 1


async def test_a_silent_node_is_not_tainted_for_that():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(30)
    api.heard["a"] = api.now - TTL - 1
    await api.looks(300)
    assert api.taint("a") == []


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
