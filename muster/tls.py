"""Mutual TLS between agents, admitters and clients, and who a peer is.

In: three PEM files. Out: credentials for gRPC, and the name behind an authenticated connection.

Invariant: a name comes from a certificate that the authority signed and the handshake proved, never from a message. A
peer with no name of ours, or with more than one, is nobody.

Why a SAN URI: a node's certificate then has no host name, so it can never pass for an admitter's.

Why files are read at every dial: a certificate that was renewed on disk is used at the next connection, and a stream's
maximum age makes sure that there is one.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping

import grpc

from muster import settings

NODE_PREFIX = "muster:node:"
CLIENT_PREFIX = "muster:client:"
ADMITTER_NAME = "muster-admitter"
"""DNS name in every admitter's certificate: agents dial addresses, and check this name."""

DIAL_OPTIONS = (("grpc.ssl_target_name_override", ADMITTER_NAME),)
"""Channel options of everybody who dials an admitter by address."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where one identity lies on disk."""

    ca: pathlib.Path
    certificate: pathlib.Path
    key: pathlib.Path


def channel_credentials(files: Files) -> grpc.ChannelCredentials:
    """Return what a client dials with; InvalidSettings names every file that does not fit."""
    ca, certificate, key = _read_all(files)
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=certificate)


def server_credentials(files: Files) -> grpc.ServerCredentials:
    """Return what a server listens with: every client must show a certificate of the same authority."""
    ca, certificate, key = _read_all(files)
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)


def open_channel_credentials(ca: pathlib.Path) -> grpc.ChannelCredentials:
    """Return what a client dials with that shows a token (bearer.py) instead of a certificate."""
    return grpc.ssl_channel_credentials(root_certificates=_read_pems({"ca": ca})[0])


def open_server_credentials(files: Files) -> grpc.ServerCredentials:
    """Return what a server listens with whose clients show tokens. It asks for no certificate: Python's gRPC can either
    require one or not look at one."""
    _, certificate, key = _read_all(files)
    return grpc.ssl_server_credentials([(key, certificate)])


def peer_node(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """Return the node that the peer is, or an empty text."""
    return _name(auth_context, NODE_PREFIX)


def peer_client(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """Return the client that the peer is, or an empty text."""
    return _name(auth_context, CLIENT_PREFIX)


def _name(auth_context: Mapping[str, Iterable[bytes]], prefix: str) -> str:
    """Return the one name that the certificate carries.

    >>> _name({"x509_subject_alternative_name": [b"muster:node:a"]}, NODE_PREFIX)
    'a'
    >>> _name({"x509_subject_alternative_name": [b"muster:node:a", b"muster:node:b"]}, NODE_PREFIX)
    ''
    """
    names = [
        name.decode("utf-8", "replace")
        for name in auth_context.get("x509_subject_alternative_name", ())
        if name.startswith(b"muster:")
    ]
    return names[0].removeprefix(prefix) if len(names) == 1 and names[0].startswith(prefix) else ""


def _read_all(files: Files) -> tuple[bytes, bytes, bytes]:
    paths = {field.name: getattr(files, field.name) for field in dataclasses.fields(files)}
    contents = _read_pems(paths)
    return contents[0], contents[1], contents[2]


def _read_pems(paths: Mapping[str, pathlib.Path]) -> list[bytes]:
    problems = []
    contents = []
    for name, path in paths.items():
        content = b""
        try:
            content = path.read_bytes()
        except OSError as error:
            problems.append(f"{name}: {path}: {error.strerror or error}")
        else:
            if b"-----BEGIN " not in content:
                problems.append(f"{name}: {path}: is not PEM")
        contents.append(content)
    if problems:
        raise settings.InvalidSettings(problems)
    return contents
