"""The versions this repository is tested on, and the Go module each program is built from.

In: the name of a Kubernetes line, `1.37` unless MUSTER_CLUSTER_LINE says otherwise. Out: the programs of that line.

Invariant: one line names one version of every program, so that a cache keyed by (program, version) never mixes lines.

Why pins in Python and not in a go.mod: one program per module graph. A graph shared by Kubernetes, etcd and containerd
would build none of them with the dependencies that its own release was tested with.

Not here: how a program is built (build.py), and where it is looked for (assets.py).
"""

import dataclasses
import os
import sys

DEFAULT_LINE = "1.37"
LINE_VARIABLE = "MUSTER_CLUSTER_LINE"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: `package` of `module` at `version`."""

    name: str
    module: str
    package: str
    version: str
    stamps: tuple[str, ...] = ()
    """Go packages with the variables gitVersion, gitMajor and gitMinor, which a release sets when it links."""
    manifests: str = ""
    """Folder of the module that kustomize renders to what the program needs in the API server."""
    source: str = ""
    """File of this repository that is the program, where the module is only its library; `package` is then its folder."""

    @property
    def cold_seconds(self) -> int:
        """What a first build takes: modules fetched, and what the programs before it in _COLD have not compiled."""
        return _COLD[self.name]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The versions that belong together."""

    kubernetes: str
    etcd: str
    """The newest release of the minor version whose client this Kubernetes vendors (its go.mod)."""
    feature_gates: str = ""
    """For every Kubernetes part: what the newer line has without asking."""
    runtime_config: str = ""
    """For the API server, likewise."""


LINES = {
    "1.37": Line(kubernetes="v1.37.2", etcd="v3.7.3"),
    # MutatingAdmissionPolicy is served without asking from 1.36 on (apiserver/pkg/features).
    "1.35": Line(
        kubernetes="v1.35.4",
        etcd="v3.6.16",
        feature_gates="MutatingAdmissionPolicy=true",
        runtime_config="admissionregistration.k8s.io/v1beta1=true",
    ),
}

KUEUE = "v0.17.0"
JOBSET = "v0.11.1"  # what this Kueue is built with (its go.mod)
CONTAINERD = "v2.2.9"
STARGZ = "v0.18.2"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""What `make cluster` starts, in the order of their start."""
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
"""What a real node needs beside it; runc is the machine's own (realnode.py)."""

# Fetch and build, cold, on 2 cores, in this order (docs/cluster.md, figures).
_COLD = {
    "etcd": 50,
    "kube-apiserver": 340,
    "kube-controller-manager": 115,
    "kube-scheduler": 11,
    "jobset": 138,
    "kueue": 223,
    "kubelet": 48,
    "containerd": 83,
    "containerd-shim-runc-v2": 4,
    "ctr": 20,
    "stargz": 60,
}

_KUBERNETES_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def line_name() -> str:
    """Return the line that the environment asks for; an unknown one is refused here, before anything is built."""
    name = os.environ.get(LINE_VARIABLE) or DEFAULT_LINE
    if name not in LINES:
        print(f"{LINE_VARIABLE}={name}: no such line; there are {', '.join(sorted(LINES))}", file=sys.stderr)
        raise SystemExit(2)
    return name


def programs(line: str) -> dict[str, Program]:
    """Return the programs of one line, by name."""
    pins = LINES[line]
    kubernetes = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    return {
        "etcd": Program(
            name="etcd", module="go.etcd.io/etcd/server/v3", package="go.etcd.io/etcd/server/v3", version=pins.etcd
        ),
        **{name: _kubernetes(name, pins.kubernetes) for name in kubernetes},
        "kueue": Program(
            name="kueue",
            module="sigs.k8s.io/kueue",
            package="sigs.k8s.io/kueue/cmd/kueue",
            version=KUEUE,
            manifests="config/default",
        ),
        "jobset": Program(
            name="jobset",
            module="sigs.k8s.io/jobset",
            package="sigs.k8s.io/jobset",
            version=JOBSET,
            manifests="config/default",
        ),
        **{name: _containerd(name) for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        "stargz": Program(
            name="stargz",
            module="github.com/containerd/stargz-snapshotter",
            package=".",
            version=STARGZ,
            source="hack/images/stargz.go",
        ),
    }


def _containerd(name: str) -> Program:
    module = "github.com/containerd/containerd/v2"
    return Program(name=name, module=module, package=f"{module}/cmd/{name}", version=CONTAINERD)


def _kubernetes(name: str, version: str) -> Program:
    return Program(
        name=name,
        module="k8s.io/kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        version=version,
        stamps=_KUBERNETES_STAMPS,
    )
