"""The gate adapter: follow held pods, ask the queue for them, let them go.

In: the cluster as it changes, the queue's records. Out: open, join, leave and end for the queue; patches, suspensions and
Events for the API server.

Invariants: only a leader acts. What was refused for good is a strike; what got no answer is wanted again by the next step.
Whatever is remembered here can be lost.

Not here: any rule (core/gates.py, strikes.py), any request (publish/podissuer.py, pods.py).
"""

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import structlog

from admitter import confined as confining
from admitter.confined import Confined
from admitter.core import failopen, gates, gatescene, groups, leased, rollouts, strikes
from admitter.core.kin import Kin
from admitter.core.membership import Membership
from admitter.core.outage import Outage
from admitter.core.rollouts import Rollout
from admitter.gatedesk import OWNER, GateDesk
from admitter.gateports import Clock, Desk, Objects
from admitter.model.cluster import Changes, Cluster, KubePod
from admitter.model.decision import Event
from admitter.model.group import GroupMember
from admitter.model.hold import (
    GatePolicy,
    Hold,
    HoldReason,
    Intent,
    Join,
    Leave,
    LetGo,
    Open,
    Pause,
    Release,
    Replan,
    Resume,
    Stand,
    Strike,
    Tell,
    Told,
    Withdraw,
)
from admitter.model.leadership import Guard
from admitter.model.record import GangState
from admitter.publish.nodes import Outcome
from admitter.publish.podissuer import PodIssuer
from admitter.publish.recheck import Recheck
from muster.model import labels

_LOG = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.05
"""Between two looks: a Job's pods come within a moment of each other."""
_NOTHING = Hold()
LOOK_SECONDS = 1.0
"""How often what waits, is late or was refused is looked at, whether or not it changed: patience runs out by itself."""
STEADY_SECONDS = 60.0
"""How often a gang is looked at that runs and of which nothing can come due: to be safe."""
AT_ONCE = 50
"""Gangs looked at before others get their turn on the event loop: 8 ms at 8 pods each."""


