"""Start and stop one cluster on loopback: control plane, and where asked for Kueue, JobSet and fake nodes.

In: a folder and what is wanted. Out: a Cluster, and in the folder cluster.json, kubeconfigs, certificates and logs.

Invariant: what `start` cannot bring up it takes down again, and the logs stay. `stop` ends only the processes that
cluster.json names, newest first, so that etcd outlives its clients.

Why ports that the kernel chose: several clusters, of tests and by hand, must live on one machine.

Not here: building (build.py), command lines (flags.py), processes (parts.py), the API objects of Kueue and JobSet
(extensions.py), nodes (fakenodes.py).
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import socket
import ssl
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from hack.cluster import assets, build, extensions, flags, grants, parts, pki, realnode, versions
from hack.cluster.parts import Part

READY_SECONDS = 90.0  # a start takes seconds; CI machines with other work on both cores have needed more
LOG_TAIL_LINES = 15
WAVES = (("etcd",), ("kube-apiserver",), ("kube-controller-manager", "kube-scheduler"))
"""What starts together; each wave needs the one before it."""
NOTHING: Mapping[str, Sequence[str]] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A started control plane."""

    folder: pathlib.Path
    line: str
    parts: tuple[Part, ...]
    node: realnode.Node | None = None
    """The real node, where there is one."""

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
    gpus: int = 8,
    real: bool = False,
    extra: Mapping[str, Sequence[str]] = NOTHING,
) -> Cluster:
    """Start a control plane in `folder`, which must not hold one yet; then the `wanted` extensions and the nodes.

    `real` adds one node with a kubelet and containerd; it needs root. `extra` holds further arguments, by part.
    """
    known = versions.programs(line)
    added = [extension for name, extension in extensions.EXTENSIONS.items() if name in wanted]
    needed = (*versions.CONTROL_PLANE, *(each.name for each in added), *(versions.NODE if real else ()))
    binaries = build.ensure([known[name] for name in needed])
    folder = folder.resolve()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    authority = pki.create(folder / "pki", "ca")
    layout = _lay_out(folder, versions.LINES[line], authority)
    starting = _Starting(layout, Cluster(folder=folder, line=line, parts=()))
    try:
        for wave in WAVES:
            commands = {
                name: [str(binaries[name]), *flags.arguments(layout, name), *extra.get(name, ())] for name in wave
            }
            starting.launch(commands)
            starting.wait()
        for extension in added:
            manifests = assets.folder(known[extension.name]) / assets.MANIFESTS
            arguments = extensions.install(layout, extension, manifests, authority)
            starting.launch({extension.name: [str(binaries[extension.name]), *arguments]})
            extensions.mount(layout, extension)
            starting.wait()
        if nodes:
            grants.apply(starting.cluster.kubeconfig)
            fleet = [f"--kubeconfig={layout.kubeconfig('fakenodes')}", f"--nodes={nodes}", f"--gpus={gpus}"]
            fleet.append(f"--health-port={layout.ports['fakenodes']}")
            starting.launch({"fakenodes": [sys.executable, "-m", "hack.cluster.fakenodes", *fleet]})
            starting.wait()
        if real:
            _start_node(starting, layout, binaries, authority)
    except BaseException:
        stop(starting.cluster, keep=True)
        raise
    return starting.cluster


def _start_node(
    starting: "_Starting", layout: flags.Layout, binaries: Mapping[str, pathlib.Path], authority: pki.Authority
) -> None:
    """Start containerd and a kubelet inside its namespaces, and a device plugin outside."""
    real = realnode.Node(folder=layout.folder / "node", ports=layout.ports)
    starting.cluster = dataclasses.replace(starting.cluster, node=real)
    realnode.write_files(real, layout, authority)
    realnode.make_cgroups(real)
    starting.launch({"containerd": realnode.containerd_command(real, binaries)})
    realnode.import_image(real, binaries["ctr"])
    namespace = starting.first_child("containerd")
    kubelet = realnode.inside(namespace, str(binaries["kubelet"]), *realnode.kubelet_arguments(real, layout))
    starting.launch({"kubelet": kubelet})
    starting.wait()
    starting.launch(
        {"deviceplugin": [sys.executable, "-m", "hack.cluster.deviceplugin", *realnode.plugin_arguments(real)]}
    )


