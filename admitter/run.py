"""One admitter, wired from its settings; no rules.

In: settings. Out: a process that serves the feed, admission and inspection until it is told to stop.

Invariants: addresses, files and the API server's address are tried before there is a term. Without an API server the term is
on disk before anybody hears of it; with one this starts as a standby, and leads when the election says so (kubeside.py).

Not here: the command line and exit codes (main.py).
"""

import asyncio
import importlib.metadata
import secrets
from collections.abc import Callable, Mapping

import grpc
import structlog
from prometheus_client import CollectorRegistry

from admitter import collector
from admitter import config as configs
from admitter.config import AdmitterConfig
from admitter.core import readiness, recover
from admitter.core.book import Book
from admitter.core.observe import Tally
from admitter.core.outage import Outage
from admitter.core.safeguard import Safeguard
from admitter.gateloop import GateLoop
from admitter.kubeside import KubeSide
from admitter.loop import AdmissionLoop
from admitter.model.decision import Event
from admitter.model.leadership import Alone
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodefacts import NodeFacts
from admitter.model.promise import Rejection
from admitter.model.record import Terms
from admitter.publish.capacity import CapacityBoard
from admitter.publish.decisionlog import DecisionLog
from admitter.publish.figures import Figures
from admitter.publish.imagemetrics import ImageFigures
from admitter.publish.metrics import Collector
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodemetrics import NodeCollector
from admitter.services.admission import AdmissionService
from admitter.services.identity import Door
from admitter.services.inspect import InspectService
from admitter.services.podanswers import PodAnswers
from admitter.sources import feeds
from admitter.sources.clusterfile import ClusterFile
from admitter.sources.feeds import FeedHub
from admitter.sources.termfile import TermFile
from admitter.sources.verify import Verifier
from admitter.warmloop import WarmLoop
from muster import settings, tls
from muster.clock import SystemClock
from muster.pb.muster.v1 import admission_pb2_grpc, inspect_pb2_grpc
from muster.probes import ProbeServer, Readiness

_LOG = structlog.get_logger(__name__)

