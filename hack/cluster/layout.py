"""Lay out the folder of a new cluster: certificates, kubeconfigs, ports.

In: an empty folder and a line. Out: a Layout (flags.py), and the files it names.

Invariant: a port that was chosen stays ours until the part that listens there has been started. It is held by a bound
socket that does not listen: with SO_REUSEADDR on both, the kernel lets the part listen there, and gives the port to
nobody else, neither to another cluster nor to a connection that somebody opens.

Why ports that the kernel chose: several clusters, of tests and by hand, must live on one machine.
"""

import contextlib
import pathlib
import socket
from collections.abc import Iterator, Mapping

from hack.cluster import extensions, flags, pki, versions


@contextlib.contextmanager
def held_ports(names: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Choose a port of the loopback interface for each name, and hold them all."""
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket()) for name in names}
        for each in sockets.values():
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((pki.LOOPBACK, 0))
        yield {name: each.getsockname()[1] for name, each in sockets.items()}


def lay_out(folder: pathlib.Path, line: versions.Line, ca: pki.Authority, ports: Mapping[str, int]) -> flags.Layout:
    """Write certificates and kubeconfigs."""
    keys = folder / "pki"
    etcd = pki.create(keys, "etcd-ca")
    layout = flags.Layout(
        folder=folder,
        ports=ports,
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
