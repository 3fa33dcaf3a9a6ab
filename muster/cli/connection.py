"""How every operator command reaches the admitter, and the exit status that says how it went.

0: nothing is wrong and nothing waits; 1: something does; 2: bad input; 3: no answer.
"""

import asyncio
import dataclasses
import enum
import functools
import os
import pathlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click
import grpc

from muster import client, settings, tls
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
    ca: pathlib.Path = setting(text="CA that the admitter's certificate must have")
    certificate: pathlib.Path = setting(text="own certificate, of a client")
    key: pathlib.Path = setting(text="key of the own certificate")
    timeout_seconds: float = setting(10.0, text="how long to wait for an answer", low=0.1, high=600)


Ask = Callable[..., Awaitable[Exit]]


def command(ask: Ask) -> Callable[..., None]:
    """Make a click callback of an async function that gets a connected client and the connection's settings first."""

    @settings.options(Connection, PREFIX)
    @functools.wraps(ask)
    def callback(**arguments: Any) -> None:
        names = {field.name for field in dataclasses.fields(Connection)}
        flags = {name: arguments.pop(name) for name in names}
        sys.exit(_run(ask, flags, arguments))

    return callback


def _run(ask: Ask, flags: dict[str, str | None], arguments: dict[str, Any]) -> Exit:
    try:
        connection = settings.load(Connection, PREFIX, flags, os.environ)
        return asyncio.run(_asked(ask, connection, arguments))
    except settings.InvalidSettings as error:
        for problem in error.problems:
            click.echo(f"muster: {problem}", err=True)
        return Exit.BAD_INPUT
    except client.Refused as error:
        click.echo(f"muster: {error.detail}", err=True)
        asked_badly = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        return Exit.BAD_INPUT if error.code in asked_badly else Exit.NO_ANSWER
    except client.Unreachable as error:
        click.echo(f"muster: no answer from {connection.address}: {error}", err=True)
        return Exit.NO_ANSWER


async def _asked(ask: Ask, connection: Connection, arguments: dict[str, Any]) -> Exit:
    files = tls.Files(ca=connection.ca, certificate=connection.certificate, key=connection.key)
    async with client.connect(connection.address, files) as admitter:
        return await ask(admitter, connection.timeout_seconds, **arguments)
