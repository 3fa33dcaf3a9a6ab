"""A Job's own deadline runs from its start, held or not: while it waits it is suspended, and its clock stands still.

Input: a group that waits, the object that makes its pods, the clock. Output: Pause and Resume, or, where it cannot be
suspended, the words that say what the wait eats.

Invariants: only what makes every pod of the group and no other is suspended, and only while every pod of it is held and none
is bound: nothing that may run is touched. The question stays in the queue meanwhile; with the lease the pods come back, and
take its places. Whoever finds one suspended that nobody waits for resumes it.

Why not before there is a reason to wait: a gang that finds its place at once would lose its pods for nothing.
"""

import dataclasses
import datetime
from collections.abc import Iterable

from admitter.core import lifecycle
from admitter.core.kin import Kin
from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Group, Source, Workloads
from admitter.model.hold import GatePolicy, Hold, HoldReason, Intent, Pause, Resume, Told, Withdraw
from admitter.model.record import GangRecord, GangState

AGAIN_SECONDS = 10.0
"""Between two tries to suspend."""
MAX_PAUSES = 2
"""Then whoever takes our word back may have it so: each try costs all the pods, and they would come and go for ever."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The deadline that runs while the group is held."""

    seconds: int
    gone_seconds: float
    owner: Owner | None
    """What is suspended to stop it; None: nothing can be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What makes the pods of a group whose pods were suspended away."""

    is_there: bool
    is_suspended: bool


def deadline(
    group: Group, owner: Owner | None, workloads: Workloads, utc: datetime.datetime, kin: Kin
) -> Deadline | None:
    """Return the shortest deadline of the Jobs that make a group's pods; `owner` is the topmost object of all of them."""
    jobs = [
        workloads.jobs[mine.uid]
        for member in group.members
        if (mine := member.pod.controller) is not None and mine.uid in workloads.jobs
    ]
    running = [
        (job.active_deadline_seconds, (utc - job.started_at).total_seconds() if job.started_at is not None else 0.0)
        for job in jobs
        if job.active_deadline_seconds is not None
    ]
    if not running:
        return None
    seconds, gone = min(running, key=lambda each: each[0] - each[1])
    return Deadline(
        seconds=seconds, gone_seconds=max(0.0, gone), owner=owner if _makes_all(owner, group, workloads, kin) else None
    )


def maker(owner: Owner, workloads: Workloads, namespace: str) -> Maker:
    """Return how the object stands now."""
    found = workloads.jobs.get(owner.uid) or workloads.job_sets.get(f"{namespace}/{owner.name}")
    if found is None or found.uid != owner.uid or found.is_finished:
        return Maker(is_there=False, is_suspended=False)
    return Maker(is_there=True, is_suspended=found.is_suspended)


def _makes_all(owner: Owner | None, group: Group, workloads: Workloads, kin: Kin) -> bool:
    """Return whether the object makes this group's pods and no others."""
    if owner is None or {pod.uid for pod in kin.of(owner, group.namespace)} - {each.pod.uid for each in group.members}:
        return False
    job, whole = workloads.jobs.get(owner.uid), workloads.job_sets.get(f"{group.namespace}/{owner.name}")
    if job is not None:
        # What another controller makes is that one's to suspend, and it would take our word back.
        is_alone = not any(each.is_controller and each.kind != "CronJob" for each in job.owners)
        return is_alone and not job.is_finished and not job.is_managed and len(group.members) == job.parallelism
    if whole is None or whole.uid != owner.uid or whole.is_managed:
        return False
    return group.source is Source.JOB_SET and not whole.is_in_order


def is_held(pods: Iterable[KubePod], gate: str) -> bool:
    """Return whether all pods carry our gate: none of them can start."""
    return all(gate in pod.gates and not pod.node for pod in pods)


def hold_clock(
    group: Group, hold: Hold, found: Deadline | None, policy: GatePolicy, now: float
) -> tuple[Hold, Intent | Told | None]:
    """Stop the clock of a group that waits, or return what to say about it."""
    if found is None:
        return hold, None
    can_stop = is_held((member.pod for member in group.members), policy.gate)
    if found.owner is not None and can_stop and not group.ended and not hold.cannot_pause:
        if hold.paused is not None and now - hold.paused_at < AGAIN_SECONDS:
            return hold, None
        if hold.pauses < MAX_PAUSES:
            hold = dataclasses.replace(hold, paused=found.owner, paused_at=now, pauses=hold.pauses + 1)
            return hold, Pause(owner=found.owner)
        hold = dataclasses.replace(hold, paused=None)
    if hold.is_warned:
        return hold, None
    text = (
        f"activeDeadlineSeconds {found.seconds} runs while it is held, and cannot be stopped: {found.gone_seconds:.0f} s are "
        f"gone, and each further second of the wait is one less of {max(0.0, found.seconds - found.gone_seconds):.0f}"
    )
    return dataclasses.replace(hold, is_warned=True), Told(reason=HoldReason.DEADLINE_RUNS, summary=text)


def follow_paused(
    hold: Hold, record: GangRecord | None, found: Maker, policy: GatePolicy, now: float
) -> tuple[Hold, tuple[Intent, ...]]:
    """Take the next step of a group whose pods are away because what makes them is suspended."""
    assert hold.paused is not None
    is_asked = record is not None and record.state is not GangState.ENDED and record.gang.request_id == hold.request_id
    withdrawal = (Withdraw(detail="what makes its pods is gone"),) if is_asked else ()
    if not found.is_there:
        return Hold(strikes=hold.strikes, struck_at=hold.struck_at, not_before=hold.not_before), withdrawal
    resume = (Resume(owner=hold.paused),) if found.is_suspended else ()
    if not is_asked:
        # The queue has ended it: it asks again once its pods are there.
        return dataclasses.replace(hold, paused=None, request_id="", joined=frozenset()), resume
    assert record is not None
    if record.state is GangState.WAITING:
        return hold, ()
    if not resume and lifecycle.leased_for(record, now) > policy.bind_patience_seconds:
        late = Withdraw(detail="its pods did not come back")
        return dataclasses.replace(hold, paused=None, request_id="", joined=frozenset()), (late,)
    return hold, resume
