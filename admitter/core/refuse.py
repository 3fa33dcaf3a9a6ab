"""Say how far a podset is from a place: what there is, and for each node that has no room for a single pod, why.

Input: a question, its rooms, the supply. Output: a Shortfall.

Invariant: every row without room has exactly one reason; the first of them by name are told whole, and all are counted.

Why codes: a queue of blocked gangs asks this of 5,000 nodes on every pass. Reasons are counted by column, and put into
words for the few nodes that are named.
"""

import collections
from collections.abc import Iterator

import numpy as np

from admitter.core import domains, fit
from admitter.core.fit import NOTHING_USED, Question, Rooms, Used
from admitter.core.marks import REFUSALS
from admitter.core.supply import Supply
from admitter.core.table import Mask, Numbers
from admitter.model.decision import Exclusion, Policy, Shortfall
from admitter.model.gang import GpuRequest, MigRequest
from muster.model import codec

NO_SUCH_RESOURCE = "NoSuchResource"
TOPOLOGY = "Topology"
TOO_SMALL = "TooSmall"
INSUFFICIENT = "Insufficient"
TAKEN = "Taken"
"""Given to others, or set aside for them, in the same pass."""
WRONG_SHAPE = "WrongShape"
REPLICAS = "Replicas"
NUMA = "NumaAlignment"

_WORDS = {
    WRONG_SHAPE: "MIG instances, not whole GPUs",
    REPLICAS: "replicas of shared GPUs; class is not shared",
    NO_SUCH_RESOURCE: "not on this node",
    TAKEN: "leased in this pass, or kept for others",
}


def fits(asked: Question, rooms: Rooms, supply: Supply, policy: Policy) -> bool:
    """Return whether a podset finds a place if the rest of its gang takes nothing."""
    if asked.level == domains.EVERYTHING:
        return int(rooms.pods.sum()) >= asked.podset.count
    codes = domains.of_level(asked.level, asked.resource, supply.table, policy).codes
    return bool(np.bincount(codes, weights=rooms.pods).max(initial=0) >= asked.podset.count)


def shortfall(asked: Question, rooms: Rooms, supply: Supply, policy: Policy, used: Used = NOTHING_USED) -> Shortfall:
    """Say how near the nearest domain came, and which nodes have no room."""
    found = domains.of_level(asked.level, asked.resource, supply.table, policy)
    sums = np.bincount(found.codes, weights=rooms.pods) if len(found.codes) else np.zeros(1)
    placed = int(sums.max())
    best = ""
    if asked.level != domains.EVERYTHING and placed:
        best = found.name(int(np.flatnonzero(sums[found.codes] == placed)[0]))
    codes = reasons(asked, rooms, supply)
    out = np.flatnonzero(codes >= 0)
    texts = supply.table.texts.texts
    counts = collections.Counter(
        {texts[code]: int(number) for code, number in enumerate(np.bincount(codes[out])) if number}
    )
    usable, named = int((codes < 0).sum()), out[: policy.named_nodes]
    return Shortfall(
        podset=asked.podset.name,
        placed=placed,
        units_admissible=int(rooms.units[codes < 0].sum()),
        nodes_usable=usable,
        nodes_seen=len(codes) - counts[NO_SUCH_RESOURCE],
        best_domain=best,
        excluded=tuple(_exclusions(asked, supply, named, codes[named], used)),
        excluded_more=max(0, len(out) - policy.named_nodes),
        reasons=codec.freeze(counts),
    )


