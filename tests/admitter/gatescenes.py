"""Groups of held pods at one moment of their life: waiting, leased, let go, running."""

import dataclasses

from admitter.core import gates, gatescene, groups
from admitter.core.kin import Kin
from admitter.core.rollouts import Holdings
from admitter.model.cluster import KubeNode
from admitter.model.group import Workloads
from admitter.model.hold import GatePolicy, Hold, Open, Release
from admitter.model.lease import Lease, Placement
from admitter.model.record import GangRecord, GangState
from admitter.model.timeline import Stamp, StampedBy, Timeline
from muster.model import kube, labels
from muster.model.reading import Known
from tests.admitter.grouppods import GPU, a_group

POLICY = GatePolicy(bind_patience_seconds=60, strike_seconds=5)
NOW = 1000.0


def a_scene(pods, record=None, now=NOW, workloads=None, beside=(), **more):
    """`beside` are pods of the cluster that are not of the group."""
    workloads = workloads or Workloads()
    kin = Kin(lambda: [*pods, *beside], workloads)
    owners = {pod.uid: groups.owner(pod, workloads) for pod in pods}
    group = a_group(pods, workloads)
    more = {"kin": lambda owner: kin.of(owner, group.namespace), **more}
    return gates.Scene(group=group, record=record, owners=owners, now=now, **more)


def ready(*names, **changes):
    """Nodes that take pods, unless the changes say otherwise."""
    facts = kube.NodeObject(**{"ready": Known(True), "capacity": {}, "allocatable": {}, **changes})
    return {name: KubeNode(name=name, uid=f"uid-{name}", resource_version="1", object=facts) for name in names}


def a_look(pods, workloads, utc, now=NOW, bound=lambda _: ()):
    """All that the groups of one look have in common, where no lease is known."""
    return gatescene.Look(
        workloads=workloads,
        known={},
        kin=Kin(lambda: pods, workloads),
        holdings=Holdings(bound),
        moment=gatescene.Moment(now=now, utc=utc),
        nodes=ready("n1", "n2"),
        grants_on=lambda _: True,
    )


def a_record(gang, state=GangState.WAITING, nodes=(), **changes):
    """Return the queue's record of a gang, leased on these nodes, a pod on each."""
    lease = None
    if nodes:
        places = [
            Placement(podset=podset.name, node=node, resource=GPU, pods=1, units_per_pod=podset.units_per_pod)
            for podset, node in zip([each for each in gang.podsets for _ in range(each.count)], nodes, strict=True)
        ]
        lease = Lease(id="t1-1", term=1, snapshot_version=1, placements=tuple(places))
        state = GangState.LEASED if state is GangState.WAITING else state
    timeline = Timeline(asked=Stamp(at=NOW, by=StampedBy.ADMITTER))
    return GangRecord(gang=gang, owner="gates", arrival=1, timeline=timeline, state=state, lease=lease, **changes)


def opened(pods, workloads=None):
    """Return what is remembered once these pods have asked, and the gang they asked for."""
    hold, (intent,) = gates.step(a_scene(pods, workloads=workloads), Hold(), POLICY)
    assert isinstance(intent, Open)
    return hold, intent.gang


def released(pods, nodes, workloads=None):
    """Return pods that were let go to these nodes, what is remembered and their record."""
    hold, gang = opened(pods, workloads)
    record = a_record(gang, nodes=nodes)
    hold, intents = gates.step(a_scene(pods, record, workloads=workloads), hold, POLICY)
    where = {intent.uid: intent.nodes[0] for intent in intents if isinstance(intent, Release)}
    annotations = {labels.LEASE.full: "t1-1"}
    pods = [
        dataclasses.replace(pod, gates=(), annotations={**pod.annotations, **annotations}) if pod.uid in where else pod
        for pod in pods
    ]
    return pods, where, hold, record


def running(pod, node):
    container = kube.Container(name="main", state=kube.ContainerState.RUNNING)
    return dataclasses.replace(pod, node=node, gates=(), phase=kube.PodPhase.RUNNING, containers=(container,))


def kinds(intents):
    return [type(intent) for intent in intents]
