"""Write on pods and what makes them: pins and gates, suspensions, Events. One request each; nothing is decided here.

In: a pod or its owner as it was last seen, and the term it was decided in. Out: `Outcome`, what became of the request; none
raises.

Invariants. A request leaves only while the guard still allows its term. Pin, lease id and gate go in one patch, which names
our gate and no other and carries the pod's UID and resourceVersion: a pod that has changed since is looked at again first.
A pod is deleted only by UID and resourceVersion, so that one that was bound meanwhile stays; one that is on a node ends in its
kubelet's time, never behind its back. What makes pods is suspended only as it was seen.

Why a merge patch of a list by name: the API server deletes the gate with our name wherever it stands; an index could hit
another's.

Not here: when (gateloop.py), on Nodes (nodes.py), and what has to wait for a name to be free (remaking.py).
"""

import copy
import datetime
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lightkube
import structlog
from lightkube import generic_resource
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import events_v1 as events
from lightkube.types import PatchType

from admitter.core import microtime
from admitter.model.cluster import Expression, KubePod, NodeTerm, Owner
from admitter.publish.nodes import CONTROLLER, Failed, Outcome, failure
from admitter.publish.remaking import Remaker
from muster.model import labels
from muster.model.kube import PodPhase

_LOG = structlog.get_logger(__name__)

HOSTNAME = "kubernetes.io/hostname"
SUSPENDED = "suspended"
"""To have its pods made anew at once."""
HELD = "held"
"""Until there is a place for its pods."""
REMADE = "remade"
"""A bare pod that was sent back, by whoever led then: the mark goes with it."""
_JOB_SET = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
_OWNERS: Mapping[str, Any] = {"Job": batch_v1.Job, "JobSet": _JOB_SET}
"""What is suspended and resumed to have its pods made anew."""
_MAX_NOTE = 1024
"""Of an Event's note (events.k8s.io/v1)."""


