"""Wire the agent and run it until a signal.

In: AgentConfig. Out: an exit status: 0 after SIGTERM or SIGINT, 1 if a part of the agent ended by itself.

Invariant: everything that can be wrong with the configuration is found before the first socket is opened, and within
`STOP_SECONDS` of a signal the process is gone, whatever hangs: a child reader ends with its standard input.

No rules here: what is read, decided and told lives in sources, core, loop and publish.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import structlog
from prometheus_client import CollectorRegistry

from agent import answers, loop, policyfile
from agent.config import AgentConfig, split_address
from agent.core import judge, manners, topology
from agent.core.rules import table
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.publish import evidence, feed, metrics
from agent.publish.board import Board
from agent.sources import (
    checkpoint,
    control,
    hungreader,
    podresources,
    reader,
    readerprocess,
    sample,
    session,
    warmer,
    warmrelay,
)
from agent.sources.slice import SliceStore
from muster import bearer, clock, probes, settings, tls
from muster.model import codec, kube
from muster.model.lease import LeaseSet
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import NodeReport, Topology
from muster.pb.muster.v1 import feed_pb2

_LOG = structlog.get_logger(__name__)

STOP_SECONDS = 2.0


class _NoFeed:
    """Stands in the feed's place where no admitter is configured: the metrics still tell."""

    sent: Mapping[str, int] = codec.EMPTY
    state = feed.FeedState()

    def publish(self, report: NodeReport, topology: Topology) -> None:
        """There is nobody to tell."""

    def set_plane_ages(self, seconds: Mapping[str, float]) -> None:
        """There is nobody to tell."""


def load_policy(config: AgentConfig) -> Policy:
    """Return the policy of the file, on the configured time scale; InvalidSettings if the file does not fit."""
    policy = policyfile.load(config.policy) if config.policy is not None else Policy()
    return dataclasses.replace(policy, time_scale=config.time_scale)


