"""Say why a gang waits: one reason, one line, and the nodes that were refused.

Input: the gang, the shortfall of the podset that found no place, its position. Output: an Explanation.

Invariant: every refused node is named, or counted with its reason; the text is sorted and bounded, so that the same state
always reads the same. "Never" is said only of what no known node could change by becoming free or well.

Not here: how long it has waited (the reader of the line adds it: `waited`), and what would have to change.
"""

import collections
import dataclasses

from admitter.model.decision import Explanation, Policy, Shortfall
from admitter.model.gang import Gang, GpuRequest, Level, MigRequest, Podset, ResourceRequest
from admitter.model.queue import Reservation, runtime_seconds
from admitter.model.standing import Standing
from muster.model.vocabulary import WaitReason

_NAMED_IN_LINE = 5
"""Nodes in the one line; the structure lists more."""


def shortfall(gang: Gang, short: Shortfall, position: int) -> Explanation:
    """Explain a gang for which there is no place now."""
    podset = next(podset for podset in gang.podsets if podset.name == short.podset)
    return _short(gang, short, position, _reason(podset, short), f"{_found(podset, short)}; position {position}")


def head(gang: Gang, short: Shortfall, position: int, policy: Policy, kept: Reservation | None) -> Explanation:
    """Explain the first blocked gang, for which a place is kept."""
    plain = shortfall(gang, short, position)
    if kept is None:
        return plain
    nodes = tuple(sorted({place.node for place in kept.placements}))
    more = f" and {len(nodes) - _NAMED_IN_LINE} more" if len(nodes) > _NAMED_IN_LINE else ""
    until = "" if kept.starts_at is not None else ", as far as they are free: not every gang there says when it ends"
    return dataclasses.replace(
        plain,
        summary=f"{plain.summary}; kept for it: {', '.join(nodes[:_NAMED_IN_LINE])}{more}{until}",
        reserved=nodes[: policy.named_nodes],
        changes_at=kept.starts_at,
    )


def never(gang: Gang, short: Shortfall, position: int) -> Explanation:
    """Explain a gang that no set of the known nodes could hold, were they all free and well."""
    podset = next(podset for podset in gang.podsets if podset.name == short.podset)
    reason = _reason(podset, short)
    if reason is WaitReason.NO_SUCH_RESOURCE:
        return shortfall(gang, short, position)
    summary = f"can never fit on the nodes that are known, free or not: {_found(podset, short)}"
    return _short(gang, short, position, WaitReason.NEVER_FITS, summary)


def unknown_level(gang: Gang, level: str, position: int, policy: Policy) -> Explanation:
    """Explain a gang that asks for a topology level which nobody has configured."""
    known = ", ".join((*Level, *(entry.name for entry in policy.levels)))
    return Explanation(
        reason=WaitReason.NEVER_FITS,
        summary=f"asks for topology level {level[:63]}, which is none of {known}; position {position}",
        position=position,
        needed_units=_units(gang),
    )


def behind(gang: Gang, first: Gang, position: int, kept: Reservation | None = None) -> Explanation:
    """Explain a gang that would fit, on units that are kept for the first blocked one."""
    hint = ""
    if kept is not None and kept.starts_at is not None and runtime_seconds(gang) is None:
        hint = "; a gang that says how long it runs may pass"
    return Explanation(
        reason=WaitReason.BEHIND_OTHERS,
        summary=f"needs {_need(gang)}; would take units kept for {first.full_name}{hint}; position {position}",
        position=position,
        needed_units=_units(gang),
        available_units=_units(gang),
        changes_at=kept.starts_at if kept is not None else None,
    )


def deep(gang: Gang, depth: int, position: int) -> Explanation:
    """Explain a gang so far back that the pass did not come to it."""
    return Explanation(
        reason=WaitReason.BEHIND_OTHERS,
        summary=f"needs {_need(gang)}; behind {depth} other kinds of gangs, not tried yet; position {position}",
        position=position,
        needed_units=_units(gang),
    )


def over_limit(gang: Gang, leased: int, limit: int, position: int) -> Explanation:
    """Explain a gang that would take its namespace over its limit."""
    return Explanation(
        reason=WaitReason.NAMESPACE_LIMIT,
        summary=(
            f"needs {_need(gang)}; namespace {gang.namespace} holds {leased} of {limit} GPUs that it may; "
            f"position {position}"
        ),
        position=position,
        needed_units=_units(gang),
        available_units=max(0, limit - leased),
    )


def on_strike(gang: Gang, standing: Standing, position: int) -> Explanation:
    """Explain a gang that waits because what it was given was refused."""
    return Explanation(
        reason=WaitReason.ON_STRIKE,
        summary=(
            f"needs {_need(gang)}; refused {standing.strikes} times, last by {standing.refused_by or 'nobody named'}; "
            f"position {position}"
        ),
        position=position,
        needed_units=_units(gang),
        changes_at=standing.not_before,
    )


def new_term(
    gang: Gang, position: int, opens_at: float | None, detail: str, reason: WaitReason = WaitReason.NEW_TERM
) -> Explanation:
    """Explain a gang that waits for a new term to have heard from everyone who was promised something, or for a pause."""
    return Explanation(
        reason=reason,
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


def _short(gang: Gang, short: Shortfall, position: int, reason: WaitReason, summary: str) -> Explanation:
    return Explanation(
        reason=reason,
        summary=f"needs {_need(gang)}; {summary}",
        position=position,
        needed_units=_units(gang),
        available_units=short.units_admissible,
        excluded=short.excluded,
        excluded_more=short.excluded_more,
        reasons=short.reasons,
        best_domain=short.best_domain,
    )


def _found(podset: Podset, short: Shortfall) -> str:
    return (
        f"{_domain(podset, short)}{short.units_admissible} admissible on "
        f"{short.nodes_usable} of {short.nodes_seen} nodes{_nodes(short)}"
    )


def _reason(podset: Podset, short: Shortfall) -> WaitReason:
    reasons = short.reasons.keys() - {"NoSuchResource"}
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


def _nodes(short: Shortfall) -> str:
    """Return the refused nodes that have the resource: some by name, the rest by reason."""
    telling = [exclusion for exclusion in short.excluded if exclusion.reason != "NoSuchResource"]
    named = telling[:_NAMED_IN_LINE]
    words = [f"{exclusion.node} {exclusion.detail or exclusion.reason}" for exclusion in named]
    rest = collections.Counter(short.reasons)
    rest.subtract(exclusion.reason for exclusion in named)
    del rest["NoSuchResource"]
    if more := rest.total():
        counts = (f"{count} {reason}" for reason, count in sorted(rest.items(), key=lambda pair: (-pair[1], pair[0])))
        words.append(f"{more} more ({', '.join(part for part in counts if not part.startswith('0 '))})")
    return ": " + ", ".join(words) if words else ""
