"""The leader's loop over all Nodes on a real API server, with the rights of the manifests and no others."""

import asyncio
import dataclasses
import pathlib
import uuid

import pytest
import yaml
from lightkube.core import exceptions
from lightkube.models import apps_v1, authentication_v1, core_v1, meta_v1
from lightkube.resources import apps_v1 as apps
from lightkube.resources import core_v1 as core
from lightkube.resources import rbac_authorization_v1 as rbac
from lightkube.types import PatchType

from admitter.model.leadership import Leadership
from admitter.model.nodestatus import StatusPolicy, TaintPolicy
from admitter.model.ruling import NOTHING_HELD
from admitter.publish.nodefigures import NodeFigures
from admitter.publish.nodeloop import NodeLoop
from admitter.publish.nodes import NodeWriter
from admitter.publish.nodetaints import Tainter
from admitter.sources import apiclient
from admitter.sources.cluster import ClusterWatch
from admitter.sources.daemonsets import DaemonSets
from hack.cluster import grants, run
from muster.clock import SystemClock
from muster.model import labels
from tests.admitter.clusters import a_node, a_view
from tests.admitter.nodeworld import LOST, WELL

MANIFESTS = pathlib.Path(__file__).parents[2] / "daemonset"
NAMESPACE, ACCOUNT = "muster-system", "muster-admitter"
QUICK = StatusPolicy(silent_seconds=3600.0, settle_seconds=0.5, refresh_seconds=0.5, burst=50)
SLOW_TAINTS = TaintPolicy(enabled=True, cap_nodes=2, after_seconds=0.5, clear_seconds=0.5)


def kubeconfig_of_the_admitter(cluster, client, folder, *, with_taints):
    """Apply the roles of the manifests, and return a kubeconfig for their account."""
    name = meta_v1.ObjectMeta(name=NAMESPACE)
    client.apply(core.Namespace(metadata=name), field_manager="test")
    account = meta_v1.ObjectMeta(name=ACCOUNT, namespace=NAMESPACE)
    client.apply(core.ServiceAccount(metadata=account), field_manager="test")
    files = [MANIFESTS / "base" / "admitter-rbac.yaml", *([MANIFESTS / "taints" / "rbac.yaml"] if with_taints else [])]
    kinds = {"ClusterRole": rbac.ClusterRole, "ClusterRoleBinding": rbac.ClusterRoleBinding}
    for path in files:
        for form in yaml.safe_load_all(path.read_text()):
            if form["kind"] in kinds:
                client.apply(kinds[form["kind"]].from_dict(form), field_manager="test")
    request = core.ServiceAccountToken(
        metadata=meta_v1.ObjectMeta(), spec=authentication_v1.TokenRequestSpec(audiences=[])
    )
    token = client.create(request, ACCOUNT, namespace=NAMESPACE).status.token
    form = yaml.safe_load(cluster.kubeconfig.read_text())
    form["users"] = [{"name": form["contexts"][0]["context"]["user"], "user": {"token": token}}]
    path = folder / "admitter.kubeconfig"
    path.write_text(yaml.safe_dump(form))
    return path


class World:
    """A leading admitter as far as Nodes go: real watch, real requests; a feed and a guard that the test commands."""

    def __init__(self, path, wait_for, *, taints):
        self._wait_for = wait_for
        self.api = apiclient.from_kubeconfig(path)
        clock = SystemClock()
        self.reports = {}
        self.leadership = Leadership(term=1, until=float("inf"))
        self.figures = NodeFigures()
        self.told = []
        self.cluster = ClusterWatch(self.api, clock, agents=frozenset)
        self.client = self.api.client(seconds=5.0)
        tainter = Tainter(
            policy=taints, daemons=DaemonSets(self.client), serving_namespaces=frozenset(), tell=self.told.append
        )
        self.loop = NodeLoop(
            writer=NodeWriter(self.client, self.may_write, clock.utc, reporter="admitter-0"),
            cluster=self.cluster,
            view=lambda: a_view(*(self._state(name) for name in self.reports), now=clock.monotonic()),
            ruling=lambda: NOTHING_HELD,
            guard=self,
            clock=clock,
            policy=QUICK,
            tainter=tainter,
            per_minute=6000,
            figures=self.figures,
        )
        self._clock = clock
        self._tasks = []

    def _state(self, name):
        state = a_node(name, heard=self._clock.monotonic())
        return dataclasses.replace(state, report=self.reports[name])

    def may_write(self, term):
        return term == self.leadership.term

    async def __aenter__(self):
        self._tasks = [
            asyncio.create_task(self.cluster.watch(lambda *_: None)),
            asyncio.create_task(self.loop.run()),
        ]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    @property
    def writes(self):
        return {f"{kind} {outcome}": number for (kind, outcome), number in self.figures.requests.items()}

    async def until(self, claim, what):
        """Wait for a claim about the API server, which is asked in a thread."""
        await asyncio.to_thread(self._wait_for, claim, what)


