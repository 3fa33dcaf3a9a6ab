"""A gRPC server on a unix socket that its successor takes over: who starts later has the path, whoever ends later.

In: a server and the path that clients know. Out: the server listens there, with its mode right from the first moment.

Invariant: a server never takes away a socket that is not its own. gRPC unlinks the path it was given, some time after the server
was told to stop; by then the path may be a successor's, which would go on serving nobody. So each server is given a path
of its own, and the file is then moved to where the clients look.

What is left: a server that ends leaves its socket file. A client gets "connection refused" instead of "no such file".
"""

import contextlib
import os
import pathlib
import secrets
import socket

import grpc.aio

_CONNECT_SECONDS = 2.0

File = tuple[int, int]
"""Device and inode: what a file is under any name."""


async def start(server: grpc.aio.Server, path: pathlib.Path, mode: int) -> File:
    """Start a server at a path, in place of whatever is there; return which file its socket is.

    Raises OSError or RuntimeError where it cannot be bound.
    """
    os.makedirs(path.parent, exist_ok=True)
    own = path.with_name(f".{secrets.token_hex(3)}")  # No longer than the name it gets: a path has 107 bytes.
    before = os.umask(0o777 & ~mode)
    try:
        server.add_insecure_port(f"unix:{own}")
        await server.start()
    finally:
        os.umask(before)
    file = identity(own)
    assert file is not None
    try:
        os.replace(own, path)
    except OSError:
        await server.stop(grace=None)
        raise
    return file


def identity(path: pathlib.Path) -> File | None:
    """Return which file is at a path; None: there is none."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def is_lost(path: pathlib.Path, own: File) -> bool:
    """True if nobody can reach a server at its path any more: it was removed, or it is one that nobody serves.

    One that another server took over is that server's affair.
    """
    return identity(path) != own and not is_served(path)


def is_served(path: pathlib.Path) -> bool:
    """True if somebody takes connections at a path."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
