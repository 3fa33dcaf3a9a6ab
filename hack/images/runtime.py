"""A real containerd in a folder of its own, of whichever version the binary is.

In: a folder and a binary. Out: a running containerd that pulls from loopback registries over plain HTTP.

Invariant: root, state and sockets lie in the folder; nothing of this machine's own containerd is read or written.

Why the configuration differs by version: containerd 2 renamed the plugins, and reads the registries' folder for
transfers as well as for CRI (images.md section 3).
"""

import pathlib
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping

from hack.cluster import assets, versions
from hack.images import process


def debian() -> pathlib.Path:
    """Return the containerd of this machine's package, or raise Missing."""
    return process.find("containerd", "containerd")


def built() -> pathlib.Path | None:
    """Return the containerd that hack/cluster built, or None."""
    return assets.find(versions.programs(versions.line_name())["containerd"])


def version_of(binary: pathlib.Path) -> tuple[int, int]:
    """Return major and minor."""
    said = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d+", said)
    if found is None:
        raise process.DidNotStart(f"{binary} --version says {said!r}")
    return int(found[1]), int(found[2])


class Containerd:
    """One containerd; it can be killed and started again on the same folder."""

    def __init__(
        self,
        folder: pathlib.Path,
        binary: pathlib.Path,
        *,
        root: pathlib.Path | None = None,
        proxy_snapshotter: tuple[str, pathlib.Path] | None = None,
        handlers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare it. `handlers`: runtime handlers beside runc, with the snapshotter of each."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.binary = folder, binary
        self.root = root or folder / "root"
        self.socket = folder / "c.sock"
        self.registries = folder / "certs.d"
        self.version = version_of(binary)
        self.registries.mkdir(exist_ok=True)
        config = folder / "containerd.toml"
        config.write_text(self._config(proxy_snapshotter, handlers or {}))
        self._child = process.Child([str(binary), "-c", str(config), "-l", "info"], folder / "containerd.log")

    @property
    def ctr(self) -> pathlib.Path:
        """The client of the same version."""
        beside = self.binary.with_name("ctr")
        found = beside if beside.exists() else assets.find(versions.programs(versions.line_name())["ctr"])
        assert found is not None
        return found

    @property
    def pid(self) -> int:
        return self._child.pid

    def trust(self, address: str) -> None:
        """Let images of host:port be pulled over plain HTTP."""
        folder = self.registries / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.toml").write_text(
            f'server = "http://{address}"\n\n[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n'
        )

    def start(self) -> None:
        self._child.start(self._answers)

    def stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        self._child.kill()

    def remove(self) -> None:
        """Delete the folder; containerd must have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run_ctr(self, *arguments: str) -> str:
        """Run ctr in Kubernetes' namespace and return what it prints."""
        command = [str(self.ctr), "-a", str(self.socket), "-n", "k8s.io", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        log = self.folder / "containerd.log"
        return "containerd successfully booted" in log.read_text(errors="replace")

    def _config(self, proxy_snapshotter: tuple[str, pathlib.Path] | None, handlers: Mapping[str, str]) -> str:
        is_new = self.version >= (2, 0)
        images = "io.containerd.cri.v1.images" if is_new else "io.containerd.grpc.v1.cri"
        text = f"""version = {3 if is_new else 2}
root = "{self.root}"
state = "{self.folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{self.socket}"

[plugins."{images}".registry]
  config_path = "{self.registries}"
"""
        if is_new:
            text += f'\n[plugins."io.containerd.transfer.v1.local"]\n  config_path = "{self.registries}"\n'
            for snapshotter in ("overlayfs", *sorted(filter(None, handlers.values()))) if handlers else ():
                text += '\n[[plugins."io.containerd.transfer.v1.local".unpack_config]]\n'
                text += f'  platform = "linux/amd64"\n  snapshotter = "{snapshotter}"\n  differ = "walking"\n'
        runtimes = "io.containerd.cri.v1.runtime" if is_new else "io.containerd.grpc.v1.cri"
        for handler, snapshotter in {"runc": "", **handlers}.items() if handlers else ():
            text += (
                f'\n[plugins."{runtimes}".containerd.runtimes.{handler}]\n  runtime_type = "io.containerd.runc.v2"\n'
            )
            text += f'  snapshotter = "{snapshotter}"\n' if snapshotter else ""
            if snapshotter and is_new:  # Pulls look here, containers there.
                text += f'\n[plugins."{images}".runtime_platforms.{handler}]\n'
                text += f'  platform = "linux/amd64"\n  snapshotter = "{snapshotter}"\n'
        if proxy_snapshotter is not None:
            name, path = proxy_snapshotter
            text += f'\n[proxy_plugins.{name}]\n  type = "snapshot"\n  address = "{path}"\n'
            # Without annotations a remote snapshotter does not learn where a layer is.
            where = f'"{images}"' if is_new else f'"{images}".containerd'
            text += f'\n[plugins.{where}]\n  snapshotter = "{name}"\n  disable_snapshot_annotations = false\n'
        return text
