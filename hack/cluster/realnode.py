"""A real node on a started cluster: containerd, runc and a kubelet, in namespaces of their own.

In: a Layout and the binaries of versions.NODE. Out: the files they need, and their command lines.

Invariant: nothing of this machine is written to but the node's folder and one cgroup of its name. The kubelet's paths
under /var/lib, /var/log and /run are compiled in (the device-plugin folder above all), so both programs live in one
mount namespace where those are the node's own folders. When its first process ends, the kernel ends everything in the
PID namespace and drops every mount: a stopped node leaves no container behind.

Why no pod network: the tests' pods run on the host's, and a plugin of three lines keeps containerd content.

Why this machine's runc: the kubelet runs every sandbox under a seccomp profile, and a runc that was built without
libseccomp's headers refuses it. Debian's `runc` has it.

Not here: the device plugin (deviceplugin.py), the image (image.py), and what a node is asked (tests/cluster).
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import time
from collections.abc import Mapping

import yaml

from hack.cluster import assets, flags, image, pki

NAME = "real"
IMPORT_SECONDS = 60.0
_CGROUPS = pathlib.Path("/sys/fs/cgroup")

_NETWORK = """#!/bin/sh
# Every answer a container runtime wants of a network plugin, and no network.
case "$CNI_COMMAND" in
  VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
  ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.244.0.2/24"}]}' ;;
esac
"""

# --kill-child ends the namespace with its first process; the folders shadow this machine's.
_ENTER = """set -e
for name in lib log; do mkdir -p "$1/var/$name"; mount --bind "$1/var/$name" "/var/$name"; done
mkdir -p "$1/run" && mount --bind "$1/run" /run
shift
exec "$@"
"""


class Refused(Exception):
    """This machine cannot run a real node, or containerd did not take the image; the text says which."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where everything of one node is, as seen from outside its namespaces."""

    folder: pathlib.Path
    ports: Mapping[str, int]

    @property
    def kubelet(self) -> pathlib.Path:
        """What the kubelet takes for /var/lib/kubelet."""
        return self.folder / "var" / "lib" / "kubelet"

    @property
    def plugins(self) -> pathlib.Path:
        return self.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> pathlib.Path:
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def checkpoint(self) -> pathlib.Path:
        return self.plugins / "kubelet_internal_checkpoint"

    @property
    def unhealthy(self) -> pathlib.Path:
        """What the device plugin is told through (deviceplugin.py)."""
        return self.folder / "unhealthy"

    @property
    def cgroup(self) -> str:
        """The cgroup that everything of the node is in; a machine may hold several nodes."""
        return f"muster-{self.ports['kubelet']}"

    @property
    def containerd(self) -> pathlib.Path:
        return self.folder / "containerd.sock"


def write_files(node: Node, layout: flags.Layout, authority: pki.Authority) -> None:
    """Write configurations, the network plugin and the kubelet's identity."""
    runc = assets.find_installed("runc")
    if runc is None:
        raise Refused("no runc on this machine; on Debian or Ubuntu: apt-get install runc")
    (node.folder / "cni" / "bin").mkdir(parents=True)
    (node.folder / "cni" / "conf").mkdir()
    plugin = node.folder / "cni" / "bin" / "nothing"
    plugin.write_text(_NETWORK)
    plugin.chmod(0o755)
    network = {"cniVersion": "1.0.0", "name": "nothing", "plugins": [{"type": "nothing"}]}
    (node.folder / "cni" / "conf" / "10-nothing.conflist").write_text(json.dumps(network))
    (node.folder / "containerd.toml").write_text(_containerd(node, runc))
    (node.folder / "resolv.conf").write_text("")
    served = authority.issue_server("kubelet", NAME)
    (node.folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(node, layout, served)))
    pair = authority.issue_client("user-kubelet", f"system:node:{NAME}", "system:nodes")
    layout.kubeconfig("kubelet").write_text(flags.kubeconfig(layout, pair))


def containerd_command(node: Node, binaries: Mapping[str, pathlib.Path]) -> list[str]:
    """Return how containerd starts, as the first process of the node's namespaces."""
    path = f"{binaries['containerd-shim-runc-v2'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    namespaces = [
        "/usr/bin/unshare",
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]
    inside = ["/bin/sh", "-c", _ENTER, "enter", str(node.folder)]
    run = ["/usr/bin/env", f"PATH={path}", str(binaries["containerd"]), f"--config={node.folder / 'containerd.toml'}"]
    return [*namespaces, *inside, *run]


def inside(pid: int, *command: str) -> list[str]:
    """Return how a program starts inside the namespaces whose first process is `pid`."""
    return ["/usr/bin/nsenter", f"--target={pid}", "--mount", "--pid", "--", *command]


def kubelet_arguments(node: Node, layout: flags.Layout) -> list[str]:
    return [
        f"--config={node.folder / 'kubelet.yaml'}",
        f"--kubeconfig={layout.kubeconfig('kubelet')}",
        f"--hostname-override={NAME}",
        "--v=2",
    ]


def plugin_arguments(node: Node) -> list[str]:
    return [f"--folder={node.plugins}", f"--unhealthy={node.unhealthy}", f"--node={NAME}"]


def import_image(node: Node, ctr: pathlib.Path) -> None:
    """Bring the one image, as soon as containerd takes it."""
    archive = image.build(node.folder / "image")
    command = [str(ctr), f"--address={node.containerd}", "--namespace=k8s.io", "images", "import", str(archive)]
    deadline = time.monotonic() + IMPORT_SECONDS
    while subprocess.run(command, check=False, capture_output=True).returncode:
        if time.monotonic() > deadline:
            raise Refused(f"containerd did not take {archive} within {IMPORT_SECONDS:.0f} s")
        time.sleep(0.2)


def make_cgroups(node: Node) -> None:
    """Make the cgroup that the kubelet is told to stay in; it makes none above its own."""
    for hierarchy in _hierarchies():
        (hierarchy / node.cgroup).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            # cgroup v1 starts a cpuset without a single CPU in it, and nothing can be put there.
            if (hierarchy / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                (hierarchy / node.cgroup / file).write_text((hierarchy / file).read_text())


def remove_cgroups(node: Node) -> None:
    """Remove what is left of the node's cgroups, deepest first."""
    for hierarchy in _hierarchies():
        root = hierarchy / node.cgroup
        for folder in [*sorted(root.rglob("*/"), reverse=True), root]:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


def _hierarchies() -> list[pathlib.Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [folder for folder in _CGROUPS.iterdir() if (folder / "cgroup.procs").exists()]


def _containerd(node: Node, runc: pathlib.Path) -> str:
    """Return containerd's configuration; restrict_oom_score_adj where lowering the score is refused, as here."""
    return f"""version = 3
root = "{node.folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{node.containerd}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image.NAME}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{node.folder}/cni/bin"]
  conf_dir = "{node.folder}/cni/conf"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"""


def _kubelet(node: Node, layout: flags.Layout, served: pki.Pair) -> dict[str, object]:
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
