"""Start and stop one cluster on loopback: control plane, and where asked for Kueue, JobSet and fake nodes.

In: a folder and what is wanted. Out: a Cluster, and in the folder cluster.json, kubeconfigs, certificates and logs.

Invariant: what `start` cannot bring up it takes down again, and the logs stay. `stop` ends only the cluster's own
processes, newest first, so that etcd outlives its clients; those a killed start has not written down yet are found by
their mark (parts.py). A cluster is complete only once all that was asked for works.

Not here: building (build.py), folders and ports (layout.py), command lines (flags.py), processes (parts.py), the API
objects of Kueue and JobSet (extensions.py), nodes (fakenodes.py, realnode.py).
"""

import dataclasses
import json
import pathlib
import shutil
import ssl
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from hack.cluster import (
    assets,
    build,
    extensions,
    fakekubelet,
    flags,
    grants,
    layout,
    nodefiles,
    parts,
    pki,
    realnode,
    versions,
)
from hack.cluster.parts import Part

READY_SECONDS = 90.0  # a start takes seconds; CI machines with other work on both cores have needed more
NODE_SECONDS = 1.0  # for each fake node to register; 0.03 at a load of 10, more than 0.3 at a load of 40
LOG_TAIL_LINES = 15
GPUS = 8  # of a fake node
WAVES = (("etcd",), ("kube-apiserver",), ("kube-controller-manager", "kube-scheduler"))
"""What starts together; each wave needs the one before it."""
NOTHING: Mapping[str, Sequence[str]] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a cluster is to consist of, beyond the control plane."""

    line: str
    wanted: tuple[str, ...] = ()
    """Extensions."""
    nodes: int = 0
    gpus: int = GPUS
    real: bool = False

    @property
    def options(self) -> str:
        """What `make cluster` is called with to get this.

        >>> Asked(line="1.37", wanted=("kueue",), nodes=4).options
        '--line 1.37 --with kueue --nodes 4'
        """
        words = [f"--line {self.line}", *(f"--with {name}" for name in self.wanted)]
        words += [f"--nodes {self.nodes}"] if self.nodes else []
        words += [f"--gpus {self.gpus}"] if self.gpus != GPUS else []
        return " ".join([*words, *["--real"] * self.real])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A started control plane."""

    folder: pathlib.Path
    asked: Asked
    parts: tuple[Part, ...] = ()
    node: realnode.Node | None = None
    """The real node, where there is one."""
    is_complete: bool = False
    """Everything that was asked for has worked once."""

    @property
    def line(self) -> str:
        return self.asked.line

    @property
    def logs(self) -> pathlib.Path:
        return self.folder / "logs"

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The administrator's; flags.USERS names the others."""
        return self.folder / "admin.kubeconfig"

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    def kubeconfig_of(self, user: str) -> pathlib.Path:
        return self.folder / f"{user}.kubeconfig"


class NotStarted(Exception):
    """A part did not come up; the text says which, why, and where its log is."""


def start(
    folder: pathlib.Path,
    line: str,
    *,
    wanted: Sequence[str] = (),
    nodes: int = 0,
    gpus: int = GPUS,
    real: bool = False,
    extra: Mapping[str, Sequence[str]] = NOTHING,
) -> Cluster:
    """Start a control plane in `folder`, which must not hold one yet; then the `wanted` extensions and the nodes.

    `real` adds one node with a kubelet and containerd; it needs root. `extra` holds further arguments, by part.
    """
    asked = Asked(line=line, wanted=tuple(sorted(wanted)), nodes=nodes, gpus=gpus, real=real)
    known = versions.programs(line)
    needed = (*versions.CONTROL_PLANE, *asked.wanted, *(versions.NODE if real else ()))
    binaries = build.ensure([known[name] for name in needed])
    cluster = Cluster(folder=folder.resolve(), asked=asked)
    cluster.logs.mkdir(parents=True, exist_ok=True)
    authority = pki.create(cluster.folder / "pki", "ca")
    with layout.held_ports(flags.PORTS) as ports:
        laid_out = layout.lay_out(cluster.folder, versions.LINES[line], authority, ports)
        starting = _Starting(laid_out, cluster, binaries)
        try:
            starting.start_control_plane(extra)
            for name, extension in extensions.EXTENSIONS.items():
                if name in asked.wanted:
                    starting.start_extension(extension, assets.folder(known[name]) / assets.MANIFESTS, authority)
            if nodes:
                starting.start_fake_nodes()
            if real:
                starting.start_node(authority)
            starting.change(is_complete=True)
        except BaseException:
            stop(starting.cluster, keep=True)
            raise
    return starting.cluster


