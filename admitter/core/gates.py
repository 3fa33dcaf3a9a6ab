"""The life of a group of held pods: wait for all, ask once, seat everybody, follow them to the end.

Input: the group as the cluster has it, its record in the queue, what is remembered of it, the clock. Output: what is
remembered next, and what is wanted done. Each step is taken from the present state alone, so a step that was lost (a
refused request, a restart) is simply wanted again.

Invariants:
- no pod is let go before every member of the generation is there and one lease holds all their places;
- a seat is given to one pod at a time, and a lease is used for the UIDs of its generation only;
- a pod whose container has started is never sent back; neither is its gang (design.md section 6);
- a gate that is not ours is never touched, and while a member has one that is not known to go before ours nothing starts.

Not here: who belongs to a group (groups.py), what it asks for (grouprequest.py), its life under a lease (leased.py), how requests are sent (publish/pods.py).
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from admitter.core import deadlines, grouprequest, leased, obstacles, seats, strays, strikes
from admitter.core.deadlines import Deadline, Maker
from admitter.model.cluster import KubePod, Owner
from admitter.model.decision import Explanation
from admitter.model.gang import Member
from admitter.model.group import Group, GroupMember
from admitter.model.hold import (
    GatePolicy,
    Hold,
    HoldReason,
    Intent,
    Join,
    Open,
    Pause,
    Release,
    Stand,
    Tell,
    Told,
    Withdraw,
)
from admitter.model.lease import Lease
from admitter.model.record import GangRecord, GangState
from admitter.model.standing import Standing
from muster.model import codec
from muster.model.reading import Known, Unknown

_HOLDING = (GangState.LEASED, GangState.STARTED)


def _nothing(_pod: KubePod, _node: str) -> str:
    return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that one step looks at."""

    group: Group
    record: GangRecord | None
    """The newest of the group's name in the queue."""
    request_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Lease id -> request id, of every lease that the queue or an agent knows."""
    owners: Mapping[str, Owner | None] = dataclasses.field(default_factory=dict)
    """UID -> the topmost object that makes the pod."""
    kin: Callable[[Owner], Iterable[KubePod]]
    """All live pods that an object makes, of this group or not (kin.py)."""
    owner_runtime: str = ""
    """`muster.dev/max-runtime` of that object."""
    handlers: Mapping[str, str] = codec.mapping()
    born: Mapping[str, float] = codec.mapping()
    """UID -> when the pod was made, by the admitter's monotonic clock."""
    began: Mapping[str, float] = codec.mapping()
    """UID -> when its kubelet took notice of it."""
    self_block: str = ""
    """Why it waits for itself; empty: it does not (rollouts.py)."""
    deadline: Deadline | None = None
    """Of what makes its pods, while it runs."""
    maker: Maker | None = None
    """Of a group whose pods are away: what we suspended."""
    barrier: Callable[[KubePod, str], str] = _nothing
    """Why a pod is not to be pinned to a node now; empty: it may be."""
    is_busy: Callable[[str], bool] = lambda _: False
    """Whether a request is on its way for a pod."""
    now: float


def step(scene: Scene, hold: Hold, policy: GatePolicy) -> tuple[Hold, tuple[Intent, ...]]:
    """Return what to remember and what to do."""
    group, record = scene.group, scene.record
    hold = _noticed(scene, strikes.faded(hold, policy, scene.now))
    is_ours = record is not None and record.gang.request_id == hold.request_id
    holds = record is not None and record.state in _HOLDING and is_ours
    if record is not None and record.lease is not None and record.is_taken_over and is_ours:
        hold = seats.remembered(group, record, record.lease, hold, scene.now)
    if scene.maker is not None and not (holds and group.members) and _is_incomplete(group):
        hold, intents = deadlines.follow_paused(hold, record, scene.maker, policy, scene.now)
        if record is None or record.why is None or hold.paused is None:
            return hold, intents
        summary = f"{record.why.summary}; suspended meanwhile, so that its own deadline does not run"
        return _tell(hold, Told(reason=record.why.reason, summary=summary), intents)
    if _is_over(scene, hold, policy):
        return forgotten(hold), _withdrawal(record, "all its pods are done or gone", has_run=hold.has_run)
    hold, outcome = strikes.judge(group, hold, policy, scene.now, scene.owners, scene.kin, scene.is_busy)
    if outcome:
        return hold, outcome
    known = {_lease_of(scene).id} if holds else scene.request_of.keys()
    hold, told, back = strays.judge(group, hold, policy, scene.now, known=known, owners=scene.owners, kin=scene.kin)
    if told is not None:
        return _tell(hold, told, (*(() if holds else _withdrawal(record, told.summary)), *back))
    return _follow(scene, hold, policy) if holds and hold.request_id else _plan(scene, hold, policy)


