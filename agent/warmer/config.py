"""The warmer's settings: one frozen value, every problem at once (muster.settings)."""

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Mapping

from agent.core import warmref
from muster import settings
from muster.settings import setting

PREFIX = "MUSTER_WARMER"

MAX_DISK_SHARE = 0.80
"""5 points under the kubelet's imageGCHighThresholdPercent of 85 (images.md section 6.2)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmerConfig:
    socket: pathlib.Path = setting(pathlib.Path("/run/muster/warmer.sock"), text="unix socket to serve the agent on")
    containerd_socket: pathlib.Path = setting(
        pathlib.Path("/run/containerd/containerd.sock"), text="unix socket of containerd"
    )
    list: pathlib.Path | None = setting(None, text="JSON file with the images to have ready (docs/images.md)")
    owner: str = setting("muster", text="mark on leases; two warmers of one containerd need two")
    snapshotter: str = setting("overlayfs", text="snapshotter that pods of this node use")
    platform: str = setting("", text="os/architecture of this node; empty: the machine's own")
    registry_hosts_dir: pathlib.Path = setting(
        pathlib.Path("/etc/containerd/certs.d"), text="folder of hosts.toml files that containerd reads"
    )
    image_root: pathlib.Path | None = setting(
        None, text="where containerd's images are, as seen from here; none: as containerd says"
    )
    bandwidth_mib_per_second: float | None = setting(
        None, text="cap of downloads; none: containerd downloads, as fast as it can", low=0.1, high=100_000
    )
    disk_share: float = setting(
        MAX_DISK_SHARE, text="share of the image file system that a pull may fill", low=0.05, high=MAX_DISK_SHARE
    )
    stall_seconds: float = setting(120.0, text="a pull without a byte or a layer for so long is given up", low=1)
    quiet_seconds: float = setting(5.0, text="how long the node must be quiet before a pull goes on", low=0.1, high=600)
    poll_seconds: float = setting(30.0, text="time between two looks when nothing happens", low=0.2, high=600)
    tag_seconds: float = setting(600.0, text="time between two looks at where a tag points", low=1, high=86_400)
    lease_hours: float = setting(24.0, text="life of a lease that nobody renews", low=0.01, high=720)
    pin_hours: float = setting(
        720.0,
        text="a pin of ours ends so long after it was set; 0: when the list names it no more",
        low=0,
        high=100_000,
    )
    io_pressure_percent: float = setting(
        60.0,
        text="share of the last 10 s in which something waited for a disk, above which no pull begins; 100: never",
        low=1,
        high=100,
    )
    io_pressure_path: pathlib.Path = setting(
        pathlib.Path("/proc/pressure/io"), text="where the kernel tells that share"
    )
    credential_provider: str = setting(
        "", text="the kubelet's credential provider: program and arguments, split as a shell does"
    )
    credential_images: tuple[str, ...] = setting(
        (), text="hosts or host/path patterns the provider is for, as *.ecr.aws"
    )
    lazy_mib_per_second: float = setting(
        20.0, text="rate to read the rest of lazily mounted images at, while the node is idle; 0: never", low=0
    )
    state_file: pathlib.Path | None = setting(
        None, text="file on a disk that outlives a boot: which images were pulled just before it"
    )
    boot_id_path: pathlib.Path = setting(
        pathlib.Path("/proc/sys/kernel/random/boot_id"), text="where the kernel tells its boot id"
    )
    hint_registries: tuple[str, ...] = setting(
        (), text="registries of which the admitter may name images; none: hints are off"
    )
    hint_budget_gib: float = setting(50.0, text="compressed GiB of hinted images, beside the list's", low=0)
    history_file: pathlib.Path | None = setting(
        None, text="file on a disk that outlives a boot: which images the node started, and how often"
    )
    history_budget_gib: float = setting(
        0.0, text="compressed GiB of images that the node itself started often; 0: none are kept ready", low=0
    )
    exit_with_parent: bool = setting(default=False, text="end when standard input does")

    @property
    def provider_argv(self) -> tuple[str, ...]:
        """The credential provider's command."""
        return tuple(shlex.split(self.credential_provider))

    @property
    def bytes_per_second(self) -> float | None:
        """The cap in bytes."""
        return None if self.bandwidth_mib_per_second is None else self.bandwidth_mib_per_second * 1024 * 1024


def from_flags(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> WarmerConfig:
    """Return the configuration, or raise InvalidSettings with everything that is wrong."""
    return settings.load(WarmerConfig, PREFIX, flags, environ, _CHECKS)


def _list(config: WarmerConfig) -> str:
    if config.list is not None and not os.access(config.list, os.R_OK):
        return f"--list: {config.list} is not a readable file"
    return ""


def _places(config: WarmerConfig) -> str:
    if config.socket.exists() and not config.socket.is_socket():
        return f"--socket: {config.socket} is there and is no socket"
    return ""


def _owner(config: WarmerConfig) -> str:
    is_name = config.owner.replace("-", "").isalnum() and config.owner.isascii() and len(config.owner) <= 40
    return "" if is_name else f"--owner: {config.owner!r} is not letters, digits and dashes, at most 40"


def _platform(config: WarmerConfig) -> str:
    parts = config.platform.split("/")
    return (
        "" if not config.platform or len(parts) in {2, 3} else f"--platform: {config.platform!r} is not os/architecture"
    )


def _provider(config: WarmerConfig) -> str:
    try:
        argv = config.provider_argv
    except ValueError as error:
        return f"--credential-provider: {error}"
    if argv and not os.access(argv[0], os.X_OK):
        return f"--credential-provider: {argv[0]} is not a program"
    if bool(argv) != bool(config.credential_images):
        return "--credential-provider and --credential-images: one is of no use without the other"
    return ""


def _hints(config: WarmerConfig) -> str:
    wrong = [
        host for host in config.hint_registries if not hasattr(warmref.parse(f"{host}/x:y"), "host") or "/" in host
    ]
    return "\n".join(f"--hint-registries: {host!r} is not a registry's host[:port]" for host in wrong)


def _history(config: WarmerConfig) -> str:
    if bool(config.history_budget_gib) == (config.history_file is not None):
        return ""
    return "--history-file and --history-budget-gib: one is of no use without the other"


_CHECKS: tuple[settings.Check, ...] = (_list, _places, _owner, _platform, _provider, _hints, _history)
