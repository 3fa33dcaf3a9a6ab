"""Why no node takes a pod that nothing holds: each node's first obstacle, counted, and the one nearest to a cure first.

In: the pod, every Node with what is bound there, what the agents say. Out: causes, each with the nodes it is about.

Invariants: a node is counted once for each device that the pod asks for. A selector or taint is a cause only where the node
would have room otherwise, and a lack of room only where the pod may go: nobody is sent to widen a selector for nodes that
are full. Text is sorted and bounded. `MOST` devices are looked at, so that who makes a pod does not choose what a question costs.

Why allocatable and not the agents' numbers: this explains the scheduler, which knows no others. Where the agents disagree
with it, that is a cause of its own.
"""

import collections
from collections.abc import Iterator, Mapping

from admitter.core import predicates
from admitter.model.cluster import KubeNode
from admitter.model.nodefacts import NodeFacts
from admitter.model.podstory import PodCause, PodReason, PodScene
from muster.model.reading import Known, Reading
from muster.model.report import Finding, NodeReport
from muster.model.vocabulary import Reason

NVIDIA = "nvidia.com/"
_MIG = f"{NVIDIA}mig-"
_HAS_GPUS = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
"""Labels that say that the hardware is there, whatever is advertised."""
_NAMED = 5
MOST = 4
"""Devices of one pod that are looked at, NVIDIA's before others: real pods ask for one or two."""
_UNREGISTERED = frozenset(
    {Reason.PLUGIN_NOT_REGISTERED, Reason.KUBELET_RESTARTED, Reason.NOT_ADVERTISED, Reason.NODE_STARTING}
)
"""Findings that say that the devices are there and their plugin has not told the kubelet."""

_Found = dict[PodReason, list[tuple[str, str]]]
"""Obstacle -> (node, detail)."""


def devices(requests: Mapping[str, int]) -> dict[str, int]:
    """Return the devices among a pod's requests.

    >>> devices({"cpu": 1000, "nvidia.com/gpu": 8, "example.com/nic": 1, "pods": 1})
    {'example.com/nic': 1, 'nvidia.com/gpu': 8}
    """
    asked = ((name, units) for name, units in requests.items() if units > 0)
    return {name: units for name, units in sorted(asked) if "/" in name and "kubernetes.io/" not in name}


def looked_at(requests: Mapping[str, int]) -> dict[str, int]:
    """Return those of a pod's devices that are looked at.

    >>> looked_at({f"{letter}.example/nic": 1 for letter in "edcba"} | {"nvidia.com/gpu": 8})
    {'a.example/nic': 1, 'b.example/nic': 1, 'c.example/nic': 1, 'nvidia.com/gpu': 8}
    """
    asked = devices(requests)
    chosen = sorted(asked, key=lambda name: (not name.startswith(NVIDIA), name))[:MOST]
    return {name: asked[name] for name in sorted(chosen)}


def causes(scene: PodScene) -> Iterator[PodCause]:
    """Yield why no node takes the pod, device by device."""
    refusals = {name: _refusal(scene, scene.nodes[name]) for name in sorted(scene.nodes)}
    for resource, units in looked_at(scene.pod.requests).items():
        near: _Found = collections.defaultdict(list)
        far: _Found = collections.defaultdict(list)
        fits = False
        for name, refusal in refusals.items():
            node = scene.nodes[name]
            obstacle = _obstacle(scene, node, resource, units)
            if obstacle is not None:
                (near if refusal is None else far)[obstacle[0]].append((name, obstacle[1]))
            elif node.allocatable.get(resource, 0):
                if refusal is not None:
                    near[refusal[0]].append((name, refusal[1]))
                fits = fits or refusal is None
        # Where it fits, this device is not what keeps it off. A node that is full and excluded is news only where there is
        # no better.
        if not fits:
            yield from _told(near or far, resource, units)


def _refusal(scene: PodScene, node: KubeNode) -> tuple[PodReason, str] | None:
    """Return why the pod itself, or a taint, keeps it off a node."""
    constraints = scene.pod.constraints
    refusal = predicates.label_refusal(constraints, node.name, node.object.labels)
    if refusal is not None:
        return PodReason.SELECTOR, refusal.detail
    refusal = predicates.taint_refusal(
        constraints.tolerations, node.object.taints, is_cordoned=node.object.unschedulable
    )
    if refusal is None:
        return None
    is_cordon = refusal.reason is predicates.Refused.CORDONED
    return (PodReason.CORDONED if is_cordon else PodReason.TAINT), refusal.detail


def _obstacle(scene: PodScene, node: KubeNode, resource: str, units: int) -> tuple[PodReason, str] | None:
    """Return why a node has no room; None: it has, or the resource is none of its business."""
    facts, report = scene.facts.get(node.name, NodeFacts()), scene.reports.get(node.name)
    allocatable = node.allocatable.get(resource, 0)
    if allocatable == 0:
        return _absent(node, report, resource)
    free = allocatable - facts.requested.get(resource, 0)
    if free < units:
        return PodReason.IN_USE, f"{max(0, free)} of {allocatable} free"
    return _disbelieved(report, resource, units)


