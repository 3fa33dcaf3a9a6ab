"""muster-admitter: the command line, signals, exit codes; no rules.

`run` serves the feed, admission and inspection from one process. Exit status: 0 after a signal, 2 for settings that do not
fit (every problem on stderr, nothing started), 1 for anything else.
"""

import asyncio
import os
import signal
import socket
import sys

import click
import structlog

from admitter import cleanupcommand
from admitter import config as configs
from admitter.config import AdmitterConfig
from admitter.run import Admitter
from admitter.sources import clusterfile
from muster import settings

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _preflight(config: AdmitterConfig) -> None:
    """Try what a start needs, before there is a term of it: InvalidSettings with all that does not work."""
    problems = []
    for flag, address in config.addresses.items():
        try:
            _try_address(*configs.split_address(address))
        except OSError as error:
            problems.append(f"{flag}: {address}: {error.strerror or error}")
    if config.cluster_file is not None:
        try:
            clusterfile.parse(config.cluster_file.read_bytes())
        except OSError as error:
            problems.append(f"--cluster-file: {config.cluster_file}: {error.strerror or error}")
        except ValueError as error:
            problems.append(f"--cluster-file: {config.cluster_file}: {error}")
    if problems:
        raise settings.InvalidSettings(problems)


def _try_address(host: str, port: int) -> None:
    """Bind to an address and let go of it; OSError says why that is not possible."""
    family, kind, _, _, place = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind) as probe:
        # As a server does: connections that linger from a former process are in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)


@click.group()
def main() -> None:
    """Decide which gang starts where, from what the nodes can really serve."""


main.add_command(cleanupcommand.command, "cleanup")


@main.command()
@settings.options(AdmitterConfig, configs.PREFIX)
def run(**flags: str | None) -> None:
    """Serve agents, clients and operators."""
    try:
        config = configs.from_flags(flags, os.environ)
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        _preflight(config)
        asyncio.run(_run(config))
    except settings.InvalidSettings as error:
        for problem in error.problems:
            click.echo(f"muster-admitter: {problem}", err=True)
        sys.exit(2)


async def _run(config: AdmitterConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Admitter(config).run(stop)
