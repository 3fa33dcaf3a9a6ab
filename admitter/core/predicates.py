"""May a pod go on a node at all, as far as the Node object decides it: selectors, affinity, taints, cordons.

Input: a pod's Constraints and one node's labels, taints and cordon. Output: a Refusal, or None.

Invariant: whatever the default scheduler refuses for these is refused here too, for the same reason. A node that an
autoscaler has marked is refused even to a pod that tolerates everything: the node is leaving.

Why one value at a time: marks.py asks once for each distinct value in the fleet, not once for each node, and
an explanation asks again for the one node that it names.

Not here: what pods ask of each other (docs/placement.md lists it), and how much room there is (fit.py).
"""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping

from admitter.model.cluster import Constraints, Expression, NodeTerm, Toleration
from muster.model import kube, labels


class Refused(enum.StrEnum):
    """Which predicate refuses a node, in the order in which they are looked at."""

    NO_NODE_OBJECT = "NoNodeObject"
    LEAVING = "Leaving"
    CORDONED = "Cordoned"
    TAINT = "Taint"
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: Refused
    detail: str


NAME_FIELD = "metadata.name"
CORDON = kube.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What tolerates this taint ignores a cordon, whether or not the taint is there yet."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_HARD = ("NoSchedule", "NoExecute")
_LEAVING = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
    }
)
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", labels.UNTRUSTED.full)
"""Taints that follow a node's state and say nothing about whom it is meant for."""


def passes_by(taint: kube.Taint) -> bool:
    """Return whether a taint may go by itself: it makes a node impossible now, not for ever."""
    return taint.key in _LEAVING or taint.key.startswith(_PASSING)


def taint_refusal(
    tolerations: Iterable[Toleration], taints: Iterable[kube.Taint], *, is_cordoned: bool
) -> Refusal | None:
    """Return why a node's taints or its cordon refuse the pod."""
    taints, tolerations = tuple(taints), tuple(tolerations)
    for taint in taints:
        if taint.key in _LEAVING:
            return Refusal(reason=Refused.LEAVING, detail=f"leaving: taint {taint.key}")
    if is_cordoned and not _tolerated(CORDON, tolerations):
        return Refusal(reason=Refused.CORDONED, detail="cordoned")
    for taint in taints:
        if taint.effect in _HARD and not _tolerated(taint, tolerations):
            value = f"={taint.value}" if taint.value else ""
            return Refusal(reason=Refused.TAINT, detail=f"taint {taint.key}{value}:{taint.effect}")
    return None


def is_unwelcome(tolerations: Iterable[Toleration], taints: Iterable[kube.Taint]) -> bool:
    """Return whether the node would rather not have the pod: an untolerated PreferNoSchedule."""
    tolerations = tuple(tolerations)
    return any(taint.effect == "PreferNoSchedule" and not _tolerated(taint, tolerations) for taint in taints)


def label_refusal(constraints: Constraints, name: str, found: Mapping[str, str]) -> Refusal | None:
    """Return why a node's labels or its name refuse the pod."""
    for key, value in sorted(constraints.node_selector.items()):
        if found.get(key) != value:
            has = f"has {found[key]}" if key in found else "has none"
            return Refusal(reason=Refused.NODE_SELECTOR, detail=f"selector {key}={value}, {has}")
    if constraints.required and not any(term_matches(term, name, found) for term in constraints.required):
        keys = sorted({e.key for term in constraints.required for e in (*term.labels, *term.fields)})
        return Refusal(reason=Refused.NODE_AFFINITY, detail=f"affinity on {', '.join(keys[:3]) or 'nothing'}")
    return None


def term_matches(term: NodeTerm, name: str, found: Mapping[str, str]) -> bool:
    """Return whether all of a term holds; a term that asks for nothing holds nowhere, as in the API."""
    if not term.labels and not term.fields:
        return False
    return all(matches(e, found.get(e.key)) for e in term.labels) and all(
        e.key == NAME_FIELD and matches(e, name) for e in term.fields
    )


def matches(asked: Expression, value: str | None) -> bool:
    """Return whether a label's value (None: the label is not there) fits one requirement; an unknown operator never does.

    >>> matches(Expression(key="gpus", operator="Gt", values=("4",)), "8")
    True
    >>> matches(Expression(key="zone", operator="NotIn", values=("a",)), None)
    True
    """
    match asked.operator:
        case "In":
            return value is not None and value in asked.values
        case "NotIn":
            return value is None or value not in asked.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(asked, value)
    return False


def _compares(asked: Expression, value: str | None) -> bool:
    bound = asked.values[0] if len(asked.values) == 1 else ""
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    return int(value) > int(bound) if asked.operator == "Gt" else int(value) < int(bound)


def _tolerated(taint: kube.Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: kube.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value
