"""What a bypass has to do, from what the API server says: which gates, suspensions, taints and policies are Muster's.

In: a scope, and objects as JSON. Out: steps, each one request with a sentence; and notes: what stays, and why.

Invariants: a gate, a suspension or a taint of somebody else is in no request. A request names the object's UID, or tests what
it removes, so that an object that was made anew under the name is left alone. A plan of a cluster that was bypassed is empty:
whoever was stopped midway does it again.

Not here: any request (kubeproxy.py), the order of passes (bypass.py).
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from muster.cli.kubeproxy import JSON_PATCH, MERGE, STRATEGIC, Request
from muster.model import gangnames, keptnodes, labels

Form = Mapping[str, Any]

_TARGET = re.compile(r"all|namespace/(?P<alone>[^/]+)|gang/(?P<namespace>[^/]+)/(?P<gang>[^/]+)")
_GATES = "/apis/admissionregistration.k8s.io/v1"
PUTS_GATES_ON = {
    f"{_GATES}/mutatingadmissionpolicybindings": ("muster-gates", "muster-gates-managed"),
    f"{_GATES}/mutatingwebhookconfigurations": ("muster-gates",),
}
"""What makes new pods held, by the names of daemonset/gates."""
SUSPENDABLE = {"Job": ("/apis/batch/v1", "jobs"), "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets")}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is to be let go; an empty namespace is the whole cluster, an empty gang the whole namespace."""

    namespace: str = ""
    gang: str = ""

    def __str__(self) -> str:
        if self.gang:
            return f"gang/{self.namespace}/{self.gang}"
        return f"namespace/{self.namespace}" if self.namespace else "all"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request, and what it does."""

    about: str
    """`pod NAMESPACE/NAME`"""
    text: str
    request: Request


def scope_of(target: str) -> Scope | None:
    """Return the scope that a person named.

    >>> str(scope_of("gang/ml/train")), str(scope_of("all")), scope_of("ml")
    ('gang/ml/train', 'all', None)
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    return Scope(namespace=match["alone"] or match["namespace"] or "", gang=match["gang"] or "")


