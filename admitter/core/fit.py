"""How many pods of a podset one node can take, and on which of its resources.

Input: a podset and a node's offers, less what the same plan has already used. Output: Room, or the Exclusion that says why
not one pod fits.

Invariant: units come from `strict`; `lenient` serves only a gang of one restartable pod. Replicas serve only the class
`shared`. A level is held only if every device that the kubelet may pick satisfies it.

Why one function for both questions: admit.py searches with `room` and checks a standing lease with `room`, so that a
final check can never be weaker than the search (kueue#14437).
"""

import dataclasses
from collections.abc import Mapping, Sequence

from admitter.model.decision import Exclusion
from admitter.model.gang import Gang, GpuRequest, Level, MigRequest, PodClass, Podset, ResourceRequest
from admitter.model.supply import NodeOffers, Offer

Limits = Mapping[tuple[str, str, str], int]
NOTHING_USED: Mapping[tuple[str, str], int] = {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Pods that one resource of the node can take."""

    offer: Offer
    pods: int
    units: int
    """Units it has left, in whole pods or not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a node has for a podset, smallest shape first."""

    node: str
    options: tuple[Option, ...]
    pods: int
    units: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A podset in the terms that `room` needs."""

    podset: Podset
    resource: str
    """The resource that is asked for, in words for a person where several may serve."""
    takes_risk: bool
    level: Level | None
    """The level that must hold."""


def question(gang: Gang, podset: Podset, gpu_resource: str, level: Level | None) -> Question:
    """Return the question that a podset puts to every node."""
    match podset.request:
        case GpuRequest():
            resource = gpu_resource
        case ResourceRequest(name=name):
            resource = name
        case MigRequest(compute_slices=slices):
            resource = f"MIG {slices}g"
    return Question(
        podset=podset,
        resource=resource,
        takes_risk=podset.pod_class is PodClass.RESTARTABLE and gang.pods == 1,
        level=level,
    )


def may_use(asked: Question, offer: Offer) -> str:
    """Return an empty text if the podset may use the offer, whatever its size, or the reason why not."""
    match asked.podset.request:
        case GpuRequest() | ResourceRequest():
            if offer.resource != asked.resource:
                return "NoSuchResource"
            if isinstance(asked.podset.request, GpuRequest) and not offer.whole:
                return "WrongShape"
        case MigRequest(compute_slices=slices, min_memory_bytes=memory):
            if offer.mig is None or offer.mig.compute_slices < slices or offer.mig.memory_bytes < memory:
                return "NoSuchResource"
    if offer.shared and asked.podset.pod_class is not PodClass.SHARED:
        return "Replicas"
    return ""


def domain(asked: Question, node: str, offer: Offer) -> str:
    """Return the domain of the asked level that the offer lies in; empty: in none that would hold."""
    is_one_device = asked.podset.count * asked.podset.units_per_pod == 1
    match asked.level:
        case None:
            return "any"
        case Level.NODE:
            return node
        case Level.ISLAND:
            return f"{node}/{offer.island}" if offer.island or is_one_device else ""
        case Level.CLIQUE:
            return offer.clique or (node if is_one_device else "")


def room(
    asked: Question,
    node: NodeOffers,
    used: Mapping[tuple[str, str], int] = NOTHING_USED,
    *,
    within: str = "",
    limits: Limits | None = None,
) -> Room | Exclusion:
    """Return what the node has for the podset, or why it has nothing.

    `used` are units of (node, resource) that the same plan has taken; `within` names the one domain that counts (empty:
    all); `limits` are the most pods of (podset, node, resource), for a check of given places.
    """
    options = []
    refusals = []
    for offer in _candidates(asked, node):
        resource = offer.resource
        if reason := may_use(asked, offer):
            if reason != "NoSuchResource":
                refusals.append(_refused(node.node, offer, reason, _WORDS[reason]))
            continue
        place = domain(asked, node.node, offer)
        if not place or (within and place != within):
            refusals.append(_refused(node.node, offer, "Topology", f"free devices are not in one {asked.level}"))
            continue
        whole = max(offer.strict, offer.lenient) if asked.takes_risk else offer.strict
        units = max(0, whole - used.get((node.node, resource), 0))
        pods = units // asked.podset.units_per_pod
        if limits is not None:
            pods = min(pods, limits.get((asked.podset.name, node.node, resource), 0))
        if pods:
            options.append(Option(offer=offer, pods=pods, units=units))
        elif units:
            refusals.append(
                _refused(node.node, offer, "TooSmall", f"{asked.podset.units_per_pod} a pod, {units} admissible")
            )
        else:
            refusals.append(_refused(node.node, offer, offer.reason, offer.detail))
    if options:
        return Room(
            node=node.node,
            options=tuple(options),
            pods=sum(option.pods for option in options),
            units=sum(option.units for option in options),
        )
    if refusals:
        return refusals[0]
    return Exclusion(node=node.node, resource=asked.resource, reason="NoSuchResource", detail="not on this node")


_WORDS = {
    "WrongShape": "MIG instances, not whole GPUs",
    "Replicas": "replicas of shared GPUs; class is not shared",
}


def _candidates(asked: Question, node: NodeOffers) -> Sequence[Offer]:
    """Return the offers that may matter, smallest shape first."""
    if isinstance(asked.podset.request, MigRequest):
        return sorted(node.offers.values(), key=_smallest_first)
    named = node.offers.get(asked.resource)
    return () if named is None else (named,)


def _refused(node: str, offer: Offer, reason: str, detail: str) -> Exclusion:
    return Exclusion(node=node, resource=offer.resource, reason=reason, detail=detail, free=offer.own)


def _smallest_first(offer: Offer) -> tuple[int, int, str]:
    shape = offer.mig
    return (shape.compute_slices, shape.memory_bytes, offer.resource) if shape else (0, 0, offer.resource)
