"""Say why a gang waits: one reason, one line, and the nodes that were refused.

Input: the gang, the shortfall of the podset that found no place, its position. Output: an Explanation.

Invariant: every refused node is named or counted in `excluded_more`; the text is sorted and bounded, so that the same
state always reads the same.

Not here: how long it has waited (the reader of the line adds it: `waited`), and what would have to change.
"""

from collections.abc import Sequence

from admitter.model.decision import Exclusion, Explanation, Policy, Shortfall
from admitter.model.gang import Gang, GpuRequest, MigRequest, Podset, ResourceRequest
from muster.model.vocabulary import WaitReason

_NAMED_IN_LINE = 5
"""Nodes in the one line; the structure lists more."""


def shortfall(gang: Gang, short: Shortfall, position: int, policy: Policy) -> Explanation:
    """Explain a gang for which there is no place now."""
    podset = next(podset for podset in gang.podsets if podset.name == short.podset)
    reason = _reason(podset, short)
    summary = (
        f"needs {_need(gang)}; {_domain(podset, short)}{short.units_admissible} admissible on "
        f"{short.nodes_usable} of {short.nodes_seen} nodes{_nodes(short.excluded)}; position {position}"
    )
    return Explanation(
        reason=reason,
        summary=summary,
        position=position,
        needed_units=_units(gang),
        available_units=short.units_admissible,
        excluded=short.excluded[: policy.named_nodes],
        excluded_more=max(0, len(short.excluded) - policy.named_nodes),
        best_domain=short.best_domain,
    )


def behind(gang: Gang, head: Gang, position: int) -> Explanation:
    """Explain a gang that would fit, on units that the head of the queue could use."""
    return Explanation(
        reason=WaitReason.BEHIND_OTHERS,
        summary=f"needs {_need(gang)}; would take units kept for {head.full_name}; position {position}",
        position=position,
        needed_units=_units(gang),
        available_units=_units(gang),
    )


def new_term(gang: Gang, position: int, opens_at: float | None, detail: str) -> Explanation:
    """Explain a gang that waits for a new term to have heard from everyone who was promised something."""
    return Explanation(
        reason=WaitReason.NEW_TERM,
        summary=f"needs {_need(gang)}; {detail}; position {position}",
        position=position,
        needed_units=_units(gang),
        changes_at=opens_at,
    )


def waited(seconds: float) -> str:
    """Return a time span for a person.

    >>> waited(252.4), waited(3.2), waited(7385)
    ('4m12s', '3s', '2h3m')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    return f"{whole // 3600}h{whole % 3600 // 60}m"


def _reason(podset: Podset, short: Shortfall) -> WaitReason:
    reasons = {exclusion.reason for exclusion in short.excluded} - {"NoSuchResource"}
    if not reasons and not short.nodes_usable:
        return WaitReason.NO_SUCH_RESOURCE
    if podset.topology is not None and podset.topology.required:
        enough = short.units_admissible >= podset.count * podset.units_per_pod
        if enough or reasons == {"Topology"}:
            return WaitReason.TOPOLOGY
    if reasons == {"Stale"}:
        return WaitReason.NODES_STALE
    if reasons == {"Blind"}:
        return WaitReason.NODES_BLIND
    return WaitReason.NOT_ENOUGH_UNITS


def _units(gang: Gang) -> int:
    return sum(podset.count * podset.units_per_pod for podset in gang.podsets)


def _need(gang: Gang) -> str:
    """Return what the gang needs, by kind of unit: `24 GPUs (3x8)`."""
    parts = []
    for noun in sorted({_noun(podset) for podset in gang.podsets}):
        podsets = [podset for podset in gang.podsets if _noun(podset) == noun]
        units = sum(podset.count * podset.units_per_pod for podset in podsets)
        shapes = ", ".join(f"{podset.count}x{podset.units_per_pod}" for podset in podsets[:_NAMED_IN_LINE])
        levels = sorted({podset.topology.level for podset in podsets if podset.topology and podset.topology.required})
        wish = "".join(f", one {level}" for level in levels)
        parts.append(f"{units} {noun} ({shapes}{wish})")
    return " and ".join(parts)


def _noun(podset: Podset) -> str:
    match podset.request:
        case GpuRequest():
            return "GPUs"
        case MigRequest(compute_slices=slices):
            return f"MIG {slices}g"
        case ResourceRequest(name=name):
            return name


def _domain(podset: Podset, short: Shortfall) -> str:
    if podset.topology is None or not podset.topology.required:
        return ""
    if not short.best_domain:
        return f"no {podset.topology.level} has room; "
    return f"best {podset.topology.level} {short.best_domain} takes {short.placed} of {podset.count} pods; "


def _nodes(excluded: Sequence[Exclusion]) -> str:
    telling = [exclusion for exclusion in excluded if exclusion.reason != "NoSuchResource"]
    named = [f"{exclusion.node} {exclusion.detail or exclusion.reason}" for exclusion in telling[:_NAMED_IN_LINE]]
    more = len(telling) - len(named)
    if more:
        named.append(f"{more} more")
    return ": " + ", ".join(named) if named else ""