def _noticed(scene: Scene, hold: Hold) -> Hold:
    """Remember that a container of the generation has started: pods can be gone before they are asked for."""
    if hold.has_run or not hold.seats:
        return hold
    pods = (*(member.pod for member in scene.group.members), *scene.group.ended)
    return dataclasses.replace(hold, has_run=any(pod.uid in hold.seats and strikes.has_started(pod) for pod in pods))


def forgotten(hold: Hold) -> Hold:
    """Return what outlives a generation: who refused it."""
    return Hold(
        strikes=hold.strikes,
        refused_by=hold.refused_by,
        struck_at=hold.struck_at,
        not_before=hold.not_before,
        told=hold.told,
    )


def _is_incomplete(group: Group) -> bool:
    match group.wanted:
        case Known(value=wanted):
            return not group.members or len(group.members) < wanted
        case Unknown():
            return True


# -- before the lease


def _is_ours(pod: KubePod, scene: Scene, policy: GatePolicy) -> bool:
    """Return whether a pod is held, or was let go by an earlier leader under a lease that is still known."""
    return policy.gate in pod.gates or seats.lease_of(pod) in scene.request_of


def _ours(scene: Scene, policy: GatePolicy) -> list[GroupMember]:
    """Return the members that are asked for: those that are held, or that an earlier leader let go.

    A gang that runs whole under a lease that nobody knows any more (its agents were all restarted) is asked for too: without
    a record of it the queue would not know whom the next gang waits for.
    """
    members = scene.group.members
    ours = [member for member in members if _is_ours(member.pod, scene, policy)]
    if ours or not all(
        seats.lease_of(each.pod) and each.pod.node and strikes.has_started(each.pod) for each in members
    ):
        return ours
    return list(members)


def _plan(scene: Scene, hold: Hold, policy: GatePolicy) -> tuple[Hold, tuple[Intent, ...]]:
    """Put the members that are held to the queue, unless something keeps them from it."""
    group, record = scene.group, scene.record
    ours = _ours(scene, policy)
    if not ours:
        return hold, ()
    obstacle = obstacles.found(group, hold, policy, scene.now)
    if obstacle is not None:
        if obstacle.reason != HoldReason.ON_STRIKE:
            hold = dataclasses.replace(hold, kept_at=scene.now)
        return _tell(hold, obstacle, _withdrawal(record, obstacle.summary))
    return _ask(scene, hold, policy, ours)


def _ask(scene: Scene, hold: Hold, policy: GatePolicy, ours: Sequence[GroupMember]) -> tuple[Hold, tuple[Intent, ...]]:
    """Put the group to the queue, or tell what the queue says."""
    group, record = scene.group, scene.record
    known = sorted({lease for member in ours if (lease := seats.lease_of(member.pod)) in scene.request_of})
    request_id = scene.request_of[known[0]] if known else _request_id(ours)
    asked = grouprequest.ask(
        group,
        ours,
        request_id,
        owner_runtime=scene.owner_runtime,
        devices=policy.devices,
        handlers=scene.handlers,
    )
    if not isinstance(asked, grouprequest.Asked):
        told = Told(reason=HoldReason.INVALID_GANG, summary="; ".join(asked)[:512])
        return _tell(dataclasses.replace(hold, kept_at=scene.now), told, _withdrawal(record, told.summary))
    if not asked.gang.podsets:
        # Nobody in it needs a device: there is nothing to wait for.
        return _tell(hold, leased.RELEASED, tuple(_free(ours, policy)))
    hold = dataclasses.replace(hold, request_id=request_id)
    if record is None or record.state is GangState.ENDED:
        opened = Open(gang=asked.gang, asked_at=_asked_at(scene, hold, ours))
        there = [
            Member(
                podset=asked.podset_of[each.pod.uid],
                uid=each.pod.uid,
                node=each.pod.node,
                started_at=scene.began.get(each.pod.uid),
            )
            for each in ours
            if each.pod.node and each.pod.uid in asked.podset_of and strikes.has_started(each.pod)
        ]
        return hold, (opened, *(Join(member=member) for member in there))
    if record.gang != asked.gang:
        # Pods were replaced while it waited: the old question is nobody's any more.
        return hold, _withdrawal(record, "its pods have changed")
    standing = Standing(strikes=hold.refusals, refused_by=hold.refused_by, is_self_blocked=bool(scene.self_block))
    stand: tuple[Intent, ...] = () if record.standing == standing else (Stand(standing=standing),)
    if record.why is None:
        return hold, stand
    return _wait(scene, hold, policy, record.why, stand)


