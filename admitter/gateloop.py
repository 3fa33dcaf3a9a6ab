"""The gate adapter: follow held pods, ask the queue for them, let them go.

In: the cluster as it changes, the queue's records. Out: open, join, leave and end for the queue; patches, suspensions and
Events for the API server.

Invariants: only a leader acts. What was refused for good is a strike; what got no answer is wanted again by the next step.
Whatever is remembered here can be lost.

Not here: any rule (core/gates.py, strikes.py), any request (publish/podissuer.py, pods.py).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import structlog

from admitter.core import gates, groups, strikes
from admitter.core.register import Conflict
from admitter.model.cluster import Changes, Cluster, KubePod, Owner
from admitter.model.decision import Event
from admitter.model.gang import Gang, Member
from admitter.model.group import Workloads
from admitter.model.hold import (
    GatePolicy,
    Hold,
    Intent,
    Join,
    Leave,
    Open,
    Release,
    Replan,
    Strike,
    Tell,
    Told,
    Withdraw,
)
from admitter.model.leadership import Guard, NotLeading
from admitter.model.record import GangRecord
from admitter.publish.nodes import Outcome
from admitter.publish.podissuer import PodIssuer
from muster.model import labels

_LOG = structlog.get_logger(__name__)

OWNER = "gates"
"""Whose gangs these are, among the clients of the queue."""
PAUSE_SECONDS = 0.05
"""Between two looks: a Job's pods come within a moment of each other."""
LOOK_SECONDS = 1.0
"""How often everything that is held is looked at, whether or not it changed: patience runs out by itself."""


class Desk(Protocol):
    """The queue."""

    @property
    def term(self) -> int: ...
    def open(self, gang: Gang, owner: str) -> Any: ...
    def join(self, attachment: Any, member: Member) -> None: ...
    def leave(self, attachment: Any, uid: str) -> None: ...
    def end(self, attachment: Any, detail: str) -> None: ...
    def close(self, attachment: Any) -> None: ...
    def record(self, key: str) -> GangRecord | None: ...
    def requests_of_leases(self) -> dict[str, str]: ...


class Objects(Protocol):
    """The objects above pods."""

    @property
    def is_synced(self) -> bool: ...
    def workloads(self) -> Workloads: ...


