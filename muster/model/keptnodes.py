"""Annotations by which autoscalers are asked to leave a Node alone, and which of them on a Node are Muster's.

Values only: the leader writes them (admitter/core/keepnodes.py), `cleanup` and `muster bypass` take them away.

Invariant: `muster.dev/kept` names those that we have set; one that a person has set is never ours.
"""

from collections.abc import Mapping

from muster.model import labels

ANNOTATIONS: Mapping[str, str] = {
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "karpenter.sh/do-not-disrupt": "true",
}


def is_marked(found: Mapping[str, str]) -> bool:
    """Return whether some of a Node's annotations are ours."""
    return labels.KEPT.full in found


def released(found: Mapping[str, str]) -> dict[str, str | None]:
    """Return the annotations of ours, each to be taken away.

    >>> released({"muster.dev/kept": "karpenter.sh/do-not-disrupt,example.com/x", "karpenter.sh/do-not-disrupt": "true"})
    {'muster.dev/kept': None, 'karpenter.sh/do-not-disrupt': None}
    """
    named = found.get(labels.KEPT.full, "").split(",")
    return {labels.KEPT.full: None, **{key: None for key in named if key in ANNOTATIONS}}
