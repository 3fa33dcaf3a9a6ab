"""Whom our taint would keep off a node although the node needs it: DaemonSets that serve the node's devices.

Input: DaemonSets and unbound pods as they stand on the API server, a node's name and labels. Output: names.

A DaemonSet serves devices if it mounts a folder of the host in which device plugins and drivers live, or stands in a
namespace that policy names (GPU operators bring up drivers by other ways too). What cannot be evaluated counts as matching:
to withhold a taint costs little, to keep the cure out costs the node.

Not here: what follows for the taint (taints.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping

from admitter.model.cluster import Constraints, Expression, NodeTerm, Toleration
from muster.model import labels

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
"""Device plugins, DRA drivers, and where the known operators and clouds put drivers (faults.md A9, A12)."""


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
    folders = [f"{folder.rstrip('/')}/" for folder in daemon.host_folders]
    known = any(folder.startswith(f"{root}/") for folder in folders for root in HOST_FOLDERS)
    return known or daemon.namespace in namespaces


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
    return any(_tolerates(each, verdict) for each in tolerations)


def _tolerates(toleration: Toleration, verdict: str) -> bool:
    if toleration.effect not in ("", EFFECT):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", labels.UNTRUSTED.full)
    return toleration.key == labels.UNTRUSTED.full and toleration.value == verdict


def may_go(constraints: Constraints, node: str, node_labels: Mapping[str, str]) -> bool:
    """Return whether selector and required affinity let a pod onto the node."""
    if any(node_labels.get(key) != value for key, value in constraints.node_selector.items()):
        return False
    return not constraints.required or any(_term_holds(term, node, node_labels) for term in constraints.required)


def _term_holds(term: NodeTerm, node: str, node_labels: Mapping[str, str]) -> bool:
    if not term.labels and not term.fields:
        return False  # the API's rule: an empty term matches no node
    name = {"metadata.name": node}
    return all(_holds(each, node_labels) for each in term.labels) and all(_holds(each, name) for each in term.fields)


def _holds(expression: Expression, values: Mapping[str, str]) -> bool:
    value = values.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(expression, value)
        case _:
            return True


def _compares(expression: Expression, value: str | None) -> bool:
    try:
        left, right = int(value or ""), int(expression.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if expression.operator == "Gt" else left < right


def _pinned_to(constraints: Constraints) -> frozenset[str]:
    """Return the nodes that the DaemonSet's controller made the pod for."""
    return frozenset(
        name
        for term in constraints.required
        for field in term.fields
        if field.key == "metadata.name" and field.operator == "In"
        for name in field.values
    )
