"""Everything of an admitter that needs an API server: the watch, the election, the reviews, what is written on Nodes.

In: settings, the feed's hub, the loop. Out: running tasks; `cluster`, `elector` and `reviews` for whoever is wired to them.

Invariants: a new leader lists the cluster afresh before it decides anything, and its loop begins only if it still leads
then. A loop whose leadership has ended stands by before another term begins. Nothing here decides anything.

Not here: what runs without an API server (run.py).
"""

import asyncio
import secrets
from collections.abc import Callable, Set
from typing import Protocol

import structlog

from admitter import config as configs
from admitter.clustersettings import ClusterSettings
from admitter.config import AdmitterConfig
from admitter.confined import Confined
from admitter.core import election
from admitter.core.observe import Tally
from admitter.core.outage import Outage
from admitter.gateloop import GateLoop
from admitter.gateports import Desk
from admitter.model.decision import Event
from admitter.model.leadership import Leadership
from admitter.model.nodecapacity import ClusterView
from admitter.model.record import Terms
from admitter.model.ruling import Ruling
from admitter.observeloop import ObserveLoop
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodekeeper import Leases, NodeKeeper
from admitter.publish.nodeloop import NodeLoop
from admitter.publish.nodes import NodeWriter
from admitter.publish.nodetaints import Tainter
from admitter.publish.notstarted import NotStarted
from admitter.publish.podconditions import PodConditionWriter
from admitter.publish.podissuer import PodIssuer
from admitter.publish.pods import PodWriter
from admitter.publish.podteller import PodTeller
from admitter.publish.webhookconfig import WebhookConfig
from admitter.services.webhook import Webhook
from admitter.sources import apiclient
from admitter.sources.apiclient import Api
from admitter.sources.cluster import ClusterWatch
from admitter.sources.daemonsets import DaemonSets
from admitter.sources.elector import Elector
from admitter.sources.podreader import PodReader
from admitter.sources.pullsecrets import PullSecrets
from admitter.sources.rejections import Rejections
from admitter.sources.reviews import Reviews
from admitter.sources.workloads import WorkloadWatch
from muster.clock import SystemClock
from muster.model import kube

_LOG = structlog.get_logger(__name__)

DEFAULT_NAMESPACE = "muster-system"


class Loop(Protocol):
    """The admission loop, as a leader comes and goes."""

    def lead(self, terms: Terms) -> None: ...
    def stand_by(self) -> None: ...


