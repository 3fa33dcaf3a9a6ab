"""Whom our taint would keep off a node."""

import pytest

from admitter.core import keepers
from admitter.core.keepers import Daemon, WaitingPod
from admitter.model.cluster import ANYWHERE, Constraints, Expression, NodeTerm, Toleration
from muster.model import labels

KEY = labels.UNTRUSTED.full
GPU_NODE = {"nvidia.com/gpu.present": "true", "gen": "7"}


def anywhere(*tolerations, **constraints):
    return Constraints(tolerations=tolerations, **constraints)


def a_daemon(constraints=ANYWHERE, *, namespace="kube-system", name="plugin", folders=()):
    return Daemon(namespace=namespace, name=name, constraints=constraints, host_folders=folders)


def pinned(node, **constraints):
    """What the DaemonSet controller puts on the pod that it makes for a node."""
    term = NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=(node,)),))
    return Constraints(required=(term,), **constraints)


@pytest.mark.parametrize(
    ("folder", "serves"),
    {
        "/var/lib/kubelet/device-plugins": True,
        "/var/lib/kubelet/device-plugins/": True,
        "/var/lib/kubelet/plugins/gpu.nvidia.com": True,
        "/run/nvidia/driver": True,
        "/opt/k3s/kubelet/device-plugins": True,
        "/var/lib/kubelet/pod-resources": False,
        "/var/lib/kubelet/device-plugins-of-mine": False,
        "/var/log": False,
    }.items(),
)
def test_which_folders_say_that_a_daemonset_serves_devices(folder, serves):
    assert keepers.serves_devices(a_daemon(folders=("/etc", folder)), frozenset()) is serves


def test_a_namespace_of_the_policy_serves_whatever_it_mounts():
    assert keepers.serves_devices(a_daemon(namespace="gpu-operator"), frozenset({"gpu-operator"}))


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key=KEY, operator="Exists"), True),
        (Toleration(key=KEY, operator="Equal", value="OVER"), True),
        (Toleration(key=KEY, operator="Equal", value="BLOCKED"), False),
        (Toleration(key="nvidia.com/gpu", operator="Exists"), False),
    ],
)
def test_which_tolerations_let_a_pod_past_the_taint(toleration, tolerated):
    assert keepers.tolerates((toleration,), "OVER") is tolerated


PLACES = {
    "no wish": (ANYWHERE, True),
    "its label": (anywhere(node_selector={"nvidia.com/gpu.present": "true"}), True),
    "another label": (anywhere(node_selector={"nvidia.com/gpu.present": "false"}), False),
    "its own name": (pinned("n1"), True),
    "another name": (pinned("n2"), False),
    "one of two terms": (
        anywhere(
            required=(
                NodeTerm(labels=(Expression(key="x", operator="Exists"),)),
                NodeTerm(labels=(Expression(key="gen", operator="In", values=("6", "7")),)),
            )
        ),
        True,
    ),
    "one of two expressions": (
        anywhere(
            required=(
                NodeTerm(
                    labels=(
                        Expression(key="x", operator="DoesNotExist"),
                        Expression(key="gen", operator="NotIn", values=("7",)),
                    )
                ),
            )
        ),
        False,
    ),
    "greater": (anywhere(required=(NodeTerm(labels=(Expression(key="gen", operator="Gt", values=("6",)),)),)), True),
    "less": (anywhere(required=(NodeTerm(labels=(Expression(key="gen", operator="Lt", values=("6",)),)),)), False),
    "no number": (anywhere(required=(NodeTerm(labels=(Expression(key="x", operator="Gt", values=("6",)),)),)), False),
    "an empty term": (anywhere(required=(NodeTerm(),)), False),
}


@pytest.mark.parametrize(("constraints", "may"), PLACES.values(), ids=PLACES)
def test_where_a_daemonset_belongs(constraints, may):
    assert keepers.may_go(constraints, "n1", GPU_NODE) is may
    assert keepers.kept_out([a_daemon(constraints)], "n1", GPU_NODE, "OVER") == (("kube-system/plugin",) if may else ())


def test_a_daemonset_that_tolerates_is_not_kept_out():
    tolerant = anywhere(Toleration(key=KEY, operator="Exists"))
    assert keepers.kept_out([a_daemon(tolerant), a_daemon(name="b"), a_daemon(name="a")], "n1", {}, "OVER") == (
        "kube-system/a",
        "kube-system/b",
    )


def a_waiting(name, constraints, *, daemon="kube-system/plugin", gated=False):
    return WaitingPod(full_name=f"kube-system/{name}", daemon=daemon, constraints=constraints, is_gated=gated)


def test_which_pods_wait_because_of_the_taint():
    pods = [
        a_waiting("z", pinned("n1")),
        a_waiting("a", pinned("n1")),
        a_waiting("elsewhere", pinned("n2")),
        a_waiting("tolerant", pinned("n1", tolerations=(Toleration(operator="Exists"),))),
        a_waiting("gated", pinned("n1"), gated=True),
        a_waiting("logs", pinned("n1"), daemon="kube-system/logs"),
        a_waiting("anywhere", ANYWHERE),
        a_waiting("kept-by-a-label", pinned("n1", node_selector={"x": "y"})),
    ]
    known = frozenset({"kube-system/plugin"})
    assert keepers.waiting_for(pods, known, "n1", GPU_NODE, "OVER") == ("kube-system/a", "kube-system/z")
