"""What a kubelet decides about the pods of one node, without the node: admit, reject, report.

In: a Machine (devices, and who holds them) and a Bound pod. Out: a new Machine, and the status that a kubelet would
write. No clock but the argument, no I/O.

Invariant: a device is held by one pod at most, and only a device that is there is given out. What cannot be given
rejects the pod with a real kubelet's words (UnexpectedAdmissionError), and the pod is over: nobody retries it.

Why the devices of a fake node can be lost while the node still advertises them: that gap, up to one status period
long, is where the faults that Muster is about happen (faults.md S1, S13).

Not here: the API server (fakenodes.py). Images, volumes, probes and cgroups do not exist on a fake node.
"""

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any

from lightkube.resources import core_v1

RUN_SECONDS = "fake.muster.dev/run-seconds"
"""Annotation of a pod: how long its containers run. Without it: 0, or for ever where restartPolicy is Always."""
EXIT_CODE = "fake.muster.dev/exit-code"
"""Annotation of a pod: what its containers end with; default 0."""
UNPULLABLE = "fake.muster.dev/unpullable"
"""Annotation of a pod, `true`: its images do not come; it waits until it is deleted."""
LOST = "fake.muster.dev/lost"
"""Annotation of a Node: how many devices are gone, the first ones of the list."""
UNNOTICED = "fake.muster.dev/unnoticed"
"""Annotation of a Node, `true`: its plugin does not see that devices are gone, and node.status goes on promising them."""

KUBELET_VERSION = "v1.35.0-fake"  # the oldest line in versions.py: a kubelet may not be newer than its API server
KILLED = 137
OVER = frozenset({"Succeeded", "Failed"})

_NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"),
    *("containerRuntimeVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a kubelet needs to know about a pod that is bound to its node."""

    uid: str
    namespace: str
    name: str
    node: str
    wanted: int
    """Devices that the containers ask for together."""
    containers: tuple[tuple[str, str], ...]
    """Name and image."""
    phase: str
    is_deleted: bool
    run_seconds: float | None
    """None: until deleted."""
    exit_code: int
    is_unpullable: bool = False

    @property
    def is_over(self) -> bool:
        return self.phase in OVER


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node: its devices in order, how many of the first are lost, and who holds which."""

    name: str
    devices: tuple[str, ...]
    lost: int = 0
    is_unnoticed: bool = False
    """The plugin goes on promising what is lost."""
    held: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Pod UID -> devices."""

    @property
    def present(self) -> tuple[str, ...]:
        return self.devices[self.lost :]

    @property
    def free(self) -> tuple[str, ...]:
        taken = {device for devices in self.held.values() for device in devices}
        return tuple(device for device in self.present if device not in taken)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A pod that the kubelet will not run."""

    reason: str
    message: str


def renew_seconds(nodes: int) -> float:
    """Return how often each of that many nodes renews its lease: as a kubelet does, or 25 a second of them all.

    >>> renew_seconds(4), renew_seconds(1000)
    (10.0, 40.0)
    """
    return max(10.0, nodes / 25)


def grace_seconds(nodes: int) -> float:
    """Return after how long without a renewal the node controller may call one of them lost: five turns, as its default."""
    return 5 * renew_seconds(nodes)


def a_machine(name: str, devices: int) -> Machine:
    """Return a node whose device ids look like NVIDIA's and are the same in every run."""
    ids = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{index}')}" for index in range(devices))
    return Machine(name=name, devices=ids)


def bound(pod: core_v1.Pod, resource: str) -> Bound:
    """Read a pod as the API server gives it."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    assert metadata is not None
    assert spec is not None
    annotations = metadata.annotations or {}
    default = "" if spec.restartPolicy == "Always" else "0"
    seconds = annotations.get(RUN_SECONDS, default)
    return Bound(
        uid=metadata.uid or "",
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        node=spec.nodeName or "",
        wanted=sum(_limit(container, resource) for container in spec.containers),
        containers=tuple((container.name, container.image or "") for container in spec.containers),
        phase=(status.phase if status else None) or "Pending",
        is_deleted=metadata.deletionTimestamp is not None,
        run_seconds=float(seconds) if seconds else None,
        exit_code=int(annotations.get(EXIT_CODE, "0")),
        is_unpullable=annotations.get(UNPULLABLE) == "true",
    )


def _limit(container: Any, resource: str) -> int:
    resources = container.resources
    limits = (resources.limits if resources else None) or {}
    return int(limits.get(resource, "0"))


def admit(machine: Machine, pod: Bound, resource: str) -> tuple[Machine, Rejection | None]:
    """Give the pod its devices, or say why not. A pod that already has them keeps them."""
    if pod.uid in machine.held or pod.wanted == 0:
        return machine, None
    free = machine.free
    if len(free) < pod.wanted:
        # The words of kubelet/cm/devicemanager/manager.go and kubelet/cm/admission/errors.go, 1.37.2.
        lack = f"requested number of devices unavailable for {resource}. "
        lack += f"Requested: {pod.wanted}, Available: {len(free)}"
        message = f"Allocate failed due to {lack}, which is unexpected"
        return machine, Rejection(reason="UnexpectedAdmissionError", message=message)
    return dataclasses.replace(machine, held={**machine.held, pod.uid: free[: pod.wanted]}), None


def lose(machine: Machine, lost: int, *, is_unnoticed: bool = False) -> Machine:
    """Return the machine without its first `lost` devices; pods that hold one keep it (S14)."""
    return dataclasses.replace(machine, lost=lost, is_unnoticed=is_unnoticed)


def release(machine: Machine, uid: str) -> Machine:
    """Take back what a pod held."""
    return dataclasses.replace(machine, held={key: value for key, value in machine.held.items() if key != uid})


def node_object(machine: Machine) -> dict[str, Any]:
    """Return the Node that a kubelet registers."""
    labels = {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    metadata = {"name": machine.name, "labels": {**labels, "muster.dev/fake": "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def is_ready(node: core_v1.Node) -> bool:
    """Return whether the API server has the node as ready."""
    conditions = (node.status.conditions if node.status else None) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def node_status(machine: Machine, resource: str, now: str) -> dict[str, Any]:
    """Return node.status: a lost device stays in the capacity for as long as a plugin calls it unhealthy (S1)."""
    size = {"cpu": "96", "memory": "1024Gi", "ephemeral-storage": "1024Gi", "pods": "110"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "fake kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "capacity": {**size, resource: str(len(machine.devices))},
        "allocatable": {**size, resource: str(len(machine.devices if machine.is_unnoticed else machine.present))},
        "conditions": [ready],
        "addresses": [{"type": "Hostname", "address": machine.name}],
        "nodeInfo": {**dict.fromkeys(_NODE_INFO, "fake"), "kubeletVersion": KUBELET_VERSION},
    }


def running(machine: Machine, pod: Bound, resource: str, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers run; the first container shows the devices, as 1.36 and newer do."""
    health = [{"resourceID": device, "health": "Healthy"} for device in machine.held.get(pod.uid, ())]
    shown = {"allocatedResourcesStatus": [{"name": resource, "resources": health}]} if health else {}
    containers = _containers(pod, {"running": {"startedAt": now}}, ready=True)
    containers[0].update(shown)
    return {
        "phase": "Running",
        "startTime": now,
        "podIP": "127.0.0.1",
        "hostIP": "127.0.0.1",
        "conditions": _conditions("True", now),
        "containerStatuses": containers,
    }


def unpulled(pod: Bound, now: str) -> dict[str, Any]:
    """Return the status of a pod whose images do not come; pkg/kubelet/images."""
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{pod.containers[0][1]}"'}
    return {
        "phase": "Pending",
        "startTime": now,
        "conditions": _conditions("False", now),
        "containerStatuses": _containers(pod, {"waiting": waiting}, ready=False),
    }


def ended(pod: Bound, exit_code: int, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended."""
    reason = "Completed" if exit_code == 0 else "Error"
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": now, "startedAt": now}}
    return {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "conditions": _conditions("False", now),
        "containerStatuses": _containers(pod, state, ready=False),
    }


def rejected(rejection: Rejection) -> dict[str, Any]:
    """Return the status of a pod that was not admitted; kubelet.go rejectPod."""
    message = f"Pod was rejected: {rejection.message}"
    return {"phase": "Failed", "reason": rejection.reason, "message": message}


def _conditions(ready: str, now: str) -> list[dict[str, Any]]:
    status = {"PodReadyToStartContainers": ready, "Initialized": "True", "Ready": ready, "ContainersReady": ready}
    return [{"type": kind, "status": value, "lastTransitionTime": now} for kind, value in status.items()]


def _containers(pod: Bound, state: dict[str, Any], *, ready: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "image": image,
            "imageID": f"fake://{image}",
            "containerID": f"fake://{pod.uid}/{name}",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for name, image in pod.containers
    ]
