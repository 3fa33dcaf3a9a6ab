"""What the programs of a real node are configured with.

In: a node, a Layout, and the containerd that will read it. Out: files in the node's folder.

Invariant: containerd and the kubelet never lower an oom_score_adj, which a machine may refuse even to root, and cgroup
v1 is allowed. The configuration of containerd has the shape of its major version: 2 renamed what 1 reads.

Why no pod network: the tests' pods run on the host's, and a plugin of three lines keeps containerd content.
Why this machine's runc: the kubelet runs every sandbox under a seccomp profile, and a runc that was built without
libseccomp's headers refuses it. Debian's `runc` has it.

Not here: starting anything (realnode.py).
"""

import json
import pathlib
import subprocess

import yaml

from hack.cluster import assets, flags, image, pki, realnode

_NETWORK = """#!/bin/sh
# Every answer a container runtime wants of a network plugin, and no network.
case "$CNI_COMMAND" in
  VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
  ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.244.0.2/24"}]}' ;;
esac
"""

_SECOND = """version = 3
root = "{node}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{node}/cni/bin"]
  conf_dir = "{node}/cni/conf"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"""

_FIRST = """version = 2
root = "{node}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{node}/cni/bin"
  conf_dir = "{node}/cni/conf"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"""


def write_files(node: realnode.Node, layout: flags.Layout, authority: pki.Authority, containerd: pathlib.Path) -> None:
    """Write configurations, the network plugin and the kubelet's identity."""
    runc = assets.find_installed("runc")
    if runc is None:
        raise realnode.Refused("no runc on this machine; on Debian or Ubuntu: apt-get install runc")
    (node.folder / "cni" / "bin").mkdir(parents=True)
    (node.folder / "cni" / "conf").mkdir()
    plugin = node.folder / "cni" / "bin" / "nothing"
    plugin.write_text(_NETWORK)
    plugin.chmod(0o755)
    network = {"cniVersion": "1.0.0", "name": "nothing", "plugins": [{"type": "nothing"}]}
    (node.folder / "cni" / "conf" / "10-nothing.conflist").write_text(json.dumps(network))
    shape = _FIRST if _generation(containerd) == "1" else _SECOND
    (node.folder / "containerd.toml").write_text(
        shape.format(node=node.folder, socket=node.containerd, image=image.NAME, runc=runc)
    )
    (node.folder / "resolv.conf").write_text("")
    served = authority.issue_server("kubelet", realnode.NAME)
    (node.folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(node, layout, served)))
    pair = authority.issue_client("user-kubelet", f"system:node:{realnode.NAME}", "system:nodes")
    layout.kubeconfig("kubelet").write_text(flags.kubeconfig(layout, pair))


def _generation(containerd: pathlib.Path) -> str:
    """Return the major version: `containerd github.com/containerd/containerd/v2 2.2.9 ...`."""
    said = subprocess.run([containerd, "--version"], check=True, text=True, capture_output=True).stdout
    return said.split()[2].removeprefix("v").split(".")[0]


def _kubelet(node: realnode.Node, layout: flags.Layout, served: pki.Pair) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": pki.LOOPBACK,
        "port": node.ports["kubelet"],
        "healthzBindAddress": pki.LOOPBACK,
        "healthzPort": node.ports["kubelet-health"],
        "tlsCertFile": str(served.certificate),
        "tlsPrivateKeyFile": str(served.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(layout.authority.certificate)},
        },
        "containerRuntimeEndpoint": f"unix://{node.containerd}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(node.folder / "resolv.conf"),
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
    }
