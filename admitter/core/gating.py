"""Which new pods get our gate: the decision of the webhook, the same as that of the policy in daemonset/gates/policy.yaml.

In: an AdmissionReview as the API server sends it. Out: the review that answers it, with a patch where the gate goes on.

Invariants: a pod is allowed whatever it is: a review that cannot be read is answered too, without a patch. The gate is put on
beside the others, never in their place, and never twice. A pod that is bound already, or a DaemonSet's, is left alone.
"""

import base64
import enum
import json
from collections.abc import Mapping
from typing import Any

from muster.model import labels

_GATES = "/spec/schedulingGates"
_PREFIX = "nvidia.com/"


class Rule(enum.StrEnum):
    """Whose pods are asked about; the API server's selectors have chosen the namespaces."""

    LABELLED = "labelled"
    """Pods with our label, anywhere."""
    MANAGED = "managed"
    """Pods that ask for GPUs, in namespaces of ours."""


def answer(review: Any, rule: Rule) -> dict[str, Any]:
    """Return the AdmissionReview that answers this one."""
    request = _mapping(_mapping(review).get("request"))
    response: dict[str, Any] = {"uid": str(request.get("uid") or ""), "allowed": True}
    pod = _mapping(request.get("object"))
    if is_ours(pod, rule):
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps([_patch(pod)]).encode()).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def is_ours(pod: Mapping[str, Any], rule: Rule) -> bool:
    """Return whether a pod gets the gate."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    is_daemon = any(_mapping(owner).get("kind") == "DaemonSet" for owner in _list(metadata.get("ownerReferences")))
    if not spec or spec.get("nodeName") or is_daemon or labels.GANG.full in _names(spec):
        return False
    match rule:
        case Rule.LABELLED:
            return labels.GANG.full in _mapping(metadata.get("labels"))
        case Rule.MANAGED:
            return any(_asks(_mapping(container)) for container in _list(spec.get("containers")))


def _asks(container: Mapping[str, Any]) -> bool:
    limits = _mapping(_mapping(container.get("resources")).get("limits"))
    return any(str(name).startswith(_PREFIX) for name in limits)


def _patch(pod: Mapping[str, Any]) -> dict[str, Any]:
    gate = {"name": labels.GANG.full}
    if _list(_mapping(pod.get("spec")).get("schedulingGates")):
        return {"op": "add", "path": f"{_GATES}/-", "value": gate}
    return {"op": "add", "path": _GATES, "value": [gate]}


def _names(spec: Mapping[str, Any]) -> set[Any]:
    return {_mapping(gate).get("name") for gate in _list(spec.get("schedulingGates"))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
