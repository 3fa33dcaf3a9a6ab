"""muster-admitter: wiring, signals, exit codes; no rules.

`run` serves the feed, admission and inspection from one process. Exit status: 0 after a signal, 2 for settings that do not
fit (every problem on stderr, nothing started), 1 for anything else.
"""

import asyncio
import importlib.metadata
import os
import secrets
import signal
import socket
import sys

import click
import grpc
import structlog
from prometheus_client import CollectorRegistry

from admitter import cleanupcommand, collector
from admitter import config as configs
from admitter.clock import SystemClock
from admitter.config import AdmitterConfig
from admitter.core import recover
from admitter.core.book import Book
from admitter.core.safeguard import Safeguard
from admitter.loop import AdmissionLoop
from admitter.model.record import Terms
from admitter.publish.capacity import CapacityBoard
from admitter.publish.decisionlog import DecisionLog
from admitter.publish.figures import Figures
from admitter.publish.metrics import Collector
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodemetrics import NodeCollector
from admitter.services.admission import AdmissionService
from admitter.services.inspect import InspectService
from admitter.sources import clusterfile, feeds
from admitter.sources.clusterfile import ClusterFile
from admitter.sources.feeds import FeedHub
from admitter.sources.termfile import TermFile
from muster import settings, tls
from muster.pb.muster.v1 import admission_pb2_grpc, inspect_pb2_grpc
from muster.probes import ProbeServer, Readiness

_LOG = structlog.get_logger(__name__)

STOP_SECONDS = 0.5
"""Streams get this long to end; clients and agents reconnect by themselves."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_LATE_TICKS = 5
"""A loop that has not decided for so many ticks is not ready."""
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Admitter:
    """Everything that one process runs, wired from its settings."""

    def __init__(self, config: AdmitterConfig) -> None:
        self.port = 0
        """Of the gRPC server, once it listens."""
        self._config = config
        self._clock = SystemClock()
        self._terms_on_disk = TermFile(config.state_dir)
        last = self._terms_on_disk.read()
        terms = self._start_term(last, is_first=last == 0)
        self._source = ClusterFile(config.cluster_file, self._clock.monotonic) if config.cluster_file else None
        version = importlib.metadata.version("muster")
        self._hub = FeedHub(
            clock=self._clock,
            admitter=config.admitter_name,
            version=version,
            term=terms.term,
            node_ttl_seconds=config.node_ttl_seconds,
            heartbeat_ms=round(config.heartbeat_seconds * 1000),
            api_server=self._source is not None,
            slice_source=self._source.slice_of if self._source is not None else lambda _: None,
        )
        self._figures = Figures()
        self._node_figures = NodeFigures()
        self._safeguard = Safeguard(config.hold_policy)
        self._log = _decision_log(config, self._clock)
        board = CapacityBoard(self._hub.view)
        self._loop = AdmissionLoop(
            book=Book(terms, config.policy),
            feed=self._hub,
            clock=self._clock,
            log=self._log,
            board=board,
            figures=self._figures,
            renew=lambda known: self._start_term(known, is_first=False),
            tick_seconds=config.tick_seconds,
            safeguard=self._safeguard,
        )
        self._admission = AdmissionService(self._loop, self._clock.monotonic)
        self._inspect = InspectService(
            self._loop, board, self._clock.monotonic, name=config.admitter_name, version=version
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; InvalidSettings if an address or a file does not fit."""
        probes = self._probes()
        server = grpc.aio.server(options=_server_options(self._config))
        self._hub.add_to(server)
        admission_pb2_grpc.add_AdmissionServiceServicer_to_server(self._admission, server)
        inspect_pb2_grpc.add_InspectServiceServicer_to_server(self._inspect, server)
        self.port = _listen(server, self._config)
        if self._source is not None:
            self._source.refresh()
        probes.start()
        await server.start()
        collector.relax()
        _LOG.info(
            "admitter runs", name=self._config.admitter_name, term=self._loop.term, port=self.port, metrics=probes.port
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._hub.run()), group.create_task(self._loop.run())]
                if self._source is not None:
                    tasks.append(group.create_task(self._source.watch(self._hub.send_slice)))
                await stop.wait()
                _LOG.info("admitter stops")
                await server.stop(STOP_SECONDS)
                for task in tasks:
                    task.cancel()
        finally:
            await server.stop(None)
            probes.close()
            self._log.close()

    def _start_term(self, above: int, *, is_first: bool) -> Terms:
        """Put a new term on disk and return what the book needs of it."""
        term = above + 1
        self._terms_on_disk.write(term)
        config = self._config
        return Terms(
            term=term,
            prefix=f"t{term}-{secrets.token_hex(3)}",
            opens_at=recover.opens_at(self._clock.monotonic(), config.term_grace_seconds, is_first_term=is_first),
            lease_grace_seconds=config.lease_grace_seconds,
            replan_patience_seconds=config.replan_patience_seconds,
            ended_kept_seconds=config.ended_kept_seconds,
        )

    def _probes(self) -> ProbeServer:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(
            Collector(
                self._figures,
                refused=lambda: {reason.value: count for reason, count in self._hub.refused.items()},
                accepted=lambda: dict(self._hub.accepted),
                streams=lambda: len(self._hub.connected),
                lost_lines=lambda: self._log.lost,
            )
        )
        registry.register(NodeCollector(self._node_figures, lambda: self._safeguard.seen))
        address = configs.split_address(self._config.metrics_address)
        try:
            return ProbeServer(address, registry, self._readiness, program="muster-admitter")
        except OSError as error:
            raise settings.InvalidSettings([f"--metrics-address: {self._config.metrics_address}: {error}"]) from error

    def _readiness(self) -> Readiness:
        scene = self._figures.scene
        if scene is None:
            return Readiness(is_ready=False, text="no decision pass yet")
        age = self._clock.monotonic() - scene.at
        text = f"term {scene.term}, {len(scene.view.nodes)} nodes, last pass {age:.1f} s ago"
        return Readiness(is_ready=age <= _LATE_TICKS * self._config.tick_seconds, text=text)


def _decision_log(config: AdmitterConfig, clock: SystemClock) -> DecisionLog:
    try:
        return DecisionLog(config.decision_log, clock.utc)
    except OSError as error:
        raise settings.InvalidSettings([f"--decision-log: {config.decision_log}: {error}"]) from error


def _server_options(config: AdmitterConfig) -> list[tuple[str, int]]:
    options = dict(feeds.server_options(config.stream_max_age_seconds))
    # One Status answer holds the fleet in short.
    options["grpc.max_send_message_length"] = MAX_ANSWER_BYTES
    # Two admitters on one port would share the fleet's streams by chance.
    options["grpc.so_reuseport"] = 0
    return list(options.items())


def _listen(server: grpc.aio.Server, config: AdmitterConfig) -> int:
    try:
        return server.add_secure_port(config.listen, tls.server_credentials(config.tls_files))
    except RuntimeError as error:
        # Only if somebody took it after the preflight: gRPC does not say why.
        raise settings.InvalidSettings([f"--listen: {config.listen}: {error}"]) from error


def _preflight(config: AdmitterConfig) -> None:
    """Try what a start needs, before there is a term of it: InvalidSettings with all that does not work."""
    problems = []
    for flag, address in (("--listen", config.listen), ("--metrics-address", config.metrics_address)):
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