class Agent:
    """All parts of one agent, wired."""

    def __init__(self, config: AgentConfig, policy: Policy) -> None:
        self._policy = policy
        self._config = config
        self._time = clock.SystemClock()
        self._board = Board()
        boot_id = evidence.read_boot_id(config.boot_id_path)
        keeper = evidence.EvidenceFile(config.evidence_dir, boot_id)
        began = keeper.start(self._time.monotonic())
        self._reader = reader.ReaderClient(
            config.reader_socket,
            call_timeout_seconds=config.nvml_deadline_seconds,
            static_timeout_seconds=config.nvml_slow_deadline_seconds,
        )
        self._child = self._spawned() if config.spawn_reader else None
        self._kubelet = podresources.PodResources(
            config.podresources_socket, deadline_seconds=config.kubelet_deadline_seconds
        )
        self._slices = SliceStore(grace_seconds=config.slice_grace_seconds, expect_api_server=bool(config.admitters))
        self._session = session.SessionKeeper(
            time=self._time, reader=self._reader, node=self._node, manners=_manners(policy)
        )
        self._feed = self._dialled(boot_id, began) if config.admitters else None
        self._loop = loop.Loop(
            time=self._time,
            timing=loop.Timing(
                poll=config.poll_seconds,
                coalesce=config.coalesce_seconds,
                start_delay=random.uniform(0, config.start_jitter_seconds),  # noqa: S311 -- jitter, not a secret
            ),
            sampler=self._sampler(),
            session=self._session,
            watchdog=hungreader.Watchdog(self._reader, self._child),
            judge=_judge(policy),
            topology_of=topology.topology,
            feed=self._feed or _NoFeed(),
            board=self._board,
            keeper=keeper,
            evidence=began,
            expected_gpus=config.expected_gpus,
        )
        told = answers.Answers(board=self._board, session=self._session, cycles=self._loop)
        self._control = control.ControlServer(config.control_socket, told.commands)
        self._probes: probes.ProbeServer | None = None
        self._relay: warmrelay.WarmRelay | None = None

    async def run(self) -> int:
        """Run until a signal, or until a part ends that never should."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self._listen()
        if self._child is not None:
            self._child.start()
        parts = [
            asyncio.create_task(self._loop.run(), name="loop"),
            asyncio.create_task(self._loop.mind_session(), name="session"),
            asyncio.create_task(self._loop.watch(self._reader.watch()), name="watch"),
        ]
        if self._feed is not None:
            parts.append(asyncio.create_task(self._feed.run(), name="feed"))
            if self._config.warmer_socket is not None:
                images = warmer.WarmerClient(self._config.warmer_socket, self._feed.publish_warmth)
                self._relay = warmrelay.WarmRelay(images, self._feed.answer, self._pods)
                parts.append(asyncio.create_task(images.run(), name="warmer"))
                parts.append(asyncio.create_task(self._relay.run(), name="warm relay"))
        stopping = asyncio.create_task(stop.wait(), name="signal")
        _LOG.info("agent runs", node=self._config.node, pid=os.getpid(), time_scale=self._config.time_scale)
        done, _ = await asyncio.wait((*parts, stopping), return_when=asyncio.FIRST_COMPLETED)
        ended = [part for part in done if part is not stopping]
        for part in ended:
            error = None if part.cancelled() else part.exception()
            _LOG.error("a part of the agent ended", part=part.get_name(), error=repr(error), exc_info=error)
        await self._stop([*parts, stopping])
        _LOG.info("agent ends", node=self._config.node)
        return 1 if ended else 0

    async def _listen(self) -> None:
        """Open the agent's own sockets; one that cannot be opened is a problem of the configuration."""
        problem = ""
        try:
            self._serve_probes()
        except OSError as error:
            problem = f"--metrics-address: {self._config.metrics_address}: {error}"
        try:
            await self._control.start()
        except OSError as error:
            problem = "\n".join(filter(None, (problem, f"--control-socket: {self._config.control_socket}: {error}")))
        if problem:
            await self._stop([])
            raise settings.InvalidSettings(problem.splitlines())

    async def _stop(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        closing: list[Awaitable[Any]] = [*tasks, self._control.close(), self._kubelet.close(), self._reader.close()]
        if self._child is not None:
            closing.append(self._child.stop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS * 0.75):
                await asyncio.gather(*closing, return_exceptions=True)
        if self._probes is not None:
            self._probes.close()

    def _spawned(self) -> readerprocess.ReaderProcess:
        own = ("--socket", str(self._config.reader_socket), "--exit-with-parent", "true")
        argv = (sys.executable, "-m", "agent.main", "read", *own, *self._config.reader_argv)
        return readerprocess.ReaderProcess(argv, os.environ)

    def _sampler(self) -> sample.Sampler:
        return sample.Sampler(
            node=self._config.node,
            time=self._time,
            reader=self._reader,
            kubelet=self._kubelet,
            checkpoint=checkpoint.CheckpointFile(self._config.checkpoint),
            slices=self._slices,
            periods=sample.Periods(
                processes=self._config.processes_seconds,
                slow=self._config.slow_seconds,
                links=self._config.links_seconds,
            ),
        )

    def _dialled(self, boot_id: str, began: evidence.Evidence) -> feed.FeedPublisher:
        config = self._config
        credentials = _credentials(config)
        credentials()  # Wrong files are a problem of the configuration, not of the first dial.
        return feed.FeedPublisher(
            addresses=_all_addresses(config.admitters),
            credentials=credentials,
            metadata=lambda: bearer.metadata_of(config.token_file),
            hello=feed.Hello(
                node=config.node,
                boot_id=boot_id,
                start_counter=began.start_counter,
                version=importlib.metadata.version("muster"),
            ),
            on_slice=self._heard_slice,
            on_leases=self._heard_leases,
            held=began.leases,
            on_state=self._heard_state,
            on_warm=self._heard_warm_list,
            clock=self._time,
        )

    def _heard_leases(self, leases: LeaseSet) -> None:
        self._loop.hold(leases)

    def _heard_slice(self, content: kube.NodeSlice, age_seconds: float) -> None:
        if self._slices.offer(content, age_seconds=age_seconds, now=self._time.monotonic()):
            self._loop.wake("Slice")
        if self._relay is not None:
            self._relay.look()

    def _heard_warm_list(self, wanted: feed_pb2.WarmList) -> None:
        if self._relay is not None:
            self._relay.hear(wanted)

    def _heard_state(self, state: feed.FeedState) -> None:
        if state.obeyed and state.api_server is not None:
            self._slices.connected(api_server=state.api_server)
            self._loop.wake("Welcome")
        else:
            self._slices.disconnected(self._time.monotonic())

    def _node(self) -> Reading[kube.NodeObject]:
        return self._slices.read(self._time.monotonic()).content.node_object

    def _pods(self) -> Reading[tuple[kube.Pod, ...]]:
        return self._slices.read(self._time.monotonic()).content.pods

    def _serve_probes(self) -> None:
        told = self._feed or _NoFeed()
        collector = metrics.Collector(
            self._board,
            monotonic=self._time.monotonic,
            calls=self._call_figures,
            streams=lambda: len(told.state.connected),
            sent=lambda: dict(told.sent),
            rules=table.count_by_mode(self._policy),
        )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        address = split_address(self._config.metrics_address)
        parts = {"/readerz": self._reader_liveness}
        self._probes = probes.ProbeServer(address, registry, self._readiness, program="muster-agent", parts=parts)
        self._probes.start()
        _LOG.info("metrics", port=self._probes.port)

    def _readiness(self) -> probes.Readiness:
        """Ready while a report is younger than three polls; a dead driver is no reason, the report says so."""
        age = self._board.age_seconds(self._time.monotonic())
        if age is None:
            return probes.Readiness(is_ready=False, text="no report yet")
        return probes.Readiness(is_ready=age <= self._config.ready_seconds, text=f"last report {age:.1f} s ago")

    def _reader_liveness(self) -> probes.Readiness:
        """What the liveness probe of the reader's container asks: the reader itself serves no port."""
        words = hungreader.silence(self._reader, self._time.monotonic(), self._config.reader_silent_seconds)
        return probes.Readiness(is_ready=not words, text=words or "the reader answers")

    def _call_figures(self) -> metrics.CallFigures:
        counters = self._reader.counters
        figures = metrics.CallFigures(nvml_seconds=counters.nvml_seconds, nvml_timeouts=counters.timeouts)
        match counters.usage:
            case Known(usage):
                return dataclasses.replace(
                    figures, reader_cpu_seconds=usage.cpu_seconds, reader_resident_bytes=usage.resident_bytes
                )
            case Unknown():
                return figures


def run(config: AgentConfig) -> int:
    """Run the agent and return its exit status."""

    async def main() -> int:
        return await Agent(config, load_policy(config)).run()

    return asyncio.run(main())


def _judge(policy: Policy) -> loop.Judge:
    def decide(history: History, observation: planes.Observation, api_server: bool) -> tuple[History, NodeReport]:  # noqa: FBT001
        return judge.judge(history, observation, policy, api_server=api_server)

    return decide


def _manners(policy: Policy) -> session.Manners:
    def decide(
        node: Reading[kube.NodeObject],
        history: History,
        now: datetime.datetime,
        released_until: datetime.datetime | None,
    ) -> session.Wanted:
        labels = node.value.labels if isinstance(node, Known) else None
        is_serving = history.marker is not None and history.marker.serving_since is not None
        wanted = manners.wanted(
            labels, history.marker, now, policy, is_serving=is_serving, released_until=released_until
        )
        return session.Wanted(mode=wanted.session.value, reason=wanted.reason)

    return decide


def _credentials(config: AgentConfig) -> Callable[[], grpc.ChannelCredentials]:
    """Return what makes the credentials of one dial; the files are read anew each time."""
    assert config.tls_ca is not None
    ca = config.tls_ca
    if config.token_file is not None:
        return lambda: tls.open_channel_credentials(ca)
    assert config.tls_certificate is not None
    assert config.tls_key is not None
    files = tls.Files(ca=ca, certificate=config.tls_certificate, key=config.tls_key)
    return lambda: tls.channel_credentials(files)


def _all_addresses(targets: tuple[str, ...]) -> feed.Resolver:
    """Resolve every admitter's name to all its addresses."""
    resolvers = [feed.dns_resolver(target) for target in targets]

    async def resolve() -> tuple[str, ...]:
        found = await asyncio.gather(*(resolver() for resolver in resolvers))
        return tuple(sorted({address for addresses in found for address in addresses}))

    return resolve