@pytest.fixture
def node(client):
    """Return the name of a Node that no kubelet serves."""
    name = f"bare-{uuid.uuid4().hex[:8]}"
    client.create(core.Node(metadata=meta_v1.ObjectMeta(name=name)), field_manager="test")
    yield name
    if name in {item.metadata.name for item in client.list(core.Node)}:
        client.delete(core.Node, name)


@pytest.fixture
def admitter(cluster, client, tmp_path, wait_for):
    def make(*, taints=None):
        path = kubeconfig_of_the_admitter(cluster, client, tmp_path, with_taints=taints is not None)
        return World(path, wait_for, taints=taints or TaintPolicy())

    yield make
    for kind in (rbac.ClusterRoleBinding, rbac.ClusterRole):
        for name in (ACCOUNT, f"{ACCOUNT}-taints"):
            if name in {item.metadata.name for item in client.list(kind)}:
                client.delete(kind, name)


def says(client, name):
    found = client.get(core.Node, name).status.conditions or ()
    return {item.type: f"{item.status} {item.reason}" for item in found if "GPU" in item.type or "MIG" in item.type}


def taint_of(client, name):
    taints = client.get(core.Node, name).spec.taints or ()
    return [taint.value for taint in taints if taint.key == labels.UNTRUSTED.full]


IS_WELL = {
    "GPUCapacityTruthful": "True AsAdvertised",
    "GPUHealthy": "True AllHealthy",
    "MIGLayoutMatches": "True NotPartitioned",
}
IS_LOST = {**IS_WELL, "GPUCapacityTruthful": "False GpuLost", "GPUHealthy": "False GpuLost"}


async def test_a_node_is_written_follows_its_agent_and_is_left_alone_in_between(client, node, admitter):
    async with admitter() as world:
        world.reports[node] = WELL
        await world.until(lambda: says(client, node) == IS_WELL, "the first word")
        world.reports[node] = LOST
        await world.until(lambda: says(client, node) == IS_LOST, "the fault")
        world.reports[node] = WELL
        await world.until(lambda: says(client, node) == IS_WELL, "the recovery")
        written = {"conditions done": 3, "event done": 4}
        await world.until(lambda: world.writes == written, "the Events")
        await asyncio.sleep(5)
        assert world.writes == written, "a steady node costs no request"
        assert says(client, node) == IS_WELL


async def test_a_standby_writes_nothing_until_it_leads(client, node, admitter):
    async with admitter() as world:
        world.leadership = Leadership()
        world.reports[node] = WELL
        await world.until(lambda: world.cluster.is_synced, "the lists")
        await asyncio.sleep(3)
        assert says(client, node) == {}
        assert world.writes == {}
        world.leadership = Leadership(term=2, until=float("inf"))
        await world.until(lambda: says(client, node) == IS_WELL, "the first word")


async def test_a_deleted_node_is_not_made_and_its_successor_is_written(client, node, admitter):
    async with admitter() as world:
        world.reports[node] = WELL
        await world.until(lambda: says(client, node) == IS_WELL, "the first word")
        client.delete(core.Node, node)
        world.reports[node] = LOST
        await asyncio.sleep(3)
        with pytest.raises(exceptions.ApiError, match="not found"):
            client.get(core.Node, node)
        client.create(core.Node(metadata=meta_v1.ObjectMeta(name=node)), field_manager="test")
        await world.until(lambda: says(client, node) == IS_LOST, "the word on the new Node")


