"""How every operator command reaches the admitter, and the exit status that says how it went.

0: nothing is wrong and nothing waits; 1: something does; 2: bad input; 3: no answer.
"""

import asyncio
import contextlib
import dataclasses
import enum
import functools
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import click
import grpc

from muster import client, settings, tls, tlscheck
from muster.cli import clusterdoor
from muster.cli.noanswer import NoAnswer
from muster.settings import setting

PREFIX = "MUSTER_ADMITTER"


class Exit(enum.IntEnum):
    """Exit status of every operator command."""

    FINE = 0
    SOMETHING = 1
    BAD_INPUT = 2
    NO_ANSWER = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    address: str = setting("127.0.0.1:7443", text="the admitter, host:port")
    ca: pathlib.Path | None = setting(None, text="CA that the admitter's certificate must have")
    certificate: pathlib.Path | None = setting(None, text="own certificate, of a client")
    key: pathlib.Path | None = setting(None, text="key of the own certificate")
    account: str = setting(
        "",
        text="service account NAMESPACE/NAME to ask as, in a cluster: a token of it and a port-forward to the leader are "
        "got through kubectl, and no address and no certificate are needed",
    )
    namespace: str = setting("muster-system", text="where the admitter runs, with --account")
    timeout_seconds: float = setting(10.0, text="how long to wait for an answer", low=0.1, high=600)


def _tls(connection: Connection) -> str:
    if connection.account:
        return ""
    ca, certificate, key = connection.ca, connection.certificate, connection.key
    if ca is None or certificate is None or key is None:
        given = (("--ca", "ca", ca), ("--certificate", "certificate", certificate), ("--key", "key", key))
        missing = [(flag, name) for flag, name, path in given if path is None]
        return "\n".join(
            f"{flag} ({settings.variable_of(PREFIX, name)}): is required without --account" for flag, name in missing
        )
    return "\n".join(
        tlscheck.problems(
            ca=tlscheck.Named(flag="--ca", path=ca),
            certificate=tlscheck.Named(flag="--certificate", path=certificate),
            key=tlscheck.Named(flag="--key", path=key),
            is_server=False,
        )
    )


def _account(connection: Connection) -> str:
    namespace, _, name = connection.account.partition("/")
    if not connection.account or (namespace and name and "/" not in name):
        return ""
    return f"--account: {connection.account!r} is not NAMESPACE/NAME"


def _address(connection: Connection) -> str:
    """Hold the address to host:port: gRPC takes a missing port for 443, and any number modulo 65536."""
    host, _, port = connection.address.rpartition(":")
    if host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535:
        return ""
    return f"--address: {connection.address!r} is not host:port"


_CLOSED = "Socket closed"
"""All that gRPC says when the other side refuses our certificate."""
_ASKED_BADLY = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        # An answer, and a certificate that may not ask.
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_CHECKS: tuple[settings.Check, ...] = (_address, _tls, _account)

Ask = Callable[..., Awaitable[Exit]]
Instead = Callable[[Mapping[str, Any]], Exit]


def command(ask: Ask, instead: Instead | None = None) -> Callable[..., None]:
    """Make a click callback of an async function that gets a connected client and the connection's settings first.

    `instead` is asked, with the command's own arguments, when nobody answers at the address.
    """

    @settings.options(Connection, PREFIX)
    @functools.wraps(ask)
    def callback(**arguments: Any) -> None:
        names = {field.name for field in dataclasses.fields(Connection)}
        flags = {name: arguments.pop(name) for name in names}
        sys.exit(_run(ask, flags, arguments, instead))

    return callback


def _run(ask: Ask, flags: dict[str, str | None], arguments: dict[str, Any], instead: Instead | None) -> Exit:
    try:
        connection = settings.load(Connection, PREFIX, flags, os.environ, _CHECKS)
        return asyncio.run(_asked(ask, connection, arguments))
    except settings.InvalidSettings as error:
        for problem in error.problems:
            click.echo(f"muster: {problem}", err=True)
        return Exit.BAD_INPUT
    except client.Refused as error:
        click.echo(f"muster: {error.detail}", err=True)
        return Exit.BAD_INPUT if error.code in _ASKED_BADLY else Exit.NO_ANSWER
    except client.Unreachable as error:
        hint = " (so ends a connection whose certificate the admitter does not accept)" if _CLOSED in str(error) else ""
        where = f"the leader in {connection.namespace}" if connection.account else connection.address
        click.echo(f"muster: no answer from {where}: {error}{hint}", err=True)
        return _ask_instead(instead, arguments) if instead is not None else Exit.NO_ANSWER
    except NoAnswer as error:
        click.echo(f"muster: no way to the admitter: {error}", err=True)
        return _ask_instead(instead, arguments) if instead is not None else Exit.NO_ANSWER


def _ask_instead(instead: Instead, arguments: Mapping[str, Any]) -> Exit:
    try:
        return instead(arguments)
    except NoAnswer as error:
        click.echo(f"muster: nor from the cluster: {error}", err=True)
        return Exit.NO_ANSWER


async def _asked(ask: Ask, connection: Connection, arguments: dict[str, Any]) -> Exit:
    if connection.account:
        with clusterdoor.opened(connection.account, connection.namespace) as door:
            async with _shown(door) as admitter:
                return await ask(admitter, connection.timeout_seconds, **arguments)
    assert connection.ca is not None
    assert connection.certificate is not None
    assert connection.key is not None
    files = tls.Files(ca=connection.ca, certificate=connection.certificate, key=connection.key)
    async with client.connect(connection.address, files) as admitter:
        return await ask(admitter, connection.timeout_seconds, **arguments)


@contextlib.asynccontextmanager
async def _shown(door: clusterdoor.Door) -> AsyncIterator[client.Client]:
    """Connect with a token in place of a certificate."""
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(root_certificates=door.ca), grpc.access_token_call_credentials(door.token)
    )
    options = (*tls.DIAL_OPTIONS, ("grpc.max_receive_message_length", client.MAX_ANSWER_BYTES))
    async with grpc.aio.secure_channel(door.address, credentials, options=options) as channel:
        yield client.Client(channel)