class _Starting:
    """A cluster that grows part by part; what has been started is written down before it is waited for."""

    def __init__(self, laid_out: flags.Layout, cluster: Cluster, binaries: Mapping[str, pathlib.Path]) -> None:
        self.cluster = cluster
        self._layout = laid_out
        self._binaries = binaries
        self._context = _context(cluster.folder)

    def start_control_plane(self, extra: Mapping[str, Sequence[str]]) -> None:
        for wave in WAVES:
            self.launch({name: [*self._command(name), *extra.get(name, ())] for name in wave})
            self.wait()

    def _command(self, name: str) -> list[str]:
        command = [str(self._binaries[name]), *flags.arguments(self._layout, name)]
        grace = fakekubelet.grace_seconds(self.cluster.asked.nodes)
        if name == "kube-controller-manager" and grace > fakekubelet.grace_seconds(0):
            # Of many fake nodes each renews its lease more seldom than a kubelet does.
            command.append(f"--node-monitor-grace-period={grace:.0f}s")
        return command

    def start_extension(self, extension: extensions.Extension, manifests: pathlib.Path, ca: pki.Authority) -> None:
        arguments = extensions.install(self._layout, extension, manifests, ca)
        self.launch({extension.name: [str(self._binaries[extension.name]), *arguments]})
        extensions.mount(self._layout, extension)
        self.wait()

    def start_fake_nodes(self) -> None:
        grants.apply(self.cluster.kubeconfig)
        asked = self.cluster.asked
        fleet = [f"--kubeconfig={self._layout.kubeconfig('fakenodes')}", f"--nodes={asked.nodes}"]
        fleet += [f"--gpus={asked.gpus}", f"--health-port={self._layout.ports['fakenodes']}"]
        self.launch({"fakenodes": [sys.executable, "-m", "hack.cluster.fakenodes", *fleet]})
        self.wait()

    def start_node(self, authority: pki.Authority) -> None:
        """Start containerd and a kubelet inside namespaces of the node, and a device plugin outside."""
        real = realnode.Node(folder=self.cluster.folder / "node", ports=self._layout.ports)
        self.change(node=real)
        nodefiles.write_files(real, self._layout, authority, self._binaries["containerd"])
        realnode.make_cgroups(real)
        self.launch({"namespaces": realnode.namespaces_command(real)})
        realnode.wait_until_entered(real)
        first = self._first_child("namespaces")
        self.launch({"containerd": realnode.inside(first, *realnode.containerd_command(real, self._binaries))})
        realnode.import_image(real, self._binaries["ctr"])
        kubelet = [str(self._binaries["kubelet"]), *realnode.kubelet_arguments(real, self._layout)]
        self.launch({"kubelet": realnode.inside(first, *kubelet)})
        self.wait()
        plugin = [sys.executable, "-m", "hack.cluster.deviceplugin", *realnode.plugin_arguments(real)]
        self.launch({"deviceplugin": plugin})
        realnode.wait_until_ready(self.cluster.kubeconfig)

    def launch(self, commands: Mapping[str, list[str]]) -> None:
        for name, command in commands.items():
            log = self.cluster.logs / f"{name}.log"
            part = parts.start(name, command, probe=flags.probe_url(self._layout, name), log=log)
            self.change(parts=(*self.cluster.parts, part))

    def change(self, **fields: Any) -> None:
        self.cluster = dataclasses.replace(self.cluster, **fields)
        _write(self.cluster)

    def _first_child(self, name: str) -> int:
        """Return the PID of the process that a part runs its own program in."""
        part = self.cluster.part(name)
        process = part.process()
        children = process.children() if process else []
        if not children:
            raise NotStarted(f"{name}: not running; its log is {part.log}")
        return children[0].pid

    def wait(self) -> None:
        """Wait until every part works."""
        for part in self.cluster.parts:
            _wait(part, self._context, READY_SECONDS + NODE_SECONDS * self.cluster.asked.nodes)


