"""Let a gang go without a lease, where its queue is set to fail open and the admitter cannot see (outage.py).

Input: what one step of a group looks at, how the group stands with its queue's setting. Output: the step, gates.py's own wherever
nothing is let go.

Invariants: only a gang that is complete, waits for nothing but sight, and of which no pod carries a lease goes; it goes whole. Each of
its pods carries the mark `muster.dev/unverified`, whose value names these pods: whoever leads next finishes what was half let
go, and asks for nobody's place twice. A gang whose pods have changed since is asked for like any other. Nothing is pinned: the
scheduler and the kubelets decide, as if Muster were not there.

Not here: what is let go after the outage runs where it is, and the agents count it; a kubelet that refuses it breaks no promise of ours.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

from admitter.core import gates, obstacles, seats
from admitter.core.gates import Scene
from admitter.core.outage import Permit
from admitter.model.cluster import KubePod
from admitter.model.hold import GatePolicy, Hold, HoldReason, Intent, LetGo, Release, Resume, Tell, Told, Withdraw
from admitter.model.record import GangState
from muster.model import labels


def step(scene: Scene, hold: Hold, policy: GatePolicy, permit: Permit) -> tuple[Hold, tuple[Intent, ...]]:
    """Return what to remember and what to do."""
    if not permit.is_open:
        return gates.step(scene, hold, policy)
    pods = [member.pod for member in scene.group.members]
    mark = _mark(pods, hold)
    if mark and mark == _name(pods, policy):
        # Begun by us or by the leader before us, seen or not: half a gang holds what it got and runs nothing.
        told = hold.told if hold.unverified else Told(reason=HoldReason.UNVERIFIED, summary="let go without a lease")
        words = (Tell(told=told),) if told is not None and told != hold.told else ()
        asked = scene.record is not None and scene.record.state is not GangState.ENDED
        back = (Withdraw(detail="it was let go without a lease"),) if asked else ()
        return dataclasses.replace(hold, unverified=mark, told=told), (*back, *_releases(pods, policy, mark), *words)
    if not permit.words or scene.record is None or scene.record.state is not GangState.WAITING:
        return gates.step(scene, hold, policy)
    if hold.paused is not None and scene.maker is not None and not pods:
        # Its pods are away until there is a place; without a lease they are let go only where they are.
        return hold, (Resume(owner=hold.paused),) if scene.maker.is_suspended else ()
    if not permit.is_turn or not _may_go(scene, hold, policy):
        # It may be its turn in a moment: nobody's pods are taken away to stop a clock.
        return gates.step(dataclasses.replace(scene, deadline=None), hold, policy)
    return _let_go(scene, hold, policy, permit.words)


def _let_go(scene: Scene, hold: Hold, policy: GatePolicy, words: str) -> tuple[Hold, tuple[Intent, ...]]:
    pods = [member.pod for member in scene.group.members]
    mark = _name(pods, policy)
    told = Told(reason=HoldReason.UNVERIFIED, summary=f"let go without a lease: {words}")
    releases = tuple(_releases(pods, policy, mark))
    hold = dataclasses.replace(gates.forgotten(hold), unverified=mark, told=told)
    return hold, (Withdraw(detail=told.summary), LetGo(pods=len(releases), detail=words), *releases, Tell(told=told))


def _may_go(scene: Scene, hold: Hold, policy: GatePolicy) -> bool:
    group, record = scene.group, scene.record
    is_asked = record is not None and record.gang.request_id == hold.request_id
    has_lease = any(seats.lease_of(member.pod) for member in group.members)
    is_kept = obstacles.found(group, hold, policy, scene.now) is not None or bool(scene.self_block)
    return is_asked and bool(group.members) and not has_lease and not is_kept


def _releases(pods: Iterable[KubePod], policy: GatePolicy, mark: str) -> Iterable[Release]:
    return (
        Release(uid=pod.uid, nodes=(), lease_id="", unverified=mark)
        for pod in pods
        if policy.gate in pod.gates and not obstacles.foreign_gates(pod, policy)
    )


def _mark(pods: Sequence[KubePod], hold: Hold) -> str:
    """Return the mark under which some of these were let go; empty: none were."""
    marks = {mark for pod in pods if (mark := pod.annotations.get(labels.UNVERIFIED.full)) and not pod.gates}
    return hold.unverified or (marks.pop() if len(marks) == 1 else "")


def _name(pods: Iterable[KubePod], policy: GatePolicy) -> str:
    """Name the pods that are held, or were let go without a lease."""
    ours = [pod for pod in pods if policy.gate in pod.gates or labels.UNVERIFIED.full in pod.annotations]
    return hashlib.sha256("\n".join(sorted(pod.uid for pod in ours)).encode()).hexdigest()[:32]