class GateLoop:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        desk: Desk,
        cluster: Cluster,
        objects: Objects,
        issuer: PodIssuer,
        guard: Guard,
        clock: Clock,
        policy: GatePolicy,
        tell: Callable[[Event], None],
        outage: Outage,
        confined: Confined | None = None,
    ) -> None:
        """`tell` writes to the decision log."""
        self._outage, self._confined = outage, confined or Confined()
        self._desk, self._cluster, self._objects, self._issuer = desk, cluster, objects, issuer
        self._guard, self._clock, self._policy, self._tell = guard, clock, policy, tell
        self._wake = asyncio.Event()
        self._membership = Membership()
        self._dirty: set[str] = set()
        self._holds: dict[str, Hold] = {}
        self._gangs = GateDesk(desk, self._touch)
        self._bound = rollouts.Bound()
        self._recheck = Recheck(desk.record, cluster, objects.workloads, policy.gate, issuer.is_busy)
        self._term = 0
        self._looked_at = -LOOK_SECONDS
        """When what waits was looked at last."""
        self._steady: dict[str, float] = {}
        """Gangs of which nothing can come due by itself, and when each was looked at last."""
        cluster.listen(self._take)

    def changed(self, namespace: str) -> None:
        """Something above the pods of a namespace has changed; empty: perhaps everything."""
        self._membership.stir(namespace)
        self._wake.set()

    def _touch(self, key: str) -> None:
        """Have one gang looked at soon."""
        self._dirty.add(key)
        self._wake.set()

    def gang_of(self, uid: str) -> str:
        """Return the name of the gang that a pod belongs to; empty: none that is followed here."""
        return self._membership.gang_of(uid)

    def told(self, key: str) -> Told | None:
        """Return what was last said of a gang, by namespace/name."""
        hold = self._holds.get(key)
        return hold.told if hold is not None else None

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._gangs.begin(group)
            self._issuer.begin(group)
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    await self._look()
                except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                    _LOG.exception("look at held pods failed")
                await asyncio.sleep(PAUSE_SECONDS)

    # -- who belongs to whom

    def _concerns(self, pod: KubePod) -> bool:
        """Return whether a pod may be of a group that anything is held for."""
        return self._membership.has(pod.uid) or self._concerns_gates(pod)

    def _take(self, changes: Changes) -> None:
        for change in changes.pods:
            self._bound.note(change.before, change.after)
            pod = change.after or change.before
            if pod is not None:
                # A pod that runs without our gate may still be a member: its marker says so.
                self._membership.note(pod, is_gone=change.after is None)
        if not self._membership.is_settled:
            self._wake.set()

    # -- one look

    async def _look(self) -> None:
        """Look at what has changed, and by the clock at all that may come due."""
        term = self._desk.term
        if term != self._term:
            self._gangs.clear()
            self._holds, self._steady, self._term = {}, {}, term
            self._outage.restart()
            self.changed("")
        if not self._may_act():
            return
        now = self._clock.monotonic()
        # By the clock and not by a pause between changes: in a busy cluster there is none.
        is_time = now - self._looked_at >= LOOK_SECONDS
        self._membership.touch_stirred(self._cluster.pods(), self._concerns, is_time=is_time)
        place = functools.partial(self._confined.attempt, confining.PLACE)
        self._dirty |= self._membership.settle(self._cluster.pod, self._objects.workloads(), place)
        if is_time:
            self._looked_at = now
            for event in self._outage.look(now, map(self._desk.record, self._holds)):
                self._tell(event)
        keys = sorted(self._dirty | (self._due(now) if is_time else set()))
        for start in range(0, len(keys), AT_ONCE):
            if start:
                await asyncio.sleep(0)
            if not self._may_act() or self._desk.term != self._term:
                return
            self._look_at(keys[start : start + AT_ONCE])
        if is_time:
            waiting = {hold.paused.uid for hold in self._holds.values() if hold.paused is not None}
            self._issuer.resume_suspended(self._objects.workloads(), self._term, waiting)

    def _may_act(self) -> bool:
        term = self._desk.term
        return bool(term and self._guard.may_write(term) and self._cluster.is_synced and self._objects.is_synced)

    def _due(self, now: float) -> set[str]:
        """Return what is held and may have come due."""
        rested = {key for key, at in self._steady.items() if now - at < STEADY_SECONDS}
        return self._holds.keys() - rested

    def _look_at(self, keys: Sequence[str]) -> None:
        look = gatescene.Look(
            workloads=self._objects.workloads(),
            known=self._desk.requests_of_leases(),
            kin=Kin(self._cluster.pods().values, self._objects.workloads()),
            holdings=rollouts.Holdings(self._bound_pods),
            moment=gatescene.Moment(now=self._clock.monotonic(), utc=self._clock.utc()),
            nodes=self._cluster.nodes(),
            grants_on=self._desk.grants_on,
            is_busy=self._issuer.is_busy,
        )
        for key in keys:
            self._dirty.discard(key)
            self._steady.pop(key, None)
            kind = self._confined.attempt(confining.GANG, key, functools.partial(self._step, key, look))
            if kind:
                self._confined.attempt(confining.GANG, key, functools.partial(self._tell_failed, key, kind))

    def _step(self, key: str, look: gatescene.Look) -> None:
        uids = self._membership.of(key)
        pods = [pod for uid in uids if (pod := self._cluster.pod(uid)) is not None]
        hold = self._holds.get(key, Hold())
        record = self._desk.record(key)
        record = record if record is not None and record.owner == OWNER else None
        is_asked = bool(hold.request_id) and record is not None and record.state is not GangState.ENDED
        if not pods and not is_asked and hold.paused is None:
            self._drop(key, strikes.faded(hold, self._policy, look.moment.now))
            return
        if key not in self._holds and not any(self._concerns_gates(pod) for pod in pods):
            return
        scene = gatescene.assemble(key, pods, look, record=record, hold=hold, policy=self._policy)
        self._holds[key], intents = failopen.step(scene, hold, self._policy, self._outage.permit(key))
        for intent in intents:
            self._do(intent, key, scene)
        has_started = record is not None and record.state is GangState.STARTED
        if has_started and not intents and leased.is_steady(scene.group, self._holds[key], self._policy):
            self._steady[key] = look.moment.now

    def _tell_failed(self, key: str, kind: str) -> None:
        """Say on its first pod that a gang waits for a bug of ours; it is looked at again all the same."""
        told = Told(
            reason=HoldReason.FAILED, summary=f"Muster failed on it ({kind}); its log says more, and it tries again"
        )
        hold = self._holds.get(key, Hold())
        if hold.told == told:
            return
        self._holds[key] = dataclasses.replace(hold, told=told)
        pods = sorted(filter(None, map(self._cluster.pod, self._membership.of(key))), key=lambda pod: pod.name)
        members = tuple(GroupMember(pod=pod, podset="", index=0) for pod in pods)
        group = dataclasses.replace(groups.empty(key), members=members)
        self._issuer.say(told, group, {}, self._term)

    def _drop(self, key: str, hold: Hold) -> None:
        """Forget a group without pods, and last of all who refused it: a launcher may make it anew at once."""
        if hold.strikes:
            self._holds[key] = dataclasses.replace(gates.forgotten(hold), told=None)
        else:
            self._holds.pop(key, None)
        self._membership.drop(key)

    def _bound_pods(self, whose: Rollout) -> Iterator[KubePod]:
        for uid in self._bound.of(whose):
            pod = self._cluster.pod(uid)
            if pod is not None:
                yield pod

    def _concerns_gates(self, pod: KubePod) -> bool:
        return self._policy.gate in pod.gates or labels.LEASE.full in pod.annotations

    def _do(self, intent: Intent, key: str, scene: gates.Scene) -> None:
        match intent:
            case Open() | Withdraw() | Stand() | Join() | Leave():
                self._say_conflict(self._gangs.ask(intent, key), key, scene)
            case _:
                self._issue(intent, key, scene)

    def _say_conflict(self, told: Told | None, key: str, scene: gates.Scene) -> None:
        hold = self._holds[key]
        if told is not None and hold.told != told:
            self._holds[key] = dataclasses.replace(hold, told=told)
            _LOG.warning("a gang cannot be asked for", gang=key, detail=told.summary)
            self._issuer.say(told, scene.group, scene.owners, self._term)

    def _issue(self, intent: Intent, key: str, scene: gates.Scene) -> None:
        """Have it done on the API server, or noted."""
        issuer, namespace = self._issuer, scene.group.namespace
        match intent:
            case Release(uid=uid, lease_id=lease_id):
                above = scene.owners.get(uid)
                has_lease, maker = self._recheck.lease(key, lease_id), above.uid if above is not None else ""

                def still() -> bool:
                    return has_lease() and not self._holds.get(key, _NOTHING).yields

                issuer.release(intent, self._term, maker, still, functools.partial(self._refuse, key, lease_id))
            case LetGo(pods=pods, detail=detail):
                self._outage.spend(key, pods, self._clock.monotonic())
                self._note("let-go-unseen", key, f"{pods} pods without a lease: {detail}", "", rule="outage")
            case Strike():
                self._strike(key, intent)
            case Replan():
                if issuer.replan(intent, namespace, self._term, self._recheck.replan(intent, namespace)):
                    self._note("replanned", key, intent.detail, "")
            case Pause(owner=owner):
                self._note("paused", key, f"{owner.kind} {owner.name} is suspended: its own deadline would run", "")
                fresh = self._recheck.pause(key, self._holds[key].request_id, owner, namespace)
                issuer.pause(owner, namespace, self._term, fresh, lambda detail: self._cannot_pause(key, detail))
            case Resume(owner=owner):
                issuer.resume(owner, namespace, self._term)
            case Tell(told=told):
                _LOG.info("gang", gang=key, reason=told.reason, summary=told.summary)
                issuer.say(told, scene.group, scene.owners, self._term, self._holds[key].paused)

    # -- what came of it

    def _refuse(self, key: str, lease_id: str, uid: str, outcome: Outcome, detail: str) -> None:
        """A patch was refused for good: the lease goes back, and the gang waits before it asks again.

        What refuses one of a gang's patches refuses all that are on their way: that is one cause, and one strike.
        """
        before, now = self._holds.get(key, _NOTHING), self._clock.monotonic()
        is_known = now < before.not_before if not lease_id else not self._recheck.lease(key, lease_id)()
        if before.yields or is_known:
            return
        strike = Strike(party="api server", reason=outcome.value, detail=detail, uid=uid, lease_id=lease_id)
        hold = strikes.struck(before, self._policy, now, [strike])
        self._holds[key] = dataclasses.replace(hold, yields=detail[:512] or strike.blame) if lease_id else hold
        self._strike(key, strike)
        self._touch(key)

    def _cannot_pause(self, key: str, detail: str) -> None:
        """What makes the pods may not be suspended: its deadline runs, and that is said instead."""
        _LOG.warning("a deadline runs while its pods are held", gang=key, detail=detail)
        self._holds[key] = dataclasses.replace(self._holds.get(key, Hold()), cannot_pause=True, paused=None)
        self._touch(key)

    def _strike(self, key: str, strike: Strike) -> None:
        self._note("refused", key, f"{strike.party} {strike.reason}: {strike.detail}", strike.lease_id)

    def _note(self, kind: str, key: str, detail: str, lease_id: str, rule: str = "strike") -> None:
        self._tell(Event(kind=kind, gang=key, actor="admitter", rule=rule, detail=detail[:512], lease_id=lease_id))
