"""What keeps a group of held pods from being asked for at all, in the order in which it is told.

Input: the group, what is remembered of it, the clock. Output: the words, or None.

Invariant: nobody is asked for before every member is there and every gate that is left is ours, or known to go before ours.
"""

from admitter.model.cluster import KubePod
from admitter.model.group import Group
from admitter.model.hold import GatePolicy, Hold, HoldReason, Told
from muster.model.reading import Known, Unknown


def found(group: Group, hold: Hold, policy: GatePolicy, now: float) -> Told | None:
    """Return what keeps the group from being asked for at all."""
    if group.problems:
        return Told(reason=HoldReason.INVALID_GANG, summary="; ".join(group.problems)[:512])
    match group.wanted:
        case Unknown(reason=reason):
            return Told(reason=HoldReason.INCOMPLETE, summary=f"how many pods it needs is not known: {reason}")
        case Known(value=wanted) if len(group.members) < wanted:
            return Told(reason=HoldReason.INCOMPLETE, summary=f"{len(group.members)} of {wanted} pods exist")
    foreign = sorted({gate for member in group.members for gate in foreign_gates(member.pod, policy)})
    if foreign:
        pods = [member.pod.name for member in group.members if foreign_gates(member.pod, policy)]
        return Told(
            reason=HoldReason.FOREIGN_GATE,
            summary=f"{', '.join(foreign[:4])} on {pods[0]}" + (f" and {len(pods) - 1} more" if len(pods) > 1 else ""),
        )
    if now < hold.not_before:
        return Told(
            reason=HoldReason.ON_STRIKE,
            summary=f"what it was given was refused, {hold.refusals} times so far, last by {hold.refused_by or 'others'}",
        )
    return None


def foreign_gates(pod: KubePod, policy: GatePolicy) -> set[str]:
    """Return the gates that hold a pod back from us."""
    return set(pod.gates) - {policy.gate} - policy.gates_before
