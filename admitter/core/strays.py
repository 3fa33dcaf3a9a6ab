"""Pods that were let go under a lease that nobody knows any more, and that nobody has bound: the way back for them.

Input: a group, its own lease or, without one, the leases that are known; what is remembered, the clock. Output: since when each was
seen so; what sends them back.

Invariants: while one of them may still be bound nothing is asked for its gang or let go, since it would go to a place that is not held. None
goes back before it was seen so for as long as a scheduler is given: its node's agent, which keeps the lease, may be on its way. None
goes back while anything that its owner makes stands.

Why they exist: an admitter that was away while their node and its agent went, and a way back that nobody could be asked for.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping

from admitter.core import seats, strikes
from admitter.model.cluster import KubePod, Owner
from admitter.model.group import Group
from admitter.model.hold import GatePolicy, Hold, HoldReason, Replan, Told
from muster.model import codec


def judge(
    group: Group,
    hold: Hold,
    policy: GatePolicy,
    now: float,
    *,
    known: Collection[str],
    owners: Mapping[str, Owner | None],
    kin: Callable[[Owner], Iterable[KubePod]],
) -> tuple[Hold, Told | None, tuple[Replan, ...]]:
    """Return what to remember, what is said of the group meanwhile (None: it may be asked for), and what goes back."""
    pods = [member.pod for member in group.members if _is_astray(member.pod, known)]
    seen = {pod.uid: hold.astray.get(pod.uid, now) for pod in pods}
    if seen != hold.astray:
        hold = dataclasses.replace(hold, astray=codec.freeze(seen))
    if not pods:
        return hold, None, ()
    is_late = any(now - since > policy.bind_patience_seconds for since in seen.values())
    stands = any(map(strikes.stands, strikes.beside(pods, owners, kin)))
    if is_late and stands:
        return hold, None, ()
    first = min(pods, key=lambda pod: pod.name)
    told = Told(
        reason=HoldReason.NOT_BOUND,
        summary=f"{first.name} was let go under a lease that nobody knows any more; it goes back unless it is bound soon",
    )
    detail = f"let go under {seats.lease_of(first)}, which nobody knows, and not bound"
    return hold, told, tuple(strikes.replans(pods, owners, detail, is_bound=False)) if is_late else ()


def _is_astray(pod: KubePod, known: Collection[str]) -> bool:
    lease = seats.lease_of(pod)
    return bool(lease) and lease not in known and not pod.gates and not strikes.stands(pod)