def ungated(pods: Iterable[Form], scope: Scope) -> Iterator[Step]:
    """Yield a step for each pod that is held by our gate."""
    for pod in pods:
        if labels.GANG.full not in _gates(pod) or (scope.gang and scope.gang not in gangnames.of_pod(pod)):
            continue
        metadata = pod["metadata"]
        body = {
            "metadata": {"uid": metadata["uid"]},
            # By name: an index could hit somebody else's gate.
            "spec": {"schedulingGates": [{"$patch": "delete", "name": labels.GANG.full}]},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        foreign = [gate for gate in _gates(pod) if gate != labels.GANG.full]
        stays = f"; still held by {', '.join(foreign)}, which is not Muster's" if foreign else ""
        yield Step(
            about=f"pod {_name(pod)}",
            text=f"lift the gate {labels.GANG.full}{stays}",
            request=Request(method="PATCH", path=path, body=body, kind=STRATEGIC),
        )


def resumed(kind: str, objects: Iterable[Form], scope: Scope) -> Iterator[Step]:
    """Yield a step for each Job or JobSet that Muster has suspended."""
    group, plural = SUSPENDABLE[kind]
    for each in objects:
        metadata = each["metadata"]
        if labels.REPLAN.full not in (metadata.get("annotations") or {}):
            continue
        if scope.gang and scope.gang not in _gangs_of_owner(kind, each):
            continue
        marks = {"uid": metadata["uid"], "annotations": {labels.REPLAN.full: None}}
        yield Step(
            about=f"{kind} {_name(each)}",
            text="resume it: Muster suspended it",
            request=Request(
                method="PATCH",
                path=f"{group}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}",
                body={"metadata": marks, "spec": {"suspend": False}},
                kind=MERGE,
            ),
        )


def untainted(nodes: Iterable[Form]) -> Iterator[Step]:
    """Yield a step for each Node that carries our taint."""
    for node in nodes:
        taints = (node.get("spec") or {}).get("taints") or ()
        for index, taint in enumerate(taints):
            if taint.get("key") != labels.UNTRUSTED.full:
                continue
            path = f"/spec/taints/{index}"
            # The test fails, and nothing is changed, if the list has moved meanwhile.
            patch = [{"op": "test", "path": path, "value": taint}, {"op": "remove", "path": path}]
            yield Step(
                about=f"node {node['metadata']['name']}",
                text=f"remove the taint {labels.UNTRUSTED.full}={taint.get('value', '')}",
                request=Request(
                    method="PATCH", path=f"/api/v1/nodes/{node['metadata']['name']}", body=patch, kind=JSON_PATCH
                ),
            )
            # A second one has another index once this one is gone: the next pass finds it.
            break


def unkept(nodes: Iterable[Form]) -> Iterator[Step]:
    """Yield a step for each Node on which autoscalers were asked, by us, to leave it alone."""
    for node in nodes:
        metadata = node["metadata"]
        annotations = metadata.get("annotations") or {}
        if not keptnodes.is_marked(annotations):
            continue
        ours = keptnodes.released(annotations)
        yield Step(
            about=f"node {metadata['name']}",
            text=f"remove the annotations {', '.join(sorted(ours))}",
            request=Request(
                method="PATCH",
                path=f"/api/v1/nodes/{metadata['name']}",
                body={"metadata": {"uid": metadata["uid"], "annotations": ours}},
                kind=MERGE,
            ),
        )


def disabled(path: str, objects: Iterable[Form]) -> Iterator[Step]:
    """Yield a step for each object of ours at this path that puts the gate on new pods."""
    for each in objects:
        name = each["metadata"]["name"]
        if name in PUTS_GATES_ON[path]:
            yield Step(
                about=f"{each.get('kind') or path.rpartition('/')[2]} {name}",
                text="delete it, so that new pods are not held",
                request=Request(
                    method="DELETE",
                    path=f"{path}/{name}",
                    body={"preconditions": {"uid": each["metadata"]["uid"]}},
                ),
            )


def pinned(pods: Iterable[Form], scope: Scope) -> Iterator[str]:
    """Yield a note for each pod that was let go with a pin and is bound nowhere yet: that pin cannot be taken back."""
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if spec.get("nodeName") or labels.GANG.full in _gates(pod):
            continue
        if labels.LEASE.full not in (metadata.get("annotations") or {}):
            continue
        if scope.gang and scope.gang not in gangnames.of_pod(pod):
            continue
        place = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname", "the nodes of its affinity")
        yield f"pod {_name(pod)} is pinned to {place} and not bound: if it stays so, delete it, for Kubernetes lets no pin be changed"


def still_gated(kind: str, objects: Iterable[Form], scope: Scope) -> Iterator[str]:
    """Yield a note for each Job whose own template carries our gate: what it makes next is held again."""
    for each in objects:
        if scope.gang and scope.gang not in _gangs_of_owner(kind, each):
            continue
        finished = any(
            condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
            for condition in (each.get("status") or {}).get("conditions") or ()
        )
        template = ((each.get("spec") or {}).get("template") or {}).get("spec") or {}
        if not finished and labels.GANG.full in [gate.get("name") for gate in template.get("schedulingGates") or ()]:
            yield f"{kind} {_name(each)} has the gate in its template: run this again when it has made new pods"


def _gangs_of_owner(kind: str, each: Form) -> frozenset[str]:
    metadata = each["metadata"]
    template = ((each.get("spec") or {}).get("template") or {}).get("metadata") or {}
    owned = {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **(template.get("labels") or {})},
            "ownerReferences": [{"controller": True, "kind": kind, "name": metadata["name"]}],
        }
    }
    own = frozenset({f"jobset.{metadata['name']}"}) if kind == "JobSet" else frozenset()
    return own | gangnames.of_pod(owned)


def _gates(pod: Form) -> list[str]:
    return [gate.get("name", "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]


def _name(each: Form) -> str:
    return f"{each['metadata']['namespace']}/{each['metadata']['name']}"