class KubeSide:
    """Belongs to one event loop."""

    def __init__(
        self, config: ClusterSettings, clock: SystemClock, name: str, *, agents: Callable[[], Set[str]]
    ) -> None:
        """InvalidSettings if the API server's address or our identity cannot be made out."""
        self.api: Api = (
            apiclient.from_kubeconfig(config.kubeconfig)
            if config.kubeconfig is not None
            else apiclient.from_service_account()
        )
        self._clock = clock
        self.confined = Confined()
        namespace = config.lease_namespace or apiclient.own_namespace(DEFAULT_NAMESPACE)
        self.cluster = ClusterWatch(
            self.api,
            clock,
            agents=agents,
            serving_namespaces=frozenset(config.serving_namespaces),
            confined=self.confined,
            policies=config.kubelet_policies,
        )
        self.rejections = Rejections(self.cluster, clock, config.quarantine_seconds)
        self.elector = Elector(
            self.api,
            clock,
            identity=f"{name}{election.SEPARATOR}{secrets.token_hex(4)}",
            namespace=namespace,
            name=config.lease_name,
            seconds=config.lease_seconds,
        )
        self.reviews = Reviews(
            self.api,
            clock.monotonic,
            agent_account=config.agent_account,
            cache_seconds=config.token_cache_seconds,
        )
        self._writing = self.api.client()
        self.webhook_port = 0
        """Of the webhook, once it listens."""
        self._beginning: asyncio.Task[None] | None = None

    def start(
        self,
        group: asyncio.TaskGroup,
        loop: Loop,
        make_terms: Callable[[int], Terms],
        send: Callable[[str, kube.NodeSlice, float], None],
    ) -> list["asyncio.Task[None]"]:
        """Watch, and stand for election."""

        def on_change(leadership: Leadership) -> None:
            if self._beginning is not None:
                self._beginning.cancel()
                self._beginning = None
            if leadership.term:
                self._beginning = group.create_task(self._begin(leadership.term, loop, make_terms))
            else:
                _LOG.warning("no longer leading", leader=leadership.leader)
                loop.stand_by()

        return [group.create_task(self.cluster.watch(send)), group.create_task(self.elector.run(on_change))]

    async def _begin(self, term: int, loop: Loop, make_terms: Callable[[int], Terms]) -> None:
        await self.cluster.list_afresh()
        if self.elector.may_write(term):
            loop.lead(make_terms(term))
            _LOG.info("term began", term=term)

    def node_loop(
        self,
        config: AdmitterConfig,
        clock: SystemClock,
        *,
        view: Callable[[], ClusterView],
        ruling: Callable[[], Ruling],
        tell: Callable[[Event], None],
        figures: NodeFigures,
        name: str,
    ) -> NodeLoop:
        """Return the loop that says on Nodes what their agents say."""
        return NodeLoop(
            writer=NodeWriter(self._writing, self.elector.may_write, clock.utc, reporter=name),
            cluster=self.cluster,
            view=view,
            ruling=ruling,
            guard=self.elector,
            clock=clock,
            policy=config.status_policy(config.node_ttl_seconds),
            tainter=Tainter(
                policy=config.taint_policy,
                daemons=DaemonSets(self._writing),
                serving_namespaces=frozenset(config.serving_namespaces),
                tell=tell,
            ),
            per_minute=config.node_writes_per_minute,
            figures=figures,
        )

    def node_keeper(
        self, config: AdmitterConfig, clock: SystemClock, *, leases: Leases, tell: Callable[[Event], None], name: str
    ) -> NodeKeeper:
        """Return the loop that asks autoscalers to leave leased nodes alone."""
        return NodeKeeper(
            leases=leases,
            cluster=self.cluster,
            writer=NodeWriter(self._writing, self.elector.may_write, clock.utc, reporter=name),
            guard=self.elector,
            policy=config.keep_policy,
            tell=tell,
        )

    def gate_loop(
        self,
        config: AdmitterConfig,
        clock: SystemClock,
        *,
        desk: Desk,
        tell: Callable[[Event], None],
        name: str,
        outage: Outage,
    ) -> tuple[GateLoop, WorkloadWatch]:
        """Return the loop that lets held pods go, and the watch it rests on."""
        watch = WorkloadWatch(self.api, clock.monotonic)
        writer = PodWriter(self._writing, self.elector.may_write, clock.utc, reporter=name)
        conditions = PodConditionWriter(self._writing, self.elector.may_write, clock.utc)
        teller = PodTeller(writer, conditions, clock.monotonic)
        not_started = NotStarted(
            conditions, self.cluster, lambda: self.elector.leadership.term, limit=config.not_started_limit
        )
        loop = GateLoop(
            desk=desk,
            cluster=self.cluster,
            objects=watch,
            issuer=PodIssuer(
                writer, self.cluster, config.gate_policy.gate, teller, not_started, PodReader(self._writing).pods
            ),
            guard=self.elector,
            clock=clock,
            policy=config.gate_policy,
            tell=tell,
            outage=outage,
            confined=self.confined,
        )
        watch.listen(loop.changed)
        return loop, watch

    def observe_loop(
        self,
        config: AdmitterConfig,
        clock: SystemClock,
        *,
        desk: Desk,
        is_open: Callable[[], bool],
        view: Callable[[], ClusterView],
        tally: Tally,
        tell: Callable[[Event], None],
    ) -> tuple[ObserveLoop, WorkloadWatch]:
        """Return the loop that decides and writes nothing, and the watch it rests on."""
        watch = WorkloadWatch(self.api, clock.monotonic)
        loop = ObserveLoop(
            namespaces=frozenset(config.observe),
            cluster=self.cluster,
            objects=watch,
            view=view,
            # Before the term grants anything every gang would be held, and that says nothing of the nodes.
            term=lambda: desk.term if is_open() else 0,
            guard=self.elector,
            clock=clock,
            policy=config.policy,
            gates=config.gate_policy,
            tally=tally,
            tell=tell,
        )
        watch.listen(loop.changed)
        return loop, watch

    async def serve_webhook(self, config: AdmitterConfig) -> None:
        """Answer the API server about new pods, and have it believe us, until cancelled."""
        webhook = Webhook(configs.split_address(config.webhook_listen), config.tls_files, self._clock.monotonic)
        self.webhook_port = webhook.port
        authority = WebhookConfig(self._writing, self.elector, name=config.webhook_name, authority=config.tls_ca)
        webhook.start()
        try:
            await authority.run()
        finally:
            webhook.close()

    def pull_secrets(self, clock: SystemClock) -> PullSecrets:
        """Return the reader of pull secrets."""
        return PullSecrets(self._writing, clock.monotonic)

    def stop(self) -> None:
        """End a beginning that waits: the list that it waits for will not come."""
        if self._beginning is not None:
            self._beginning.cancel()

    async def close(self) -> None:
        """Close what the tasks do not close themselves."""
        await self.reviews.close()
        await self._writing.close()
