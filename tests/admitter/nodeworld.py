"""The loop over all Nodes, and around it an API server, its watch, the feed, the clock and the guard."""

import dataclasses
import datetime

from admitter.model.cluster import (
    Condition,
    KubeNode,
)
from admitter.model.leadership import Leadership
from admitter.model.nodestatus import StatusPolicy, TaintPolicy
from admitter.model.ruling import NOTHING_HELD
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodeloop import NodeLoop
from admitter.publish.nodes import Outcome, Sent
from admitter.publish.nodetaints import Tainter
from muster.model import kube, labels
from muster.model.report import DeviceState, Verdict
from tests.admitter.clusters import a_node, a_view
from tests.admitter.nodewords import UTC, a_device, a_finding, a_report

WELL = a_report()
LOST = a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[a_device(3, DeviceState.LOST, "GpuLost")])


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

    async def set_conditions(self, write, term, *, may_retake=False):
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