class Clock(Protocol):
    """What the loop needs of time."""

    def monotonic(self) -> float: ...


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
    ) -> None:
        """`tell` writes to the decision log."""
        self._desk, self._cluster, self._objects, self._issuer = desk, cluster, objects, issuer
        self._guard, self._clock, self._policy, self._tell = guard, clock, policy, tell
        self._wake = asyncio.Event()
        self._members: dict[str, set[str]] = {}
        """Key -> UIDs of all pods that have that place."""
        self._places: dict[str, groups.Place] = {}
        """By UID."""
        self._fresh: set[str] = set()
        """UIDs whose place has to be made out anew."""
        self._dirty: set[str] = set()
        self._holds: dict[str, Hold] = {}
        self._attached: dict[str, Any] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._term = 0
        cluster.listen(self._take)

    def changed(self, namespace: str) -> None:
        """Something above the pods of a namespace has changed; empty: perhaps everything."""
        for uid, pod in self._cluster.pods().items():
            if (not namespace or pod.namespace == namespace) and self._concerns(pod):
                self._fresh.add(uid)
        self._wake.set()

    def gang_of(self, uid: str) -> str:
        """Return the name of the gang that a pod belongs to; empty: none that is followed here."""
        place = self._places.get(uid)
        return place.name if place is not None else ""

    def told(self, key: str) -> Told | None:
        """Return what was last said of a gang, by namespace/name."""
        hold = self._holds.get(key)
        return hold.told if hold is not None else None

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self._issuer.begin(group)
            while True:
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
                    everything = False
                except TimeoutError:
                    everything = True
                self._wake.clear()
                try:
                    self._look(everything=everything)
                except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                    _LOG.exception("look at held pods failed")
                await asyncio.sleep(PAUSE_SECONDS)

    # -- who belongs to whom

    def _concerns(self, pod: KubePod) -> bool:
        """Return whether a pod may be of a group that anything is held for."""
        return pod.uid in self._places or self._policy.gate in pod.gates or labels.LEASE.full in pod.annotations

    def _take(self, changes: Changes) -> None:
        for change in changes.pods:
            pod = change.after or change.before
            if pod is not None:
                # A pod that runs without our gate may still be a member: its marker says so.
                self._fresh.add(pod.uid)
        if self._fresh:
            self._wake.set()

    def _place_fresh(self, workloads: Workloads) -> None:
        fresh, self._fresh = self._fresh, set()
        for uid in fresh:
            pod = self._cluster.pod(uid)
            place = groups.place(pod, workloads) if pod is not None else None
            before = self._places.get(uid)
            if before is not None and (place is None or place.key != before.key):
                self._members[before.key].discard(uid)
                self._dirty.add(before.key)
                del self._places[uid]
            if place is not None:
                self._places[uid] = place
                self._members.setdefault(place.key, set()).add(uid)
                self._dirty.add(place.key)

    # -- one look

    def _look(self, *, everything: bool) -> None:
        term = self._desk.term
        if term != self._term:
            self._holds, self._attached, self._term = {}, {}, term
            self.changed("")
        if not term or not self._guard.may_write(term) or not self._cluster.is_synced or not self._objects.is_synced:
            return
        workloads = self._objects.workloads()
        self._place_fresh(workloads)
        dirty, self._dirty = self._dirty, set()
        known = self._desk.requests_of_leases()
        for key in sorted(dirty | (self._holds.keys() if everything else set())):
            self._step(key, workloads, known)
        if everything:
            self._issuer.resume_suspended(workloads, self._term)

    def _step(self, key: str, workloads: Workloads, known: dict[str, str]) -> None:
        uids = self._members.get(key, set())
        pods = [pod for uid in uids if (pod := self._cluster.pod(uid)) is not None]
        hold = self._holds.get(key, Hold())
        if not pods and not hold.request_id:
            self._holds.pop(key, None)
            if not uids:
                self._members.pop(key, None)
            return
        record = self._desk.record(key)
        place = self._places[pods[0].uid] if pods else None
        group = groups.group(place, pods, workloads) if place is not None else groups.empty(key)
        if key not in self._holds and not any(self._concerns_gates(pod) for pod in pods):
            return
        owners = {pod.uid: groups.owner(pod, workloads) for pod in pods}
        scene = gates.Scene(
            group=group,
            record=record if record is not None and record.owner == OWNER else None,
            request_of=known,
            owners=owners,
            owner_runtime=_runtime(owners.values(), workloads),
            now=self._clock.monotonic(),
        )
        self._holds[key], intents = gates.step(scene, hold, self._policy)
        for intent in intents:
            self._do(intent, key, scene)

    def _concerns_gates(self, pod: KubePod) -> bool:
        return self._policy.gate in pod.gates or labels.LEASE.full in pod.annotations

    def _do(self, intent: Intent, key: str, scene: gates.Scene) -> None:
        attachment, issuer = self._attached.get(key), self._issuer
        match intent:
            case Open(gang=gang):
                self._open(gang, key)
            case Withdraw(detail=detail):
                self._withdraw(key, detail)
            case Join(member=member) if attachment is not None:
                self._desk.join(attachment, member)
            case Leave(uid=uid) if attachment is not None:
                self._desk.leave(attachment, uid)
            case Release():
                issuer.release(intent, self._term, lambda *refusal: self._refuse(key, *refusal))
            case Strike():
                self._strike(key, intent)
            case Replan():
                self._note("replanned", key, intent.detail, "")
                issuer.replan(intent, scene.group.namespace, self._term)
            case Tell(told=told):
                _LOG.info("gang", gang=key, reason=told.reason, summary=told.summary)
                issuer.say(told, scene.group, scene.owners, self._term)

    def _open(self, gang: Gang, key: str) -> None:
        try:
            attachment = self._desk.open(gang, OWNER)
        except NotLeading:
            return
        except Conflict as conflict:
            _LOG.warning("a gang's name is taken", gang=key, detail=conflict.detail)
            return
        self._attached[key] = attachment
        assert self._tasks is not None
        self._tasks.create_task(self._listen(key, attachment))

    async def _listen(self, key: str, attachment: Any) -> None:
        """Look again whenever the queue has something new."""
        while True:
            record = await attachment.next()
            if self._attached.get(key) is not attachment:
                return
            self._dirty.add(key)
            self._wake.set()
            if record is None:
                return

    # -- what came of it

    def _refuse(self, key: str, uid: str, outcome: Outcome, detail: str) -> None:
        """A patch was refused for good: the lease goes back, and the gang waits before it asks again."""
        now = self._clock.monotonic()
        hold = strikes.struck(self._holds.get(key, Hold()), self._policy, now, {uid})
        self._holds[key] = dataclasses.replace(hold, request_id="", seats={}, joined=frozenset(), left=frozenset())
        self._strike(key, Strike(party="api server", reason=outcome.value, detail=detail, uid=uid))
        self._withdraw(key, detail)

    def _strike(self, key: str, strike: Strike) -> None:
        self._note("refused", key, f"{strike.party} {strike.reason}: {strike.detail}", strike.lease_id)

    def _withdraw(self, key: str, detail: str) -> None:
        attachment = self._attached.pop(key, None)
        if attachment is not None:
            self._desk.end(attachment, detail)
            self._desk.close(attachment)
            self._dirty.add(key)
            self._wake.set()

    def _note(self, kind: str, key: str, detail: str, lease_id: str) -> None:
        self._tell(Event(kind=kind, gang=key, actor="admitter", rule="strike", detail=detail[:512], lease_id=lease_id))


def _runtime(owners: Iterable[Owner | None], workloads: Workloads) -> str:
    """Return how long the owner says that it runs, where all pods have one."""
    uids = {owner.uid if owner is not None else "" for owner in owners}
    job = workloads.jobs.get(uids.pop()) if len(uids) == 1 else None
    return job.annotations.get(labels.MAX_RUNTIME.full, "") if job is not None else ""
