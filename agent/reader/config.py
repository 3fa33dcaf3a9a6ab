"""The reader's settings, one frozen value.

Every root is a setting so that the reader runs beside a container's mounts of the host, and in tests on a directory tree.
"""

import dataclasses
import pathlib

from muster import settings

PREFIX = "MUSTER_READER"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    socket: pathlib.Path = settings.setting(
        pathlib.Path("/run/muster/reader.sock"), text="unix socket that the reader serves"
    )
    sysfs_root: pathlib.Path = settings.setting(pathlib.Path("/sys"), text="where the host's sysfs is mounted")
    proc_root: pathlib.Path = settings.setting(pathlib.Path("/proc"), text="where the host's procfs is mounted")
    dev_root: pathlib.Path = settings.setting(pathlib.Path("/dev"), text="where the host's device files are")
    kmsg_path: pathlib.Path = settings.setting(pathlib.Path("/dev/kmsg"), text="the kernel log")
    cdi_dirs: tuple[str, ...] = settings.setting(("/etc/cdi", "/var/run/cdi"), text="directories of CDI specs")
    driver_roots: tuple[str, ...] = settings.setting(
        # The host, the operator's driver container, then vendors' own places (design.md section 2).
        ("/host", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia", "/"),
        text="where a driver may be installed, in order of search",
    )
    device_plugins_dir: pathlib.Path = settings.setting(
        pathlib.Path("/var/lib/kubelet/device-plugins"), text="the kubelet's directory of plugin sockets"
    )
    plugins_registry_dir: pathlib.Path = settings.setting(
        pathlib.Path("/var/lib/kubelet/plugins_registry"),
        text="the kubelet's directory of registration sockets (DRA drivers)",
    )
    host_root: pathlib.Path = settings.setting(pathlib.Path("/"), text="where the host's files are mounted")
    kubelet_roots: tuple[str, ...] = settings.setting(
        # Where distributions put it: kubeadm, k0s, k3s of old, microk8s, rke, TKGI.
        (
            "/var/lib/kubelet",
            "/var/lib/k0s/kubelet",
            "/var/lib/rancher/k3s/agent/kubelet",
            "/var/snap/microk8s/common/var/lib/kubelet",
            "/opt/rke/var/lib/kubelet",
            "/var/vcap/data/kubelet",
        ),
        text="where kubelets have their root, on the host; a plugin that serves in one without a kubelet is found there",
    )
    sockets_seconds: float = settings.setting(
        30.0, text="time between two questions to the sockets of plugins and DRA drivers", low=0.05, high=600
    )
    mps_root: pathlib.Path = settings.setting(
        pathlib.Path("/run/nvidia/mps"), text="the MPS control daemon's directory"
    )
    kubelet_names: tuple[str, ...] = settings.setting(
        ("kubelet", "k3s-server", "k3s-agent", "k3s", "kubelite"), text="process names that are a kubelet"
    )
    plugin_names: tuple[str, ...] = settings.setting(
        ("nvidia-device-plugin", "nvidia-gpu-device-plugin"), text="executables that are a GPU device plugin"
    )
    call_timeout_seconds: float = settings.setting(
        2.0, text="deadline of a cheap read of one device", low=0.05, high=60
    )
    static_timeout_seconds: float = settings.setting(
        10.0, text="deadline of a full static read of one device", low=0.05, high=120
    )
    exit_with_parent: bool = settings.setting(default=False, text="end when standard input closes")