def _absent(node: KubeNode, report: NodeReport | None, resource: str) -> tuple[PodReason, str] | None:
    """Say why a node does not have the resource at all."""
    if resource.startswith(NVIDIA):
        others = sorted(name for name, count in node.allocatable.items() if name.startswith(NVIDIA) and count)
        shapes = [name for name in others if name.startswith(_MIG)]
        if shapes and (resource.startswith(_MIG) or resource == f"{NVIDIA}gpu"):
            return PodReason.MIG_PROFILE, f"offers {', '.join(shapes[:3])}"
        if resource.startswith(_MIG) and f"{NVIDIA}gpu" in others:
            return PodReason.MIG_PROFILE, "offers whole GPUs"
    finding = _unregistered(report, resource)
    if finding is not None:
        return PodReason.NOT_READVERTISED, finding.detail or finding.cause
    if _has_hardware(node, report, resource):
        return PodReason.NODE_WITHOUT_GPUS, "Ready" if is_ready(node) else "not Ready"
    return None


def _unregistered(report: NodeReport | None, resource: str) -> Finding | None:
    if report is None:
        return None
    own = report.resources.get(resource)
    findings = (*(own.findings if own is not None else ()), *report.node_findings)
    return next((each for each in findings if each.reason in _UNREGISTERED and not each.observed), None)


def _has_hardware(node: KubeNode, report: NodeReport | None, resource: str) -> bool:
    """Return whether the node was meant to have the resource: it once did, or the GPUs are seen there."""
    if resource in node.object.capacity or resource in node.object.allocatable:
        return True
    if resource.startswith(NVIDIA) and any(node.object.labels.get(label) == "true" for label in _HAS_GPUS):
        return True
    own = report.resources.get(resource) if report is not None else None
    return own is not None and _is_some(own.present)


def is_ready(node: KubeNode) -> bool:
    """Return whether the kubelet says so."""
    match node.object.ready:
        case Known(value):
            return value
        case _:
            return False


def _is_some(reading: Reading[int]) -> bool:
    match reading:
        case Known(value):
            return value > 0
        case _:
            return False


def _disbelieved(report: NodeReport | None, resource: str, units: int) -> tuple[PodReason, str] | None:
    """Say where the agent denies what the node advertises."""
    own = report.resources.get(resource) if report is not None else None
    if own is None:
        return None
    match own.admit_strict:
        case Known(value) if value >= units:
            return None
        case Known(value):
            words = own.findings[0].detail if own.findings else own.verdict.value
            return PodReason.NOT_USABLE, f"{value} really usable: {words}"[:200]
        case _:
            return PodReason.NOT_USABLE, f"{own.verdict.value}: cannot be seen well enough"


_ORDER: tuple[tuple[PodReason, str, str], ...] = (
    (
        PodReason.NOT_READVERTISED,
        "{nodes} ha{s} {resource} that the device plugin has not advertised again",
        "restart the device plugin's pod there; it must register once with every start of the kubelet",
    ),
    (
        PodReason.NODE_WITHOUT_GPUS,
        "{nodes} should have {resource} and advertise{v} none",
        "look at the device plugin's pod and the driver there; `muster status` has the node's verdict",
    ),
    (
        PodReason.SELECTOR,
        "{nodes} ha{s} room for {units} {resource}, and the pod's selector or affinity excludes {it}",
        "widen the pod's nodeSelector or affinity, or label the node",
    ),
    (
        PodReason.TAINT,
        "{nodes} ha{s} room for {units} {resource}, and a taint keeps the pod off",
        "add the toleration to the pod if it may run there, or cure what the taint is about",
    ),
    (
        PodReason.CORDONED,
        "{nodes} ha{s} room for {units} {resource} and {is} cordoned",
        "uncordon the node when its maintenance is over",
    ),
    (
        PodReason.NOT_USABLE,
        "{nodes} advertise{v} {units} free {resource} that {is} not there",
        "do what `muster status` names for the node; a pod that lands there is refused",
    ),
    (
        PodReason.MIG_PROFILE,
        "{nodes} offer{v} another shape than {resource}",
        "ask for a profile that is offered, or change the node's MIG layout",
    ),
    (
        PodReason.IN_USE,
        "{nodes} ha{s} {resource}, and less than {units} free",
        "wait for its users to end, or add nodes",
    ),
)
"""Nearest to a cure first: what one person can mend at once, then what must be waited for."""


def _told(found: _Found, resource: str, units: int) -> Iterator[PodCause]:
    if not found:
        yield PodCause(
            reason=PodReason.NO_SUCH_RESOURCE,
            summary=f"no node that takes it has {resource}",
            remedy="correct the resource's name, install its device plugin, or add nodes that have it",
        )
    for reason, pattern, remedy in _ORDER:
        nodes = found.get(reason, ())
        if not nodes:
            continue
        is_one = len(nodes) == 1
        head = pattern.format(
            nodes="1 node" if is_one else f"{len(nodes)} nodes",
            resource=resource,
            units=units,
            s="s" if is_one else "ve",
            v="s" if is_one else "",
            it="it" if is_one else "them",
            **{"is": "is" if is_one else "are"},
        )
        named = "; ".join(f"{name}: {detail}" for name, detail in nodes[:_NAMED])
        more = f"; and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        yield PodCause(reason=reason, summary=f"{head}: {named}{more}", remedy=remedy)