class PodWriter:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: lightkube.AsyncClient,
        may_write: Callable[[int], bool],
        utc: Callable[[], datetime.datetime],
        *,
        reporter: str,
    ) -> None:
        """`may_write` is the guard's; `reporter` is this admitter's name, which Events show."""
        self._client = client
        self._remaker = Remaker(client)
        self._went_on = -1
        self._may_write = may_write
        self._utc = utc
        self._reporter = reporter

    async def release(self, pod: KubePod, body: Mapping[str, Any], term: int) -> tuple[Outcome, str]:
        """Send what `pinned` returned."""

        async def request() -> None:
            await self._client.patch(
                core.Pod, pod.name, dict(body), namespace=pod.namespace, patch_type=PatchType.STRATEGIC
            )

        return await self._send(term, request)

    async def send_back(self, pod: KubePod, term: int) -> tuple[Outcome, str]:
        """Delete a pod that was let go and not bound; one that nobody makes anew is made anew by us, held.

        The copy is tried first: what the API server would not take again is not deleted. It is made once the name is free
        (remaking.py), which is not waited for; a mark on the one that goes tells the next leader, while it is there.
        """
        if self._remaker.is_waiting(pod.uid):
            return Outcome.DONE, ""
        if pod.controller is None and not self._remaker.has_room(pod.namespace):
            return Outcome.CONFLICT, "bare pods of its namespace that were sent back have still to go"

        async def request() -> None:
            again = None
            if pod.controller is None:
                found = await self._client.get(core.Pod, pod.name, namespace=pod.namespace)
                again = held_copy(found)
                await self._client.create(core.Pod(metadata=_renamed(again.metadata), spec=again.spec), dry_run=True)
            version = pod.resource_version if again is None else await self._mark(pod, pod.resource_version, REMADE)
            try:
                await self._client.create(eviction(pod, version), pod.name, namespace=pod.namespace)
            except exceptions.ApiError:
                # It stays: somebody else may delete it one day, and means it.
                if again is not None:
                    await self._mark(pod, "", None)
                raise
            if again is not None:
                _LOG.warning("a bare pod is made anew", pod=pod.full_name, uid=pod.uid)
                self._remaker.begin(again, pod.uid)

        return await self._send(term, request)

    async def _mark(self, pod: KubePod, seen: str, mark: str | None) -> str:
        """Mark a bare pod as it was at the version `seen`, if any, and return its version after that."""
        metadata: dict[str, Any] = {"uid": pod.uid, "annotations": {labels.REPLAN.full: mark}}
        if seen:
            metadata["resourceVersion"] = seen
        found = await self._client.patch(
            core.Pod, pod.name, {"metadata": metadata}, namespace=pod.namespace, patch_type=PatchType.MERGE
        )
        return (found.metadata.resourceVersion if found.metadata is not None else None) or ""

    def go_on(self, pods: Iterable[KubePod], term: int) -> None:
        """Once in a term: make anew what a leader before us sent back and did not live to make."""
        if term == self._went_on or not self._may_write(term):
            return
        self._went_on = term
        for pod in pods:
            if is_unmade(pod) and not self._remaker.is_waiting(pod.uid):
                _LOG.warning("a bare pod that an earlier leader sent back is made anew", pod=pod.full_name, uid=pod.uid)
                self._remaker.resume(pod, held_copy)

    async def suspend(self, owner: Owner, namespace: str, term: int, version: str) -> tuple[Outcome, str]:
        """Suspend a Job or JobSet as it was seen, with the mark that says that it was us."""
        return await self._set_suspended(owner, namespace, term, SUSPENDED, version)

    async def pause(self, owner: Owner, namespace: str, term: int, version: str) -> tuple[Outcome, str]:
        """Suspend a Job or JobSet as it was seen until there is a place for its pods, with the mark that says so."""
        return await self._set_suspended(owner, namespace, term, HELD, version)

    async def resume(self, owner: Owner, namespace: str, term: int) -> tuple[Outcome, str]:
        """Let it make its pods anew, and take the mark away."""
        return await self._set_suspended(owner, namespace, term, None)

    async def note(
        self, regarding: core_v1.ObjectReference, reason: str, text: str, term: int, *, is_warning: bool
    ) -> tuple[Outcome, str]:
        """Create an Event."""
        now = self._utc()
        mark = hashlib.sha256(f"{regarding.uid}{reason}{text}{now.isoformat()}".encode()).hexdigest()[:16]
        event = events.Event(
            metadata=meta_v1.ObjectMeta(name=f"{(regarding.name or '')[:230]}.{mark}", namespace=regarding.namespace),
            eventTime=microtime.of(now),
            reportingController=CONTROLLER,
            reportingInstance=self._reporter[:128],
            action="Admit",
            reason=reason,
            regarding=regarding,
            note=text[:_MAX_NOTE],
            type="Warning" if is_warning else "Normal",
        )

        async def request() -> None:
            await self._client.create(event)

        return await self._send(term, request)

    async def _set_suspended(
        self, owner: Owner, namespace: str, term: int, mark: str | None, version: str = ""
    ) -> tuple[Outcome, str]:
        metadata: dict[str, Any] = {"uid": owner.uid, "annotations": {labels.REPLAN.full: mark}}
        if version:
            metadata["resourceVersion"] = version
        body = {"metadata": metadata, "spec": {"suspend": mark is not None}}

        async def request() -> None:
            await self._client.patch(
                _OWNERS[owner.kind], owner.name, body, namespace=namespace, patch_type=PatchType.MERGE
            )

        return await self._send(term, request)

    async def _send(self, term: int, request: Callable[[], Any]) -> tuple[Outcome, str]:
        if not self._may_write(term):
            return Outcome.NOT_LEADING, ""
        try:
            await request()
        except Failed as error:
            sent = failure(error)
            return sent.outcome, sent.detail
        return Outcome.DONE, ""


def is_suspendable(owner: Owner | None) -> bool:
    """Return whether pods are made anew by suspending and resuming what makes them."""
    return owner is not None and owner.kind in _OWNERS


