"""A real node on a started cluster: containerd, runc and a kubelet, in namespaces of their own.

In: a Layout and the binaries of versions.NODE. Out: their command lines, and a node that is ready.

Invariant: nothing of this machine is written to but the node's folder and one cgroup of its name. The kubelet's paths
under /var/lib, /var/log and /run are compiled in (the device-plugin folder above all), so both programs live in one
mount namespace where those are the node's own folders. When its first process ends, the kernel ends everything in the
PID namespace and drops every mount: a stopped node leaves no container behind. That process is a shell and not
containerd, because a containerd that crashes leaves its containers running.

Not here: configurations (nodefiles.py), the device plugin (deviceplugin.py), the image (image.py), and what a node is asked (tests/cluster).
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import lightkube
from lightkube.core import exceptions
from lightkube.resources import core_v1

from hack.cluster import deviceplugin, flags, grants, image

NAME = "real"
ENTER_SECONDS = 30.0
IMPORT_SECONDS = 60.0
READY_SECONDS = 90.0  # as for a part of the control plane; a node takes about ten
CGROUP_SECONDS = 10.0
_CGROUPS = pathlib.Path("/sys/fs/cgroup")

# --kill-child ends the namespace with its first process; the folders shadow this machine's.
_ENTER = """set -e
for name in lib log; do mkdir -p "$1/var/$name"; mount --bind "$1/var/$name" "/var/$name"; done
mkdir -p "$1/run" && mount --bind "$1/run" /run
touch "$1/entered"
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""
"""The first process: it makes the mounts, then takes in and reaps what loses its parent, as an init does."""


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


def namespaces_command(node: Node) -> list[str]:
    """Return how the first process of the node's namespaces starts."""
    namespaces = [
        "/usr/bin/unshare",
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]
    return [*namespaces, "/bin/sh", "-c", _ENTER, "enter", str(node.folder)]


def wait_until_entered(node: Node) -> None:
    """Wait until the mounts are made; what is started inside before that sees this machine's folders."""
    deadline = time.monotonic() + ENTER_SECONDS
    while not (node.folder / "entered").exists():
        if time.monotonic() > deadline:
            raise Refused(f"no namespaces for a node within {ENTER_SECONDS:.0f} s")
        time.sleep(0.05)


def containerd_command(node: Node, binaries: Mapping[str, pathlib.Path]) -> list[str]:
    """Return how containerd starts, inside."""
    path = f"{binaries['containerd-shim-runc-v2'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    return ["/usr/bin/env", f"PATH={path}", str(binaries["containerd"]), f"--config={node.folder / 'containerd.toml'}"]


def inside(pid: int, *command: str) -> list[str]:
    """Return how a program starts inside the namespaces whose first process is `pid`; it ends with what started it."""
    enter = ["/usr/bin/nsenter", f"--target={pid}", "--mount", "--pid", "--"]
    return [*enter, "/usr/bin/setpriv", "--pdeathsig=KILL", "--", *command]


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


def wait_until_ready(admin: pathlib.Path) -> None:
    """Wait until the kubelet has registered its node, and says that pods can run there with the plugin's devices."""
    connection = grants.client(admin)
    deadline = time.monotonic() + READY_SECONDS
    while not _is_ready(connection):
        if time.monotonic() > deadline:
            raise Refused(f"no ready node {NAME} with devices within {READY_SECONDS:.0f} s")
        time.sleep(0.2)
    connection.close()


def _is_ready(connection: lightkube.Client) -> bool:
    try:
        status: Any = connection.get(core_v1.Node, NAME).status
    except exceptions.ApiError:
        return False
    is_ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())
    return is_ready and (status.allocatable or {}).get(deviceplugin.RESOURCE, "0") != "0"


def make_cgroups(node: Node) -> None:
    """Make the cgroup that the kubelet is told to stay in; it makes none above its own."""
    for hierarchy in _hierarchies():
        (hierarchy / node.cgroup).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            # cgroup v1 starts a cpuset without a single CPU in it, and nothing can be put there.
            if (hierarchy / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                (hierarchy / node.cgroup / file).write_text((hierarchy / file).read_text())


def remove_cgroups(node: Node) -> None:
    """Remove what is left of the node's cgroups, deepest first; the kernel needs a moment for those of killed pods."""
    deadline = time.monotonic() + CGROUP_SECONDS
    for hierarchy in _hierarchies():
        root = hierarchy / node.cgroup
        while root.exists() and time.monotonic() < deadline:
            for folder in [*sorted(root.rglob("*/"), reverse=True), root]:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            time.sleep(0.05)


def _hierarchies() -> list[pathlib.Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [folder for folder in _CGROUPS.iterdir() if (folder / "cgroup.procs").exists()]
