"""Builders for cluster views, leases and gangs: a test names what it is about and nothing else."""

import datetime

from admitter.model import gang as gangs
from admitter.model.cluster import ANYWHERE
from admitter.model.nodecapacity import ClusterView, Epoch, NodeState
from admitter.model.nodefacts import BoundPod, NodeFacts
from muster.model.lease import NodeLease
from muster.model.reading import Known, Unknown
from muster.model.report import CountedPod, Finding, GpuTopology, NodeReport, ResourceReport, Topology, Verdict, worst

GPU = "nvidia.com/gpu"
NOW = 1000.0
TTL = 15.0
TAKEN = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)


def a_resource(admit=8, *, verdict=None, reason="", lenient=None, risk=0.0, size=8, devices=None, counted=()):
    """A resource of `size` units that admits `admit`; None: it cannot be read."""
    if verdict is None:
        verdict = Verdict.BLIND if admit is None else Verdict.OK
    findings = ()
    if reason:
        findings = (Finding(verdict=verdict, cause=reason, reason=reason, detail=reason),)
    strict = Unknown("PlaneUnreadable") if admit is None else Known(admit)
    return ResourceReport(
        verdict=verdict,
        admit_strict=strict,
        admit_lenient=strict if lenient is None else Known(lenient),
        pick_risk=Known(risk) if admit is not None else Unknown("PlaneUnreadable"),
        capacity=Known(size),
        allocatable=Known(size),
        findings=findings,
        free_devices=tuple(f"GPU-{index}" for index in range(admit or 0)) if devices is None else devices,
        counted=tuple(CountedPod(uid=uid, units=units) for uid, units in counted),
    )


def a_node(
    name,
    resources=8,
    *,
    heard=NOW,
    islands=None,
    clique="",
    leases=(),
    sequence=1,
    boot="boot",
    lease_term=0,
    term=1,
    devices=(),
):
    """A node; `resources` is a number of free GPUs or a mapping of reports. `islands`: island name of each GPU."""
    if not isinstance(resources, dict):
        resources = {GPU: resources if isinstance(resources, ResourceReport) else a_resource(resources)}
    gpus = tuple(
        GpuTopology(uuid=f"GPU-{index}", island=island, clique=clique)
        for index, island in enumerate(islands or ["all"] * 8)
    )
    return NodeState(
        node=name,
        epoch=Epoch(boot_id=boot, start_counter=1),
        sequence=sequence,
        report=NodeReport(
            node=name,
            taken_at=TAKEN,
            verdict=worst(tuple(report.verdict for report in resources.values())),
            resources=resources,
            devices=tuple(devices),
        ),
        topology=Topology(generation=1, gpus=gpus),
        heard_at=heard,
        leases=leases,
        lease_term=lease_term,
        snapshot_term=term,
    )


def a_view(*nodes, version=7, now=NOW, facts=None):
    """A view of nodes; a pair (name, free GPUs) is a node too. `facts`: what the API server says of them, if there is one."""
    states = [node if isinstance(node, NodeState) else a_node(*node) for node in nodes]
    return ClusterView(
        version=version, now=now, node_ttl_seconds=TTL, nodes={state.node: state for state in states}, facts=facts
    )


def some_facts(*, cpu=64_000, pods=110, taints=(), cordoned=False, requested=None, counted=(), policy="", **labels):
    """What the API server says of one node; `counted` are UIDs, or BoundPods by UID."""
    return NodeFacts(
        labels=labels,
        taints=tuple(taints),
        is_cordoned=cordoned,
        allocatable={"cpu": cpu, "pods": pods},
        requested=requested or {},
        counted=counted if isinstance(counted, dict) else dict.fromkeys(counted, BoundPod(namespace="team-a")),
        topology_policy=policy,
    )


def a_podset(
    name="main",
    count=1,
    gpus=1,
    *,
    topology="",
    pod_class="gang",
    request=None,
    requests=None,
    constraints=ANYWHERE,
    runtime=None,
):
    wish = None
    if topology:
        kind, _, level = topology.partition("=")
        wish = gangs.TopologyWish(level=level, required=kind == "required")
    return gangs.Podset(
        name=name,
        count=count,
        request=request or gangs.GpuRequest(gpus=gpus),
        topology=wish,
        pod_class=gangs.PodClass(pod_class),
        requests=requests or {},
        constraints=constraints,
        max_runtime_seconds=runtime,
    )


def a_gang(*podsets, name="train", priority=0, request_id="r1", **podset):
    """A gang of the given podsets, or of one made from the keywords."""
    return gangs.Gang(
        namespace="team-a",
        name=name,
        request_id=request_id,
        priority=priority,
        podsets=podsets or (a_podset(**podset),),
    )


def a_lease(units=1, *, identifier="t1-x-1", uids=(), resource=GPU, units_per_pod=1, gang="team-a/other", **fields):
    return NodeLease(
        id=identifier,
        gang=gang,
        resource=resource,
        units=units,
        pod_uids=tuple(uids),
        units_per_pod=units_per_pod,
        podset="main",
        **fields,
    )


def placed(plan):
    """A grant as {(podset, node): pods}."""
    result = {}
    for placement in plan.placements:
        key = (placement.podset, placement.node)
        result[key] = result.get(key, 0) + placement.pods
    return result