async def test_who_changes_a_condition_of_ours_is_put_right_once_and_then_gets_it(client, node, admitter):
    def turn():
        body = {"status": {"conditions": [{"type": "GPUHealthy", "status": "False", "reason": "Mine"}]}}
        client.patch(core.NodeStatus, node, body, patch_type=PatchType.STRATEGIC, field_manager="kubectl-edit")

    async with admitter() as world:
        world.reports[node] = WELL
        await world.until(lambda: says(client, node) == IS_WELL, "the first word")
        turn()
        await world.until(lambda: says(client, node) == IS_WELL, "our word again")
        turn()
        await world.until(lambda: world.figures.scene.foreign == 1, "the condition that is somebody else's")
        turn()
        assert says(client, node) == {**IS_WELL, "GPUHealthy": "False Mine"}
        before = world.figures.requests["conditions", "done"]
        await asyncio.sleep(5)
        assert world.figures.requests["conditions", "done"] == before
        assert says(client, node) == {**IS_WELL, "GPUHealthy": "False Mine"}


async def test_without_the_right_to_taint_conditions_are_written_all_the_same(client, node, admitter):
    async with admitter() as world:
        world.loop._tainter._policy = SLOW_TAINTS  # the setting without the component's roles
        world.reports[node] = LOST
        await world.until(lambda: says(client, node) == IS_LOST, "the conditions")
        await world.until(lambda: world.figures.scene.withheld["daemonsets-unread"] == 1, "the taint to be withheld")
        assert taint_of(client, node) == []


def a_daemonset(namespace, name, *, tolerates):
    meta = meta_v1.ObjectMeta(name=name, namespace=namespace)
    plugins = core_v1.HostPathVolumeSource(path="/var/lib/kubelet/device-plugins")
    tolerations = [core_v1.Toleration(key=labels.UNTRUSTED.full, operator="Exists")] if tolerates else []
    pod = core_v1.PodSpec(
        containers=[core_v1.Container(name="main", image="none")],
        volumes=[core_v1.Volume(name="plugins", hostPath=plugins)],
        tolerations=tolerations,
    )
    selector = meta_v1.LabelSelector(matchLabels={"app": name})
    template = core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(labels={"app": name}), spec=pod)
    return apps.DaemonSet(metadata=meta, spec=apps_v1.DaemonSetSpec(selector=selector, template=template))


async def test_a_bad_node_is_tainted_when_no_cure_is_kept_out_and_freed_when_one_would_be(
    client, node, namespace, admitter
):
    async with admitter(taints=SLOW_TAINTS) as world:
        client.create(a_daemonset(namespace, "plugin", tolerates=False))
        world.reports[node] = LOST
        await world.until(lambda: (scene := world.figures.scene) and scene.withheld["cure"] == 1, "the withholding")
        assert taint_of(client, node) == []
        assert says(client, node) == IS_LOST
        client.delete(apps.DaemonSet, "plugin", namespace=namespace)
        client.create(a_daemonset(namespace, "tolerant", tolerates=True))
        await world.until(lambda: taint_of(client, node) == ["OVER"], "the taint")
        client.create(a_daemonset(namespace, "later", tolerates=False))
        await world.until(lambda: taint_of(client, node) == [], "the taint's end")
        assert world.told[-1].kind == "untainted"
        assert f"{namespace}/later" in world.told[-1].detail


async def test_the_api_server_restarts_and_nothing_is_lost_or_repeated(new_cluster, tmp_path, wait_for):
    started = new_cluster()
    client = grants.client(started.kubeconfig)
    names = [f"bare-{number}" for number in range(5)]
    for name in names:
        client.create(core.Node(metadata=meta_v1.ObjectMeta(name=name)), field_manager="test")
    path = kubeconfig_of_the_admitter(started, client, tmp_path, with_taints=False)
    async with World(path, wait_for, taints=TaintPolicy()) as world:
        world.reports = dict.fromkeys(names, WELL)
        await world.until(lambda: all(says(client, name) == IS_WELL for name in names), "the first words")
        client.close()
        restart = asyncio.create_task(asyncio.to_thread(run.restart, started, "kube-apiserver"))
        world.reports = dict.fromkeys(names, LOST)
        await restart
        client = grants.client(started.kubeconfig)
        await world.until(lambda: all(says(client, name) == IS_LOST for name in names), "the faults")
        await asyncio.sleep(3)
        outcomes = world.writes
        assert outcomes["conditions done"] == 10
        assert sum(number for what, number in outcomes.items() if "busy" in what) < 20, outcomes
    client.close()
