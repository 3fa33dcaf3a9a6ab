"""What the admitter sees of a real API server: slices, rights that suffice, a server that is killed and comes back."""

import asyncio
import contextlib
import json
import pathlib
import signal

import pytest
import yaml
from lightkube import codecs
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.sources import apiclient
from admitter.sources.cluster import ClusterWatch
from hack.cluster import grants, run
from muster.clock import SystemClock
from muster.model.reading import Known
from tests.admitter.kubetown import KubeTown, until

ROOT = pathlib.Path(__file__).parents[2]
NODE = "fake-0000"
SYSTEM = "muster-system"


class Watching:
    """A cluster watch and what it sent to one node's agent."""

    def __init__(self, kubeconfig):
        self.sent = []
        self.cluster = ClusterWatch(
            apiclient.from_kubeconfig(kubeconfig), SystemClock(), agents=lambda: frozenset((NODE,))
        )

    async def __aenter__(self):
        self._task = asyncio.create_task(
            self.cluster.watch(lambda node, content, age: self.sent.append((content, age)))
        )
        return self

    async def __aexit__(self, *_):
        await until(lambda: not self.cluster.problems, "quiet watches")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def pods(self):
        match self.sent[-1][0].pods if self.sent else None:
            case Known(pods):
                return {pod.name: pod for pod in pods}
            case _:
                return {}


def a_pod(namespace, name, gpus):
    resources = core_v1.ResourceRequirements(limits={"nvidia.com/gpu": str(gpus)})
    container = core_v1.Container(name="main", image="none", resources=resources)
    spec = core_v1.PodSpec(nodeName=NODE, containers=[container], restartPolicy="Never")
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace), spec=spec)


async def test_a_rejection_is_in_the_slice_and_outlives_its_pod(cluster, client, namespace):
    async with Watching(cluster.kubeconfig) as watching:
        client.create(a_pod(namespace, "greedy", 99))
        await until(lambda: watching.pods().get("greedy") and watching.sent[-1][0].rejections, "the rejection")
        (rejection,) = [item for item in watching.sent[-1][0].rejections if item.pod == f"{namespace}/greedy"]
        assert rejection.reason == "UnexpectedAdmissionError"
        client.delete(core.Pod, "greedy", namespace=namespace, grace_period=0)
        await until(lambda: "greedy" not in watching.pods(), "the pod's end")
        assert rejection in watching.sent[-1][0].rejections


async def test_who_may_nothing_is_told_what_to_grant(cluster):
    watching = Watching(cluster.kubeconfig_of("nobody"))
    task = asyncio.create_task(watching.cluster.watch(lambda *_: None))
    wanted = 'may not list pods: grant verb `list` on resource `pods` of API group `""`'
    await until(lambda: wanted in watching.cluster.problems, "the refusal")
    assert watching.cluster.slice_of(NODE) is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def account(cluster, client, tmp_path):
    """The admitter's own account with the rights of the manifests, as a kubeconfig."""
    objects = codecs.load_all_yaml((ROOT / "daemonset/base/admitter-rbac.yaml").read_text())
    for item in [core.Namespace(metadata=meta_v1.ObjectMeta(name=SYSTEM)), *objects]:
        if item.kind in ("ServiceAccount", "Role", "RoleBinding"):
            item.metadata.namespace = SYSTEM
        # The session's cluster may have them from an earlier test.
        with contextlib.suppress(exceptions.ApiError):
            client.create(item)
    request = core.ServiceAccountToken.from_dict({"metadata": {"namespace": SYSTEM}, "spec": {"audiences": []}})
    token = client.create(request, "muster-admitter", namespace=SYSTEM).status.token
    form = yaml.safe_load(cluster.kubeconfig.read_text())
    form["users"][0]["user"] = {"token": token}
    path = tmp_path / "admitter.kubeconfig"
    path.write_text(json.dumps(form))
    return path


async def test_the_manifests_rights_are_enough_to_lead_and_to_know_an_agent(
    tmp_path, cluster, client, namespace, account
):
    town = KubeTown(tmp_path, cluster, client, namespace)
    token = town.token(pod=town.pod_on(NODE))
    settings = {"kubeconfig": account, "lease_namespace": SYSTEM}
    async with town.kube_admitter(**settings) as (admitter, _):
        await until(lambda: admitter._loop.term > 0, "a term")
        async with town.token_wire(admitter.token_port, token) as wire:
            assert (await wire.greet(node=NODE)).api_server


async def test_an_api_server_that_is_killed_ages_the_slice_until_it_is_back(new_cluster):
    cluster = new_cluster(nodes=2, gpus=8)
    client = grants.client(cluster.kubeconfig)
    async with Watching(cluster.kubeconfig) as watching:
        await until(lambda: watching.sent and watching.cluster.age() == 0, "a slice")
        assert watching.sent[-1][1] == 0
        cluster.part("kube-apiserver").process().send_signal(signal.SIGKILL)
        await until(lambda: watching.sent[-1][1] > 0, "the age to be told")
        await asyncio.to_thread(run.restart, cluster, "kube-apiserver")
        await until(lambda: watching.sent[-1][1] == 0, "the slice to be current again", seconds=90)
        labels = {"metadata": {"labels": {"after": "restart"}}}
        await asyncio.to_thread(client.patch, core.Node, NODE, labels)
        await until(lambda: watching.sent[-1][0].node_object.value.labels.get("after"), "a change after it")
    client.close()