def reasons(asked: Question, rooms: Rooms, supply: Supply) -> Numbers:
    """Return for each row why it has no room, as a code of the table's texts; -1: it has room."""
    table, code = supply.table, supply.table.texts.code
    result = np.full(len(table.names), code(NO_SUCH_RESOURCE), dtype=np.int64)
    main = np.zeros_like(result)
    for option in reversed(rooms.options):
        traits = table.traits.get(option.resource)
        may = fit.usable(asked, table, option.resource)
        if traits is not None and not isinstance(asked.podset.request, MigRequest):
            result = np.where(traits.is_reported & ~may, code(REPLICAS), result)
            if isinstance(asked.podset.request, GpuRequest):
                result = np.where(traits.is_reported & ~traits.is_whole, code(WRONG_SHAPE), result)
        holds = fit.holds_level(asked, table, option.resource)
        result = np.where(may & ~holds, code(TOPOLOGY), result)
        own = np.full_like(result, code("Full")) if traits is None else traits.reason
        start = supply.start.column(option.resource, takes_risk=asked.takes_risk)
        own = np.where(start > 0, code(TAKEN), own)
        if traits is None:
            result = np.where(~may & _is_there(supply, option.resource), own, result)
        has = may & holds
        result = np.where(has & (option.units == 0), own, result)
        narrow = np.where(option.units >= asked.podset.units_per_pod, code(NUMA), code(TOO_SMALL))
        result = np.where(has & (option.units > 0), narrow, result)
        main += option.pods
    result = np.where(main > 0, code(INSUFFICIENT), result)
    if table.marks is not None:
        refused = table.marks.refused(asked.podset.constraints)
        words = np.array([code(reason.value) for reason in REFUSALS], dtype=np.int64)
        result = np.where((refused >= 0) & (result != code(NO_SUCH_RESOURCE)), words[refused], result)
    return np.where(rooms.pods > 0, -1, result)


def _is_there(supply: Supply, resource: str) -> Mask:
    """Return the rows that have a resource by the API server, though nothing of it may be left."""
    facts = (supply.nodes[name].facts for name in supply.table.names)
    return np.array([each is not None and each.allocatable.get(resource, 0) > 0 for each in facts], dtype=np.bool_)


def _exclusions(asked: Question, supply: Supply, rows: Numbers, codes: Numbers, used: Used) -> Iterator[Exclusion]:
    """Put the reasons of some rows into words."""
    table = supply.table
    named = fit.candidates(asked, table)
    usable = {resource: fit.usable(asked, table, resource)[rows] for resource in named}
    for place, row in enumerate(rows.tolist()):
        name, reason = table.names[row], table.texts.texts[codes[place]]
        offers = supply.nodes[name].offers
        own = [key for key in named if usable[key][place]] or [key for key in named if key in offers]
        resource = own[0] if own else asked.resource
        offer = offers.get(resource)
        taken = int(used[resource][row]) if resource in used else 0
        left = int(table.column(resource, takes_risk=asked.takes_risk)[row]) - taken if own else 0
        detail = _detail(asked, supply, row, reason, left, used)
        yield Exclusion(
            node=name,
            resource=resource,
            reason=reason,
            detail=detail or (offer.detail if offer is not None else "none left"),
            free=offer.own if offer is not None else 0,
        )


def _detail(asked: Question, supply: Supply, row: int, reason: str, left: int, used: Used) -> str:
    """Return the words for a reason; empty: the offer has its own."""
    match reason:
        case "Topology":
            return f"free devices are not in one {asked.level}"
        case "TooSmall":
            return f"{asked.podset.units_per_pod} a pod, {left} admissible"
        case "NumaAlignment":
            return f"{asked.podset.units_per_pod} a pod, {left} admissible, not within the NUMA nodes that its kubelet asks for"
        case "Insufficient":
            return _lacking(asked, supply, row, used)
    if reason in _WORDS:
        return _WORDS[reason]
    if reason in REFUSALS and supply.table.marks is not None:
        refusal = supply.table.marks.refusal(asked.podset.constraints, row)
        return refusal.detail if refusal is not None else ""
    return ""


def _lacking(asked: Question, supply: Supply, row: int, used: Used) -> str:
    for resource, need in fit.beside(asked, supply.table):
        left = int(supply.table.column(resource)[row]) - (int(used[resource][row]) if resource in used else 0)
        if left < need:
            return f"{resource}: {need} a pod, {max(0, left)} left"
    return "not among the preferred nodes"
