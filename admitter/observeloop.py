"""Decide about every gang beside the scheduler that starts it, and write nothing: the first step of a rollout.

In: the cluster as it changes, what the admitter believes of the nodes. Out: counts, and Events for the decision log.

Invariants: nothing here can write: it has no client. The decision is that of held pods: the same groups (core/groups.py), the same question
(grouprequest.py), the same queue (order.py). Only a leader observes, so that a gang counts once; a new term begins anew, and judges
nothing that had started before it.

Not here: what counts as held wrongly (core/observe.py).
"""

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

import structlog

from admitter.core import gatescene, grouprequest, groups, observe, obstacles, offers, order
from admitter.core.membership import Membership
from admitter.core.observe import Tally, Verdict, Watched
from admitter.gateports import Clock, Objects
from admitter.model.cluster import Changes, Cluster, KubePod
from admitter.model.decision import Event, Explanation, Grant, Policy
from admitter.model.group import Group, GroupMember, Workloads
from admitter.model.hold import GatePolicy, Hold, HoldReason, Told
from admitter.model.leadership import Guard
from admitter.model.nodecapacity import ClusterView
from admitter.model.queue import Ask, QueueState
from muster.model import kube

_LOG = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.05
LOOK_SECONDS = 1.0
EVERY = "*"
LEFT_OUT = frozenset({"kube-system", "muster-system"})
"""Namespaces in which no pod ever gets the gate (daemonset/gates/policy.yaml)."""


