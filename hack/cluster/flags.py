"""The command line of each part of the control plane, and the kubeconfig of each of its users.

In: a Layout (paths, ports and certificates of one cluster). Out: argument lists and text. No process, no file.

Invariant: everything listens on loopback, over TLS with client certificates, and RBAC decides. The exception is
etcd's health endpoint, which is plain HTTP and serves nothing but health and metrics.

Why etcd may lose data: a cluster of tests does not outlive its machine, and fsync is most of what a small etcd waits
for. Why no endpoint reconciler: an Endpoints object must not hold a loopback address.

Not here: starting and stopping (run.py), the nodes (fakenodes.py).
"""

import dataclasses
import pathlib
from collections.abc import Mapping

import yaml

from hack.cluster import pki

SERVICE_ISSUER = "https://kubernetes.default.svc"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything of one cluster is."""

    folder: pathlib.Path
    ports: Mapping[str, int]
    """By the names in PORTS."""
    etcd_authority: pki.Pair
    etcd_server: pki.Pair
    etcd_client: pki.Pair
    authority: pki.Pair
    server: pki.Pair
    service_accounts: pki.Pair
    feature_gates: str = ""
    """Passed to every Kubernetes part, as `A=true,B=false`."""
    runtime_config: str = ""
    """API versions that are off by default in this line."""

    def url(self, port: str, scheme: str = "https") -> str:
        return f"{scheme}://{pki.LOOPBACK}:{self.ports[port]}"

    def kubeconfig(self, user: str) -> pathlib.Path:
        return self.folder / f"{user}.kubeconfig"


PORTS = (
    *("etcd", "etcd-peer", "etcd-health"),
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "fakenodes"),
    *("jobset", "jobset-webhook", "kueue", "kueue-webhook"),
    *("kubelet", "kubelet-health"),
)

USERS = {
    "admin": ("muster:admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "fakenodes": ("muster:fakenodes", ("system:nodes",)),
    "nobody": ("muster:nobody", ()),
}
"""Kubeconfig name -> (user, groups). `nobody` may do what any authenticated user may, which is next to nothing. The fake
nodes' group gives them the kubelets' share of the API server; their rights are in grants.py."""

PROBES = {
    "etcd": ("etcd-health", "http", "/readyz"),
    "kube-apiserver": ("kube-apiserver", "https", "/readyz"),
    "kube-controller-manager": ("kube-controller-manager", "https", "/healthz"),
    "kube-scheduler": ("kube-scheduler", "https", "/readyz"),
    "fakenodes": ("fakenodes", "http", "/"),
    "jobset": ("jobset", "http", "/readyz"),
    "kueue": ("kueue", "http", "/readyz"),
    "kubelet": ("kubelet-health", "http", "/healthz"),
}
"""Part -> port, scheme and path that answer 200 when the part does its work."""


def probe_url(layout: Layout, part: str) -> str:
    """Return where a part is asked; empty for one that nobody can ask."""
    if part not in PROBES:
        return ""
    port, scheme, path = PROBES[part]
    return layout.url(port, scheme) + path


def arguments(layout: Layout, part: str) -> list[str]:
    """Return what one part is started with."""
    return [f"--{name}={value}" for name, value in _FLAGS[part](layout).items()]


def kubeconfig(layout: Layout, pair: pki.Pair) -> str:
    """Return the kubeconfig of the user of `pair`."""
    cluster = {"server": layout.url("kube-apiserver"), "certificate-authority": str(layout.authority.certificate)}
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    text: str = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "muster", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "user"}}],
            "current-context": "muster",
        },
        sort_keys=False,
    )
    return text


def _etcd(layout: Layout) -> dict[str, object]:
    return {
        "name": "muster",
        "data-dir": layout.folder / "etcd",
        "listen-client-urls": layout.url("etcd"),
        "advertise-client-urls": layout.url("etcd"),
        "listen-peer-urls": layout.url("etcd-peer"),
        "initial-advertise-peer-urls": layout.url("etcd-peer"),
        "initial-cluster": f"muster={layout.url('etcd-peer')}",
        "listen-metrics-urls": layout.url("etcd-health", "http"),
        "cert-file": layout.etcd_server.certificate,
        "key-file": layout.etcd_server.key,
        "client-cert-auth": "true",
        "trusted-ca-file": layout.etcd_authority.certificate,
        "peer-cert-file": layout.etcd_server.certificate,
        "peer-key-file": layout.etcd_server.key,
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": layout.etcd_authority.certificate,
        "unsafe-no-fsync": "true",
    }


def _apiserver(layout: Layout) -> dict[str, object]:
    given = {"runtime-config": layout.runtime_config} if layout.runtime_config else {}
    return {
        "bind-address": pki.LOOPBACK,
        "advertise-address": pki.LOOPBACK,
        "secure-port": layout.ports["kube-apiserver"],
        "endpoint-reconciler-type": "none",
        "etcd-servers": layout.url("etcd"),
        "etcd-cafile": layout.etcd_authority.certificate,
        "etcd-certfile": layout.etcd_client.certificate,
        "etcd-keyfile": layout.etcd_client.key,
        "client-ca-file": layout.authority.certificate,
        "tls-cert-file": layout.server.certificate,
        "tls-private-key-file": layout.server.key,
        "service-account-issuer": SERVICE_ISSUER,
        "service-account-key-file": layout.service_accounts.certificate,
        "service-account-signing-key-file": layout.service_accounts.key,
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "profiling": "false",
        **_gates(layout),
        **given,
    }


def _controller_manager(layout: Layout) -> dict[str, object]:
    return {
        **_client(layout, "kube-controller-manager"),
        "service-account-private-key-file": layout.service_accounts.key,
        "root-ca-file": layout.authority.certificate,
        "cluster-signing-cert-file": layout.authority.certificate,
        "cluster-signing-key-file": layout.authority.key,
        "use-service-account-credentials": "true",
    }


def _scheduler(layout: Layout) -> dict[str, object]:
    return _client(layout, "kube-scheduler")


def _client(layout: Layout, part: str) -> dict[str, object]:
    """Return what the two parts that live on the API server have in common."""
    own = layout.kubeconfig(part)
    return {
        "kubeconfig": own,
        "authentication-kubeconfig": own,
        "authorization-kubeconfig": own,
        "bind-address": pki.LOOPBACK,
        "secure-port": layout.ports[part],
        "tls-cert-file": layout.server.certificate,
        "tls-private-key-file": layout.server.key,
        "leader-elect": "false",
        "profiling": "false",
        **_gates(layout),
    }


def _gates(layout: Layout) -> dict[str, object]:
    return {"feature-gates": layout.feature_gates} if layout.feature_gates else {}


_FLAGS = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
}
