"""What was given and refused: by a kubelet, by a scheduler that does not bind, by whoever forbids a patch.

Input: a group whose members were let go, what is remembered of it, the clock. Output: strikes, and where no pod of the
gang is bound, the way back: the pods go back through their owner, and the lease is given up.

Invariants: a refusal is counted once. While one pod of the gang is bound its pods are left where they are (design.md section
6, never destroy work); the lease is given up all the same when a node refused, and whoever comes in the place of the
refused pod is placed anew, around those that run. A gang of which a member cannot pull for long is sent back only if none of
its containers has started. The same holds of every pod that would end with what is suspended, of the gang or not.
Each strike of the same party for the same reason doubles the delay, up to
a bound; all are forgotten some time after the last one, or when the gang has started.
Pods that nobody bound are wanted back with every look until they are gone, and their lease stays as long, whoever refused what: where
no request gets through, the scheduler's may, and what it binds then must be somebody's place.

Not here: what a broken promise means for the node (trust.py).
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from admitter.core import seats
from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Group
from admitter.model.hold import GatePolicy, Hold, HoldReason, Intent, Replan, Strike, Told, Withdraw
from muster.model import codec, kube

REJECTIONS = frozenset(
    {
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "NodeAffinity",
        "NodePorts",
        "TaintToleration",
        "NodeShutdown",
        "Evicted",
    }
)
"""`status.reason` of a pod that the kubelet refused; `OutOf<resource>` beside these (faults.md section 1, admission.md 6)."""
PULL_FAILURES = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
)
"""Reasons of a container that waits for an image which does not come (the kubelet's pkg/kubelet/images)."""
DEFAULT_SCHEDULER = "default-scheduler"
_HELD = "SchedulingGated"


def judge(
    group: Group,
    hold: Hold,
    policy: GatePolicy,
    now: float,
    owners: Mapping[str, Owner | None],
    kin: Callable[[Owner], Iterable[KubePod]],
    is_busy: Callable[[str], bool] = lambda _: False,
) -> tuple[Hold, tuple[Intent, ...]]:
    """Count what was refused since the last look; `owners` by UID, `kin` are all live pods that an owner makes.

    `is_busy` says whether a patch is on its way to a pod.
    """
    rejected, late = _rejected(group, hold), _unbound(group, hold, policy, now)
    live = [member.pod for member in group.members if member.pod.uid in hold.seats]
    hold, unpulled = _unpulled(live, group, hold, policy, now)
    others = beside(live, owners, kin) if late or unpulled or rejected else ()
    if unpulled and any(has_started(pod) for pod in others):
        hold, unpulled = dataclasses.replace(hold, stays=_stays(HoldReason.CANNOT_PULL, unpulled, others)), []
    elif late and any(stands(pod) for pod in others):
        hold = dataclasses.replace(hold, stays=_stays(HoldReason.NOT_BOUND, late, others))
    elif hold.stays is not None:
        hold = dataclasses.replace(hold, stays=None)
    strikes = (*rejected, *(strike for strike in (*late, *unpulled) if strike.uid not in hold.blamed))
    # A pod that is bound may start at any moment, and be deleted by whoever still believes that it has not.
    is_placed = any(pod.node for pod in live) or any(has_started(pod) for pod in group.ended if pod.uid in hold.seats)
    is_placed = (is_placed or any(stands(pod) for pod in others)) and not unpulled
    if strikes:
        hold = struck(hold, policy, now, strikes)
    detail = "; ".join(strike.blame for strike in (*rejected, *late, *unpulled))[:512] or hold.yields
    if rejected:
        hold = dataclasses.replace(hold, yields=detail)
    if not hold.yields and (is_placed or not (late or unpulled)):
        return hold, strikes
    back = () if is_placed else tuple(replans(live, owners, detail, is_bound=bool(unpulled)))
    if not hold.yields or seats.is_awaited(live, hold.seats, policy.gate, is_busy):
        return hold, (*strikes, *back)
    withdraw = Withdraw(detail=hold.yields, has_run=hold.has_run)
    return seats.given_back(hold), (*strikes, withdraw, *back)


def beside(
    live: Iterable[KubePod], owners: Mapping[str, Owner | None], kin: Callable[[Owner], Iterable[KubePod]]
) -> tuple[KubePod, ...]:
    """Return every pod that would end with the suspension of what makes these."""
    above = {owner.uid: owner for pod in live if (owner := owners.get(pod.uid)) is not None}
    return tuple(pod for _, owner in sorted(above.items()) for pod in kin(owner))


def _stays(reason: HoldReason, strikes: Collection[Strike], others: Iterable[KubePod]) -> Told:
    """Say why the gang is left as it is, though some of it cannot start."""
    first = min(strikes, key=lambda strike: strike.uid)
    kept = min(pod.name for pod in others if has_started(pod) or (reason is HoldReason.NOT_BOUND and pod.node))
    return Told(reason=reason, summary=f"{first.blame}; it is left as it is, since {kept} would end with it"[:512])


def ends_work(replan: Replan, pods: Iterable[KubePod]) -> bool:
    """Return whether one of these pods is not to end with what would be sent back."""
    return any(has_started(pod) or (pod.node and not replan.is_bound) for pod in pods)


def stands(pod: KubePod) -> bool:
    """Return whether a pod has started or may at any moment."""
    return bool(pod.node) or has_started(pod)


def replans(
    live: Iterable[KubePod], owners: Mapping[str, Owner | None], detail: str, *, is_bound: bool
) -> Iterator[Replan]:
    """Send the pods back, an owner at a time."""
    back: dict[str, list[str]] = {}
    for pod in live:
        owner = owners.get(pod.uid)
        back.setdefault(owner.uid if owner is not None else "", []).append(pod.uid)
    for _, uids in sorted(back.items()):
        yield Replan(owner=owners.get(uids[0]), uids=tuple(sorted(uids)), detail=detail, is_bound=is_bound)


def struck(hold: Hold, policy: GatePolicy, now: float, strikes: Collection[Strike]) -> Hold:
    """Return what is remembered after one more refusal, by however many words: one for each party and reason.

    The delay is that of whoever has refused most often: a node that refuses once does not make another one's doubt longer.
    """
    found = sorted({strike.blame for strike in strikes})
    known = {**hold.strikes, **{blame: hold.strikes.get(blame, 0) + 1 for blame in found}}
    most = max(known[blame] for blame in found)
    delay = min(policy.strike_max_seconds, policy.strike_seconds * 2.0 ** min(most - 1, 32))
    return dataclasses.replace(
        hold,
        strikes=codec.freeze(known),
        refused_by=found[-1],
        struck_at=now,
        not_before=max(hold.not_before, now + delay),
        blamed=hold.blamed | {strike.uid for strike in strikes},
    )


def faded(hold: Hold, policy: GatePolicy, now: float) -> Hold:
    """Forget what was refused long ago."""
    if not hold.strikes or now - hold.struck_at <= policy.strike_memory_seconds:
        return hold
    return forgiven(hold)


def forgiven(hold: Hold) -> Hold:
    """Forget all refusals."""
    return dataclasses.replace(hold, strikes=codec.EMPTY, refused_by="", not_before=0.0)


def is_rejection(pod: KubePod) -> bool:
    """Return whether the kubelet refused the pod before any container of it started."""
    is_refusal = pod.reason in REJECTIONS or pod.reason.startswith("OutOf")
    return pod.phase is kube.PodPhase.FAILED and is_refusal and not has_started(pod)


def has_started(pod: KubePod) -> bool:
    """Return whether a container of the pod runs or has run; init containers count."""
    if pod.restarts or pod.phase in (kube.PodPhase.RUNNING, kube.PodPhase.SUCCEEDED):
        return True
    return any(
        container.state in (kube.ContainerState.RUNNING, kube.ContainerState.TERMINATED) for container in pod.containers
    )


def _rejected(group: Group, hold: Hold) -> list[Strike]:
    return [
        Strike(
            party=f"node {pod.node}",
            reason=pod.reason,
            detail=pod.message[:256],
            node=pod.node,
            uid=pod.uid,
            lease_id=hold.seats[pod.uid].lease_id,
        )
        for pod in group.ended
        if pod.uid in hold.seats and pod.uid not in hold.blamed and is_rejection(pod)
    ]


def _unpulled(
    live: Iterable[KubePod], group: Group, hold: Hold, policy: GatePolicy, now: float
) -> tuple[Hold, list[Strike]]:
    """Return the members that cannot pull, if none of the gang has started: a gang that runs is never sent back.

    It counts from the first pull that failed: one that takes half an hour and then fails has failed once. A member that
    needs no device has no seat, and may be the one that runs.
    """
    pods = [*live, *(pod for pod in group.ended if pod.uid in hold.seats)]
    if any(has_started(pod) for pod in (*pods, *(member.pod for member in group.members))):
        return hold, []
    stuck = {pod.uid: container for pod in pods if (container := _stuck(pod)) is not None}
    # The kubelet says meanwhile that it is creating the container, and fails again.
    since = {pod.uid: hold.unpulled.get(pod.uid, now) for pod in pods if pod.uid in hold.unpulled.keys() | stuck.keys()}
    if since != hold.unpulled:
        hold = dataclasses.replace(hold, unpulled=codec.freeze(since))
    return hold, [
        # The registry's fault as likely as the node's: no node is blamed.
        Strike(
            party=f"image pull on {pod.node}",
            reason=stuck[pod.uid].reason,
            detail=stuck[pod.uid].message[:256],
            uid=pod.uid,
            lease_id=hold.seats[pod.uid].lease_id,
        )
        for pod in pods
        if pod.uid in stuck and now - since[pod.uid] > policy.pull_patience_seconds
    ]


def _stuck(pod: KubePod) -> kube.Container | None:
    """Return the container that waits for an image which does not come."""
    if not pod.node or pod.is_finished:
        return None
    waiting = (each for each in pod.containers if each.state is kube.ContainerState.WAITING)
    return next((each for each in waiting if each.reason in PULL_FAILURES), None)


def _unbound(group: Group, hold: Hold, policy: GatePolicy, now: float) -> list[Strike]:
    """Return the members that nobody has bound for long, those that were counted before among them."""
    strikes = []
    for pod in (member.pod for member in group.members):
        seat = hold.seats.get(pod.uid)
        # A pod that still has a gate of ours was not let go: its patch is on the way, or was refused and is counted there.
        if seat is None or pod.node or pod.gates:
            continue
        if now - seat.at <= policy.bind_patience_seconds:
            continue
        # A scheduler that has not looked since leaves the word that stood there while the pod was held.
        scheduled = next(
            (each for each in pod.conditions if each.type == "PodScheduled" and each.reason != _HELD), None
        )
        strikes.append(
            Strike(
                party=f"scheduler {pod.scheduler or DEFAULT_SCHEDULER}",
                reason=scheduled.reason if scheduled is not None and scheduled.reason else "NotBound",
                detail=scheduled.message[:256] if scheduled is not None else "",
                uid=pod.uid,
                lease_id=seat.lease_id,
            )
        )
    return strikes