STOP_SECONDS = 0.5
"""Streams get this long to end; clients and agents reconnect by themselves."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_LATE_TICKS = 5
"""A loop that has not decided for so many ticks is not ready."""


class Admitter:
    """Everything that one process runs."""

    def __init__(self, config: AdmitterConfig) -> None:
        self.port = self.token_port = 0
        """Of the gRPC server, once it listens."""
        self._config = config
        self._clock = SystemClock()
        name, version = config.admitter_name, importlib.metadata.version("muster")
        self._kube = KubeSide(config, self._clock, name, agents=self._agents) if config.has_api_server else None
        self._source = ClusterFile(config.cluster_file, self._clock.monotonic) if config.cluster_file else None
        self._alone = Alone(name)
        self._hub = self._made_hub(name, version)
        self._figures = Figures(self._kube.confined if self._kube is not None else None)
        self._node_figures, self._image_figures = NodeFigures(), ImageFigures()
        self._safeguard = Safeguard(config.hold_policy)
        self._tally = Tally()
        self._outage = Outage(config.outage_policy, lambda: self._loop.believed, frozenset(config.lease_resources))
        self._secrets = self._kube.pull_secrets(self._clock) if self._kube and config.pull_secrets else None
        self._images = readiness.Readiness(config.image_policy)
        self._verifier = Verifier(config.verify_argv, self._clock.monotonic)
        self._log = _decision_log(config, self._clock)
        board = CapacityBoard(self._believed)
        self._loop = self._made_loop(board)
        self._warm = self._made_warm_loop()
        self._hub.listen_images(self._warm.hear, self._warm.left)
        self._door = Door(self._kube.reviews if self._kube is not None else None)
        self._admission = AdmissionService(
            self._loop, self._clock.monotonic, self._door, [level.name for level in config.levels]
        )
        self._inspect = InspectService(self._loop, board, self._clock.monotonic, self._door, name=name, version=version)
        self._terms_on_disk = TermFile(config.state_dir)
        if self._kube is None:
            last = self._terms_on_disk.read()
            self._loop.lead(self._start_term(last, is_first=last == 0))

    def _made_hub(self, name: str, version: str) -> FeedHub:
        return FeedHub(
            clock=self._clock,
            admitter=name,
            version=version,
            node_ttl_seconds=self._config.node_ttl_seconds,
            heartbeat_ms=round(self._config.heartbeat_seconds * 1000),
            api_server=self._kube is not None or self._source is not None,
            slice_source=self._slice_source(),
            name_token=self._kube.reviews.caller if self._kube is not None else None,
        )

    def _made_loop(self, board: CapacityBoard) -> AdmissionLoop:
        return AdmissionLoop(
            make_book=lambda terms: Book(terms, self._config.policy, self._images),
            guard=self._kube.elector if self._kube is not None else self._alone,
            feed=self._hub,
            clock=self._clock,
            log=self._log,
            board=board,
            figures=self._figures,
            renew=self._renew,
            tick_seconds=self._config.tick_seconds,
            safeguard=self._safeguard,
            facts=self._facts,
            rejections=self._rejections,
        )

    def _made_warm_loop(self) -> WarmLoop:
        return WarmLoop(
            feed=self._hub,
            book=lambda: self._loop.book,
            images=self._images,
            guard=self._kube.elector if self._kube is not None else self._alone,
            clock=self._clock,
            policy=self._config.policy,
            verifier=self._verifier,
            wake=self._loop.wake,
            secrets=self._secrets,
            figures=self._image_figures,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; InvalidSettings if an address or a file does not fit."""
        probes = self._probes()
        server = grpc.aio.server(options=_server_options(self._config))
        self._hub.add_to(server)
        admission_pb2_grpc.add_AdmissionServiceServicer_to_server(self._admission, server)
        inspect_pb2_grpc.add_InspectServiceServicer_to_server(self._inspect, server)
        self._listen(server)
        if self._source is not None:
            self._source.refresh()
        probes.start()
        await server.start()
        collector.relax()
        _LOG.info(
            "admitter runs",
            name=self._config.admitter_name,
            term=self._loop.term,
            port=self.port,
            token_port=self.token_port,
            metrics=probes.port,
            api_server=self._kube.api.server if self._kube is not None else "",
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = self._start(group)
                await stop.wait()
                _LOG.info("admitter stops")
                await server.stop(STOP_SECONDS)
                for task in tasks:
                    task.cancel()
                if self._kube is not None:
                    self._kube.stop()
        finally:
            await server.stop(None)
            if self._kube is not None:
                await self._kube.close()
            probes.close()
            self._log.close()

    def _start(self, group: asyncio.TaskGroup) -> list["asyncio.Task[None]"]:
        tasks = [group.create_task(self._hub.run()), group.create_task(self._loop.run())]
        tasks += [group.create_task(self._warm.run()), group.create_task(self._verifier.run())]
        if self._secrets is not None:
            tasks.append(group.create_task(self._secrets.run()))
        if self._source is not None:
            tasks.append(group.create_task(self._source.watch(self._hub.send_slice)))
        kube, config = self._kube, self._config
        if kube is not None:
            kube.cluster.listen(lambda _: self._loop.wake())
            tasks += kube.start(group, self._loop, self._terms, self._hub.send_slice)
            if config.node_conditions and not config.observe:
                loop = kube.node_loop(
                    config,
                    self._clock,
                    view=self._hub.view,
                    ruling=lambda: self._safeguard.ruling,
                    tell=self._tell,
                    figures=self._node_figures,
                    name=config.admitter_name,
                )
                tasks.append(group.create_task(loop.run()))
            gates: GateLoop | None = None
            if config.keep_pools:
                keeper = kube.node_keeper(
                    config, self._clock, leases=self._loop, tell=self._tell, name=config.admitter_name
                )
                tasks.append(group.create_task(keeper.run()))
            if config.gates:
                gates, watch = kube.gate_loop(
                    config,
                    self._clock,
                    desk=self._loop,
                    tell=self._tell,
                    name=config.admitter_name,
                    outage=self._outage,
                )
                tasks += [group.create_task(watch.run()), group.create_task(gates.run())]
            if config.observe:
                observer, watch = kube.observe_loop(
                    config,
                    self._clock,
                    desk=self._loop,
                    is_open=self._loop.is_open,
                    view=lambda: self._loop.believed,
                    tally=self._tally,
                    tell=self._tell,
                )
                tasks += [group.create_task(watch.run()), group.create_task(observer.run())]
                self._inspect.show_observed(self._tally)
            if config.webhook_listen:
                tasks.append(group.create_task(kube.serve_webhook(config)))
            self._inspect.answer_pods(PodAnswers(kube.cluster, self._believed, gates))
        return tasks

    def _believed(self) -> ClusterView:
        """Return the newest view, with the nodes closed that nothing new is leased on."""
        view, book = self._hub.view(), self._loop.book
        return view if book is None else book.trust.bar(view)

    def _agents(self) -> frozenset[str]:
        return self._hub.connected

    def _slice_source(self) -> feeds.SliceSource:
        if self._kube is not None:
            return self._kube.cluster.slice_of
        return self._source.slice_of if self._source is not None else lambda _: None

    def _facts(self) -> Mapping[str, NodeFacts] | None:
        return self._kube.cluster.facts() if self._kube is not None else None

    def _rejections(self, term: int) -> tuple[Rejection, ...]:
        return self._kube.rejections.drain(term) if self._kube is not None else ()

    def _tell(self, event: Event) -> None:
        self._log.write((event,), term=self._loop.term, view=self._loop.believed)

    def _renew(self, known: int) -> Terms | None:
        """Take a term above one that the agents know of; an election needs a moment for it."""
        if self._kube is None:
            return self._start_term(known, is_first=False)
        self._kube.elector.raise_term(known)
        return None

    def _start_term(self, above: int, *, is_first: bool) -> Terms:
        """Put a new term on disk and return what the book needs of it."""
        self._terms_on_disk.write(above + 1)
        self._alone.term = above + 1
        return self._terms(above + 1, is_first=is_first)

    def _terms(self, term: int, *, is_first: bool = False) -> Terms:
        config = self._config
        return Terms(
            term=term,
            prefix=f"t{term}-{secrets.token_hex(3)}",
            opens_at=recover.opens_at(self._clock.monotonic(), config.term_grace_seconds, is_first_term=is_first),
            lease_grace_seconds=config.lease_grace_seconds,
            replan_patience_seconds=config.replan_patience_seconds,
            ended_kept_seconds=config.ended_kept_seconds,
        )

    def _listen(self, server: grpc.aio.Server) -> None:
        config = self._config
        self.port = _bind(
            lambda: server.add_secure_port(config.listen, tls.server_credentials(config.tls_files)), "--listen"
        )
        if config.token_listen:
            self.token_port = _bind(
                lambda: server.add_secure_port(config.token_listen, tls.open_server_credentials(config.tls_files)),
                "--token-listen",
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
                outage=self._outage,
                tally=self._tally,
            )
        )
        registry.register(self._image_figures)
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
        if self._kube is not None and not self._kube.cluster.is_synced:
            return Readiness(is_ready=False, text="; ".join(self._kube.cluster.problems) or "Nodes and Pods not listed")
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


def _bind(add: Callable[[], int], flag: str) -> int:
    try:
        return add()
    except RuntimeError as error:
        # Only if somebody took it after the preflight: gRPC does not say why.
        raise settings.InvalidSettings([f"{flag}: {error}"]) from error