class _Starting:
    """A cluster that grows part by part; what has been started is written down before it is waited for."""

    def __init__(self, layout: flags.Layout, cluster: Cluster) -> None:
        self.cluster = cluster
        self._layout = layout
        self._context = _context(cluster.folder)

    def launch(self, commands: Mapping[str, list[str]]) -> None:
        for name, command in commands.items():
            log = self.cluster.folder / "logs" / f"{name}.log"
            part = parts.start(name, command, probe=flags.probe_url(self._layout, name), log=log)
            self.cluster = dataclasses.replace(self.cluster, parts=(*self.cluster.parts, part))
            _write(self.cluster)

    def first_child(self, name: str) -> int:
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
            _wait(part, self._context)


def stop(cluster: Cluster, *, keep: bool = False) -> None:
    """End every part; remove the folder unless it is to be looked at."""
    for part in reversed(cluster.parts):
        parts.stop(part)
    if cluster.node is not None:
        realnode.remove_cgroups(cluster.node)
    (cluster.folder / "cluster.json").unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(cluster.folder)


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
    """Return the cluster that was started in `folder`, or None."""
    path = folder / "cluster.json"
    if not path.exists():
        return None
    form: dict[str, Any] = json.loads(path.read_text())
    started = tuple(_part(entry) for entry in form["parts"])
    ports = form["node_ports"]
    real = realnode.Node(folder=folder.resolve() / "node", ports=ports) if ports else None
    return Cluster(folder=folder.resolve(), line=form["line"], parts=started, node=real)


def _part(entry: dict[str, Any]) -> Part:
    return Part(**{**entry, "log": pathlib.Path(entry["log"]), "command": tuple(entry["command"])})


def _write(cluster: Cluster) -> None:
    form = {
        "line": cluster.line,
        "parts": [dataclasses.asdict(part) for part in cluster.parts],
        "node_ports": dict(cluster.node.ports) if cluster.node else {},
    }
    path = cluster.folder / "cluster.json"
    path.with_suffix(".new").write_text(json.dumps(form, default=str, indent=1))
    path.with_suffix(".new").replace(path)


def _wait(part: Part, context: ssl.SSLContext) -> None:
    wrong = parts.wait_until_ready(part, context, seconds=READY_SECONDS)
    if wrong:
        tail = part.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        raise NotStarted("\n".join([f"{part.name}: {wrong}; its log is {part.log} and ends with:", *tail]))


def _context(folder: pathlib.Path) -> ssl.SSLContext:
    admin = pki.Pair(certificate=folder / "pki" / "user-admin.pem", key=folder / "pki" / "user-admin.key")
    return parts.client_context(folder / "pki" / "ca.pem", admin)


def _lay_out(folder: pathlib.Path, line: versions.Line, ca: pki.Authority) -> flags.Layout:
    """Write certificates and kubeconfigs, and choose ports."""
    keys = folder / "pki"
    etcd = pki.create(keys, "etcd-ca")
    layout = flags.Layout(
        folder=folder,
        ports=dict(zip(flags.PORTS, free_ports(len(flags.PORTS)), strict=True)),
        etcd_authority=etcd.pair,
        etcd_server=etcd.issue_server("etcd"),
        etcd_client=etcd.issue_client("etcd-client", "kube-apiserver"),
        authority=ca.pair,
        server=ca.issue_server("server", "kubernetes.default.svc"),
        service_accounts=pki.create_service_account_keys(keys),
        feature_gates=line.feature_gates,
        runtime_config=line.runtime_config,
    )
    users = {**flags.USERS, **{name: extension.user for name, extension in extensions.EXTENSIONS.items()}}
    for name, (user, groups) in users.items():
        layout.kubeconfig(name).write_text(flags.kubeconfig(layout, ca.issue_client(f"user-{name}", user, *groups)))
    return layout


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((pki.LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