def stop(cluster: Cluster, *, keep: bool = False) -> None:
    """End every part; remove the folder unless it is to be looked at."""
    for part in reversed(cluster.parts):
        parts.stop(part)
    parts.stop_strays(cluster.logs)
    if cluster.node is not None:
        realnode.remove_cgroups(cluster.node)
    (cluster.folder / "cluster.json").unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(cluster.folder)


def clear(folder: pathlib.Path) -> None:
    """End whatever belongs to the folder and remove it, whether or not it says what it holds."""
    cluster = read(folder)
    if cluster is not None:
        stop(cluster)
    elif folder.exists():
        parts.stop_strays(folder.resolve() / "logs")
        shutil.rmtree(folder)


def restart(cluster: Cluster, name: str) -> Cluster:
    """Stop one part, if it still runs, and start it as it was; wait until it works."""
    part = cluster.part(name)
    started = parts.restart(part)
    after = dataclasses.replace(cluster, parts=tuple(started if each == part else each for each in cluster.parts))
    _write(after)
    _wait(started, _context(cluster.folder))
    return after


def faults(cluster: Cluster) -> dict[str, str]:
    """Return what is wrong, by part; empty when the cluster works."""
    context = _context(cluster.folder)
    found = {part.name: parts.fault(part, context) for part in cluster.parts}
    return {name: wrong for name, wrong in found.items() if wrong}


def read(folder: pathlib.Path) -> Cluster | None:
    """Return the cluster that was started in `folder`; None where there is none, or no file that says so."""
    folder = folder.resolve()
    try:
        form: dict[str, Any] = json.loads((folder / "cluster.json").read_text())
        ports = form["node_ports"]
        return Cluster(
            folder=folder,
            asked=Asked(**{**form["asked"], "wanted": tuple(form["asked"]["wanted"])}),
            parts=tuple(_part(entry) for entry in form["parts"]),
            node=realnode.Node(folder=folder / "node", ports=ports) if ports else None,
            is_complete=form["is_complete"],
        )
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None


def _part(entry: dict[str, Any]) -> Part:
    return Part(**{**entry, "log": pathlib.Path(entry["log"]), "command": tuple(entry["command"])})


def _write(cluster: Cluster) -> None:
    form = {
        "asked": dataclasses.asdict(cluster.asked),
        "is_complete": cluster.is_complete,
        "parts": [dataclasses.asdict(part) for part in cluster.parts],
        "node_ports": dict(cluster.node.ports) if cluster.node else {},
    }
    path = cluster.folder / "cluster.json"
    path.with_suffix(".new").write_text(json.dumps(form, default=str, indent=1))
    path.with_suffix(".new").replace(path)


def _wait(part: Part, context: ssl.SSLContext, seconds: float = READY_SECONDS) -> None:
    wrong = parts.wait_until_ready(part, context, seconds=seconds)
    if wrong:
        tail = part.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        raise NotStarted("\n".join([f"{part.name}: {wrong}; its log is {part.log} and ends with:", *tail]))


def _context(folder: pathlib.Path) -> ssl.SSLContext:
    admin = pki.Pair(certificate=folder / "pki" / "user-admin.pem", key=folder / "pki" / "user-admin.key")
    return parts.client_context(folder / "pki" / "ca.pem", admin)
