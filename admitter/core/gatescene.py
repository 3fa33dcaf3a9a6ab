"""Put together what one step of a group looks at, from the pods, the objects above them, the queue and the clocks.

Input: everything as it is now. Output: a Scene (gates.py).

Invariant: stamps of the API server are ages by its clock's difference to ours, never in the future: a clock that runs ahead
makes nobody older than a gang that has just asked.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence

from admitter.core import deadlines, gates, grouprequest, groups, podplaces, predicates, rollouts
from admitter.core.kin import Kin
from admitter.core.rollouts import Holdings
from admitter.model.cluster import KubeNode, KubePod, Owner
from admitter.model.group import Group, Workloads
from admitter.model.hold import GatePolicy, Hold
from admitter.model.record import GangRecord, GangState
from muster.model import codec, labels


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The same moment by the admitter's monotonic clock and by the wall."""

    now: float
    utc: datetime.datetime

    def of(self, stamp: datetime.datetime | None) -> float | None:
        """Return a stamp of the API server by the monotonic clock."""
        return None if stamp is None else self.now - max(0.0, (self.utc - stamp).total_seconds())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the steps of all groups have in common, at one moment."""

    workloads: Workloads
    known: Mapping[str, str]
    """Lease id -> request id."""
    kin: Kin
    holdings: Holdings
    moment: Moment
    nodes: Mapping[str, KubeNode] = codec.mapping()
    is_busy: Callable[[str], bool] = lambda _: False
    """Whether a request is on its way for a pod."""
    grants_on: Callable[[str], bool] = bool
    """Whether the queue would lease anything new on a node: its agent speaks, and nothing bars it."""


def assemble(
    key: str, pods: Sequence[KubePod], look: Look, *, record: GangRecord | None, hold: Hold, policy: GatePolicy
) -> gates.Scene:
    """Return the scene of a group."""
    workloads, moment = look.workloads, look.moment
    place = groups.place(pods[0], workloads) if pods else None
    group = groups.group(place, pods, workloads) if place is not None else groups.empty(key)
    owners = {pod.uid: groups.owner(pod, workloads) for pod in pods}
    # What an earlier run under the same name has left says nothing of this one.
    present = [member.pod for member in group.members] or pods
    above = {owner.uid if owner is not None else "": owner for owner in (owners[pod.uid] for pod in present)}
    single = next(iter(above.values())) if len(above) == 1 else None
    waits = record is not None and record.state is GangState.WAITING
    return gates.Scene(
        group=group,
        record=record,
        request_of=look.known,
        owners=owners,
        kin=lambda owner: look.kin.of(owner, group.namespace),
        owner_runtime=_runtime(single, workloads),
        handlers=workloads.handlers,
        born=_known({pod.uid: moment.of(pod.created_at) for pod in pods}),
        began=_known({pod.uid: moment.of(pod.started_at) for pod in pods}),
        self_block=_self_block(group, record, policy, look.holdings) if waits else "",
        deadline=deadlines.deadline(group, single, workloads, moment.utc, look.kin) if waits else None,
        maker=deadlines.maker(hold.paused, workloads, group.namespace) if hold.paused is not None else None,
        barrier=lambda pod, node: barrier(pod, node, look),
        is_busy=look.is_busy,
        now=moment.now,
    )


def barrier(pod: KubePod, name: str, look: Look) -> str:
    """Return why a pod is not to be pinned to a node as it is now: a scheduler would never bind it there; empty: it may be."""
    node = look.nodes.get(name)
    if node is None:
        return "is not there"
    if not podplaces.is_ready(node):
        return "is not Ready"
    if not look.grants_on(name):
        return "has an agent that is silent, or is closed for new leases"
    refusal = predicates.taint_refusal(
        pod.constraints.tolerations, node.object.taints, is_cordoned=node.object.unschedulable
    ) or predicates.label_refusal(pod.constraints, name, node.object.labels)
    return f"refuses it: {refusal.detail}" if refusal is not None else ""


def _known(stamps: Mapping[str, float | None]) -> dict[str, float]:
    return {uid: at for uid, at in stamps.items() if at is not None}


def _runtime(owner: Owner | None, workloads: Workloads) -> str:
    """Return how long the owner of all pods says that it runs."""
    job = workloads.jobs.get(owner.uid) if owner is not None else None
    return job.annotations.get(labels.MAX_RUNTIME.full, "") if job is not None else ""


def _self_block(group: Group, record: GangRecord | None, policy: GatePolicy, holdings: Holdings) -> str:
    """Return why the group waits for its own older pods; empty: it does not."""
    if record is None or record.why is None or not group.members:
        return ""
    first = group.members[0].pod
    devices = [name for name in first.requests if grouprequest.is_device(name, policy.devices)]
    if rollouts.rollout(first) is None or len(devices) != 1:
        return ""
    lacking = record.why.needed_units - record.why.available_units
    return rollouts.self_blocked((member.pod for member in group.members), holdings, devices[0], lacking)