class ObserveLoop:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        namespaces: frozenset[str],
        cluster: Cluster,
        objects: Objects,
        view: Callable[[], ClusterView],
        term: Callable[[], int],
        guard: Guard,
        clock: Clock,
        policy: Policy,
        gates: GatePolicy,
        tally: Tally,
        tell: Callable[[Event], None],
    ) -> None:
        """`namespaces` are looked at as if they were managed, `*`: all; `tell` writes to the decision log."""
        self._namespaces, self._cluster, self._objects, self._view = namespaces, cluster, objects, view
        self._term_of, self._guard, self._clock = term, guard, clock
        self._policy, self._gates, self._tally, self._tell = policy, gates, tally, tell
        self._wake = asyncio.Event()
        self._term = 0
        self._begin()
        cluster.listen(self._take)

    def changed(self, namespace: str) -> None:
        """Something above the pods of a namespace has changed; empty: perhaps everything."""
        self._touch(pod for pod in self._cluster.pods().values() if not namespace or pod.namespace == namespace)

    async def run(self) -> None:
        """Follow until cancelled."""
        self._wake.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                self._look()
            except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                _LOG.exception("look at pods failed")
            await asyncio.sleep(PAUSE_SECONDS)

    def _begin(self) -> None:
        self._membership = Membership()
        self._watched: dict[str, Watched] = {}
        self._past: frozenset[str] = frozenset()
        """UIDs of pods that were there when the term began."""
        self._arrivals = 0
        self._queue, self._memory = QueueState(), order.Memory()
        self._layout = offers.Layout(self._policy)
        self._dirty: set[str] = set()

    def _take(self, changes: Changes) -> None:
        self._touch(pod for change in changes.pods if (pod := change.after or change.before) is not None)

    def _touch(self, pods: Iterable[KubePod]) -> None:
        self._membership.touch(pod.uid for pod in pods if self._is_observed(pod))
        if not self._membership.is_settled:
            self._wake.set()

    def _is_observed(self, pod: KubePod) -> bool:
        if pod.controller is not None and pod.controller.kind == "DaemonSet":
            return False
        if EVERY in self._namespaces:
            return pod.namespace not in LEFT_OUT
        return pod.namespace in self._namespaces

    def _workloads(self) -> Workloads:
        """Return what is above the pods, as if every namespace that is looked at were managed."""
        found = self._objects.workloads()
        every = frozenset(pod.namespace for pod in self._cluster.pods().values())
        return dataclasses.replace(
            found, managed=found.managed | (every if EVERY in self._namespaces else self._namespaces)
        )

    def _look(self) -> None:
        term = self._term_of()
        if not term or not self._guard.may_write(term) or not self._cluster.is_synced or not self._objects.is_synced:
            return
        if term != self._term:
            self._begin()
            self._term = term
            self._past = frozenset(pod.uid for pod in self._cluster.pods().values() if pod.node)
            self.changed("")
        workloads, now = self._workloads(), self._clock.monotonic()
        self._dirty |= self._membership.settle(self._cluster.pod, workloads)
        open_keys = {key for key, each in self._watched.items() if each.outcome is None}
        dirty, self._dirty = self._dirty, set()
        self._judge(dict(self._to_judge(sorted(dirty | open_keys), workloads, now)), workloads, now)
        for key in dirty | open_keys:
            self._follow(key, workloads, now)
        held = (each for each in self._watched.values() if each.outcome is None and each.verdict is Verdict.HELD)
        self._tally.held = collections.Counter(each.reason for each in held)

    def _pods(self, key: str) -> list[KubePod]:
        return [pod for uid in self._membership.of(key) if (pod := self._cluster.pod(uid)) is not None]

    def _to_judge(self, keys: Iterable[str], workloads: Workloads, now: float) -> Iterator[tuple[str, Group]]:
        """Yield the gangs that a decision is wanted on, as their scheduler found them; remember those that are new."""
        for key in keys:
            pods, known = self._pods(key), self._watched.get(key)
            uids = observe.to_judge(pods, known, self._past)
            if not uids or not any(self._needs_device(pod) for pod in pods):
                continue
            if any(pod.uid in uids and pod.phase is kube.PodPhase.SUCCEEDED for pod in pods):
                # Over before anybody looked: what makes it counts it as done, and the gang is no longer what it was.
                continue
            found = [observe.as_found(pod) if pod.uid in uids else pod for pod in pods]
            place = groups.place(found[0], workloads)
            group = groups.group(place, found, workloads) if place is not None else groups.empty(key)
            obstacle = obstacles.found(group, Hold(), self._gates, now)
            if known is not None and uids == known.uids:
                yield key, group
            elif obstacle is None or obstacle.reason != HoldReason.INCOMPLETE:
                self._arrivals += 1
                earlier = (known.earlier | known.uids if known is not None else frozenset()) & {pod.uid for pod in pods}
                self._watched[key] = Watched(uids=uids, earlier=earlier, arrival=self._arrivals)
                yield key, group

    def _needs_device(self, pod: KubePod) -> bool:
        return any(units and grouprequest.is_device(name, self._gates.devices) for name, units in pod.requests.items())

    def _judged(self, key: str, group: Group) -> list[GroupMember]:
        return [member for member in group.members if member.pod.uid in self._watched[key].uids]

    def _judge(self, found: dict[str, Group], workloads: Workloads, now: float) -> None:
        """Decide about all that wait, as one queue."""
        asks, told = [], dict[str, Grant | Explanation | Told]()
        for key, group in found.items():
            asked = self._asked(key, group, workloads, now)
            if isinstance(asked, Told):
                told[key] = asked
            elif asked is None:
                del self._watched[key]
            else:
                asks.append(dataclasses.replace(asked, arrival=self._watched[key].arrival))
        view = self._view()
        supply, ideal = self._layout.supply(view, {})
        own = [
            member.pod for key, group in found.items() if key in self._watched for member in self._judged(key, group)
        ]
        scene = order.Scene(supply=observe.back(own, view, supply), ideal=ideal, now=now)
        if asks:
            outcome = order.decide(asks, scene, self._policy, self._queue, self._memory)
            self._queue = outcome.state
            told |= observe.answers(outcome)
        for key, answer in told.items():
            before = self._watched[key]
            after = self._watched[key] = observe.answered(
                before, answer, [each.pod for each in self._judged(key, found[key])]
            )
            for event in observe.decision(key, before, after):
                self._tell(event)

    def _asked(self, key: str, group: Group, workloads: Workloads, now: float) -> Ask | Told | None:
        """Return the group's question, or why it would be held without one; None: it needs no device."""
        obstacle = obstacles.found(group, Hold(), self._gates, now)
        if obstacle is not None:
            return obstacle
        members = self._judged(key, group)
        asked = grouprequest.ask(group, members, "observed", devices=self._gates.devices, handlers=workloads.handlers)
        if not isinstance(asked, grouprequest.Asked):
            return Told(reason=HoldReason.INVALID_GANG, summary="; ".join(asked)[:512])
        moment = gatescene.Moment(now=now, utc=self._clock.utc())
        made = [at for each in members if (at := moment.of(each.pod.created_at)) is not None]
        return Ask(gang=asked.gang, arrival=0, asked_at=max(made, default=now)) if asked.gang.podsets else None

    def _follow(self, key: str, workloads: Workloads, now: float) -> None:
        known, pods = self._watched.get(key), self._pods(key)
        place = groups.place(pods[0], workloads) if pods else None
        if place is None:
            # Its pods are gone: deleted before they started, or long done.
            self._watched.pop(key, None)
            self._membership.drop(key)
            return
        if known is None or known.outcome is not None or known.verdict is None:
            return
        group = groups.group(place, pods, workloads)
        known, words = observe.followed(known, group, self._gates.bind_patience_seconds, now)
        self._watched[key] = known
        if known.outcome is not None and known.verdict is not None:
            self._tally.ends[known.verdict, known.outcome] += 1
            for event in observe.end(key, known, words):
                self._tell(event)