def _wait(
    scene: Scene, hold: Hold, policy: GatePolicy, why: Explanation, intents: tuple[Intent, ...]
) -> tuple[Hold, tuple[Intent, ...]]:
    """Tell why it waits, and stop the clock that runs meanwhile."""
    if not any(policy.gate in member.pod.gates for member in scene.group.members):
        # It runs, and only its record waits to be found again.
        return hold, intents
    hold, clock = deadlines.hold_clock(scene.group, hold, scene.deadline, policy, scene.now)
    match clock:
        case Told():
            intents = (*intents, Tell(told=clock))
        case Pause():
            intents = (*intents, clock)
    if scene.self_block:
        return _tell(hold, Told(reason=HoldReason.SELF_BLOCKED, summary=scene.self_block), intents)
    return _tell(hold, Told(reason=why.reason, summary=why.summary), intents)


def _asked_at(scene: Scene, hold: Hold, ours: Sequence[GroupMember]) -> float | None:
    """Return since when it could have asked: who holds back its own pods keeps no place in the queue meanwhile."""
    born = [scene.born[member.pod.uid] for member in ours if member.pod.uid in scene.born]
    if len(born) != len(ours):
        return None
    return max(born) if hold.kept_at is None else max(*born, hold.kept_at)


def _request_id(ours: Iterable[GroupMember]) -> str:
    """Name a generation by its pods: the same pods ask the same question, in whichever process."""
    uids = "\n".join(sorted(member.pod.uid for member in ours))
    return f"pods-{hashlib.sha256(uids.encode()).hexdigest()[:32]}"


# -- under the lease


def _follow(scene: Scene, hold: Hold, policy: GatePolicy) -> tuple[Hold, tuple[Intent, ...]]:
    """Seat who is held, report who is on a node, give back what nobody needs any more."""
    assert scene.record is not None
    moment = leased.Moment(
        owner_runtime=scene.owner_runtime,
        began=scene.began,
        barrier=scene.barrier,
        is_busy=scene.is_busy,
        now=scene.now,
    )
    hold, told, intents = leased.follow(scene.group, scene.record, _lease_of(scene), hold, policy, moment)
    if scene.record.state is GangState.STARTED:
        hold = strikes.forgiven(hold)
    return (hold, intents) if told is None else _tell(hold, hold.stays or told, intents)


def _lease_of(scene: Scene) -> Lease:
    assert scene.record is not None
    assert scene.record.lease is not None
    return scene.record.lease


# -- the end


def _is_over(scene: Scene, hold: Hold, policy: GatePolicy) -> bool:
    """Return whether nobody of the generation that was asked for is left."""
    if not hold.request_id or scene.record is None or scene.record.state is GangState.ENDED:
        return False
    if scene.record.state is GangState.WAITING:
        return not scene.group.members
    if hold.seats:
        return not any(member.pod.uid in hold.seats for member in scene.group.members)
    return not any(_is_ours(member.pod, scene, policy) for member in scene.group.members)


def _withdrawal(record: GangRecord | None, detail: str, *, has_run: bool = False) -> tuple[Intent, ...]:
    if record is None or record.state is GangState.ENDED:
        return ()
    return (Withdraw(detail=detail, has_run=has_run),)


def _free(ours: Iterable[GroupMember], policy: GatePolicy) -> Iterator[Intent]:
    for member in ours:
        if policy.gate in member.pod.gates:
            yield Release(uid=member.pod.uid, nodes=(), lease_id="")


def _tell(hold: Hold, told: Told, intents: tuple[Intent, ...]) -> tuple[Hold, tuple[Intent, ...]]:
    """Say it if it is not what was said last."""
    if hold.told == told:
        return hold, intents
    return dataclasses.replace(hold, told=told), (*intents, Tell(told=told))