def pinned(
    pod: KubePod, nodes: Sequence[str], hostnames: Mapping[str, str], lease_id: str, gate: str
) -> dict[str, Any]:
    """Return the patch that pins a pod to these nodes and takes our gate off it.

    `hostnames` are the hostname labels of the nodes, without those that two nodes share. One node with such a label is
    pinned by the selector, as people do; others by affinity: to the existing terms expressions may be added and no more
    (KEP-3838), so that several nodes without labels cannot be said beside terms of the pod's own.
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": gate}]}
    if len(nodes) == 1 and nodes[0] in hostnames and HOSTNAME not in pod.constraints.node_selector:
        spec["nodeSelector"] = {HOSTNAME: hostnames[nodes[0]]}
    elif nodes:
        terms = [_form(term) for term in _terms(pod.constraints.required, nodes, hostnames)]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    metadata: dict[str, Any] = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    if lease_id:
        metadata["annotations"] = {labels.LEASE.full: lease_id}
    return {"metadata": metadata, "spec": spec}


def _terms(required: Sequence[NodeTerm], nodes: Sequence[str], hostnames: Mapping[str, str]) -> list[NodeTerm]:
    known = all(node in hostnames for node in nodes)
    if not required and not known:
        return [NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=(node,)),)) for node in nodes]
    if known:
        values = tuple(sorted({hostnames[node] for node in nodes}))
        pin = NodeTerm(labels=(Expression(key=HOSTNAME, operator="In", values=values),))
    else:
        # Only one name fits into a field's expression (the API server's validation).
        pin = NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=(nodes[0],)),))
    terms = required or (NodeTerm(),)
    return [NodeTerm(labels=(*term.labels, *pin.labels), fields=(*term.fields, *pin.fields)) for term in terms]


def _form(term: NodeTerm) -> dict[str, Any]:
    named = (("matchExpressions", term.labels), ("matchFields", term.fields))
    return {
        key: [
            {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
            for each in expressions
        ]
        for key, expressions in named
        if expressions
    }


def is_unmade(pod: KubePod) -> bool:
    """Return whether a bare pod goes because it was sent back; one that runs, or is done, goes because somebody wants that.

    A kubelet lets a pod that never ran go as one that failed (since Kubernetes 1.27).
    """
    is_ours = pod.annotations.get(labels.REPLAN.full) == REMADE and pod.controller is None
    return is_ours and pod.deletion_at is not None and pod.phase in (PodPhase.PENDING, PodPhase.FAILED)


def eviction(pod: KubePod, version: str) -> core.PodEviction:
    """Return the request that deletes this pod as it was at that version, and no other.

    An eviction and not a delete: the client's delete takes no preconditions, and a disruption budget is respected.
    """
    return core.PodEviction(
        metadata=meta_v1.ObjectMeta(name=pod.name, namespace=pod.namespace),
        deleteOptions=meta_v1.DeleteOptions(
            # A pod on a node may have started in this moment: it ends as any other does.
            gracePeriodSeconds=None if pod.node else 0,
            preconditions=meta_v1.Preconditions(uid=pod.uid, resourceVersion=version),
        ),
    )


def held_copy(found: core.Pod) -> core.Pod:
    """Return a bare pod as its maker made it, held again: without its place, its status and what the API server added."""
    assert found.metadata is not None
    assert found.spec is not None
    selector = {key: value for key, value in (found.spec.nodeSelector or {}).items() if key != HOSTNAME}
    gates = [gate for gate in found.spec.schedulingGates or () if gate.name != labels.GANG.full]
    spec = copy.copy(found.spec)
    spec.nodeSelector, spec.nodeName = selector or None, None
    spec.schedulingGates = [*gates, core_v1.PodSchedulingGate(name=labels.GANG.full)]
    ours = (labels.LEASE.full, labels.REPLAN.full)
    annotations = {key: value for key, value in (found.metadata.annotations or {}).items() if key not in ours}
    metadata = meta_v1.ObjectMeta(
        name=found.metadata.name,
        namespace=found.metadata.namespace,
        labels=found.metadata.labels,
        annotations=annotations,
        ownerReferences=found.metadata.ownerReferences,
    )
    return core.Pod(metadata=metadata, spec=spec)


def _renamed(metadata: meta_v1.ObjectMeta | None) -> meta_v1.ObjectMeta:
    assert metadata is not None
    return meta_v1.ObjectMeta(
        name=f"{(metadata.name or '')[:240]}-try", namespace=metadata.namespace, labels=metadata.labels
    )
