"""Whom our taint would keep off a node although the node needs it: DaemonSets that serve the node's devices.

Input: DaemonSets and unbound pods as they stand on the API server, a node's name and labels. Output: names.

A DaemonSet serves devices if it mounts a folder of the host in which device plugins and drivers live, or stands in a
namespace that policy names: GPU operators bring up drivers by other ways too. In doubt it serves: to withhold a taint costs
little, to keep the cure out costs the node.

Not here: what follows for the taint (taints.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping

from admitter.core import predicates
from admitter.model.cluster import Constraints, Toleration
from muster.model import kube, labels

EFFECT = "NoSchedule"
HOST_FOLDERS = (
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins",
    "/var/lib/kubelet/plugins_registry",
    "/run/nvidia",
    "/var/run/nvidia",
    "/usr/local/nvidia",
    "/home/kubernetes/bin/nvidia",
)
"""Device plugins, DRA drivers, and where the known operators and clouds put drivers (faults.md A12)."""
KUBELET_FOLDERS = ("/device-plugins", "/plugins_registry")
"""Ends of the kubelet's registration folders, wherever its root is (faults.md A9)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A DaemonSet, as far as it bears on the taint."""

    namespace: str
    name: str
    constraints: Constraints
    host_folders: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod of a DaemonSet that is not bound yet."""

    full_name: str
    daemon: str
    """namespace/name of its DaemonSet."""
    constraints: Constraints
    is_gated: bool = False


def serves_devices(daemon: Daemon, namespaces: frozenset[str]) -> bool:
    """Return whether a DaemonSet may be what brings a node's devices back."""
    if daemon.namespace in namespaces:
        return True
    folders = [folder.rstrip("/") for folder in daemon.host_folders]
    return any(
        folder.endswith(KUBELET_FOLDERS) or f"{folder}/".startswith(tuple(f"{root}/" for root in HOST_FOLDERS))
        for folder in folders
    )


def kept_out(daemons: Iterable[Daemon], node: str, node_labels: Mapping[str, str], verdict: str) -> tuple[str, ...]:
    """Return those of the (device-serving) DaemonSets that belong on the node and do not tolerate the taint."""
    return tuple(
        sorted(
            daemon.full_name
            for daemon in daemons
            if not tolerates(daemon.constraints.tolerations, verdict) and may_go(daemon.constraints, node, node_labels)
        )
    )


def waiting_for(
    pods: Iterable[WaitingPod], daemons: frozenset[str], node: str, node_labels: Mapping[str, str], verdict: str
) -> tuple[str, ...]:
    """Return the pods of those DaemonSets that wait for this node alone, and do not tolerate the taint that is on it."""
    return tuple(
        sorted(
            pod.full_name
            for pod in pods
            if pod.daemon in daemons
            and not pod.is_gated
            and node in _pinned_to(pod.constraints)
            and not tolerates(pod.constraints.tolerations, verdict)
            and may_go(pod.constraints, node, node_labels)
        )
    )


def tolerates(tolerations: Iterable[Toleration], verdict: str) -> bool:
    """Return whether a pod with these tolerations may be placed on a node with our taint of this value."""
    taint = kube.Taint(key=labels.UNTRUSTED.full, value=verdict, effect=EFFECT)
    return predicates.taint_refusal(tolerations, [taint], is_cordoned=False) is None


def may_go(constraints: Constraints, node: str, node_labels: Mapping[str, str]) -> bool:
    """Return whether selector and required affinity let a pod onto the node."""
    return predicates.label_refusal(constraints, node, node_labels) is None


def _pinned_to(constraints: Constraints) -> frozenset[str]:
    """Return the nodes that the DaemonSet's controller made the pod for."""
    return frozenset(
        name
        for term in constraints.required
        for field in term.fields
        if field.key == predicates.NAME_FIELD and field.operator == "In"
        for name in field.values
    )
