"""The rights of a cluster's own users, beyond what Kubernetes binds by itself.

In: the administrator's kubeconfig. Out: a ClusterRole and its binding, applied.

Invariant: the fake nodes may do what a kubelet does and no more. They share one user, so the Node authorizer, which
ties a kubelet to its own node, does not hold them to theirs.
"""

import pathlib
from typing import Any

import httpx2
import lightkube
from lightkube.config import kubeconfig
from lightkube.models import meta_v1, rbac_v1
from lightkube.resources import rbac_authorization_v1 as rbac

ANSWER_SECONDS = 60.0
FAKENODES = "muster:fakenodes"

_RULES = [
    rbac_v1.PolicyRule(apiGroups=[""], resources=["nodes"], verbs=["create", "get", "list", "watch", "patch"]),
    rbac_v1.PolicyRule(apiGroups=[""], resources=["nodes/status", "pods/status"], verbs=["patch"]),
    rbac_v1.PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get", "list", "watch", "delete"]),
    rbac_v1.PolicyRule(apiGroups=["coordination.k8s.io"], resources=["leases"], verbs=["create", "patch"]),
]


def client(path: pathlib.Path, **options: Any) -> lightkube.Client:
    """Return a client that a proxy in the environment does not lead astray, nor a machine with more work than cores."""
    given = {"timeout": httpx2.Timeout(ANSWER_SECONDS), **options}
    return lightkube.Client(config=kubeconfig.KubeConfig.from_file(path), trust_env=False, **given)


def apply(admin: pathlib.Path) -> None:
    """Grant the fake nodes their rights."""
    name = meta_v1.ObjectMeta(name=FAKENODES)
    role = rbac.ClusterRole(metadata=name, rules=_RULES)
    reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=FAKENODES)
    subject = rbac_v1.Subject(apiGroup="rbac.authorization.k8s.io", kind="User", name=FAKENODES)
    binding = rbac.ClusterRoleBinding(metadata=name, roleRef=reference, subjects=[subject])
    connection = client(admin, field_manager="muster-cluster")
    connection.apply(role)
    connection.apply(binding)
    connection.close()
