"""Beside a real scheduler that binds to a lying node: what would have been held, what failed, and not one write."""

import functools
import json

import pytest
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.core.observe import Outcome, Verdict
from hack.cluster import fakekubelet
from hack.cluster.faultproxy import FaultProxy
from tests.admitter import kubetown
from tests.admitter.kubeagents import GPU, truthful
from tests.admitter.kubegangs import NODES, a_template, create_job, pods, remove, running
from tests.admitter.kubetown import KubeTown

until = functools.partial(kubetown.until, seconds=180)
LIAR = NODES[0]


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


@pytest.fixture
def liar(client):
    """A node whose kubelet has lost its devices, which node.status does not say; its agent does."""

    def annotate(lost):
        keys = {fakekubelet.LOST: lost, fakekubelet.UNNOTICED: None if lost is None else "true"}
        client.patch(core.Node, LIAR, {"metadata": {"annotations": keys}}, patch_type=PatchType.MERGE)

    annotate("8")
    yield LIAR
    annotate(None)
    client.patch(core.Node, LIAR, {"spec": {"unschedulable": None}}, patch_type=PatchType.MERGE)


async def test_what_would_have_been_done_is_counted_and_nothing_is_written(town, client, liar, tmp_path):
    log = tmp_path / "decisions.jsonl"
    settings = {"observe": (town.namespace,), "decision_log": log, "lease_seconds": 15.0, "node_conditions": True}
    settings |= {"topology_policy": "restricted"}

    def kinds(gang):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line["kind"] for line in lines if line["gang"] == f"{town.namespace}/{gang}"]

    async with (
        FaultProxy(town.cluster.kubeconfig, tmp_path) as proxy,
        town.kube_admitter(kubeconfig=proxy.kubeconfig, **settings) as (admitter, address),
        truthful(town, address, client, NODES[1:]),
        town.node(address, liar) as its_agent,
    ):
        await its_agent.say(0)
        await until(lambda: len(admitter._loop.believed.nodes) == len(NODES), "every agent")
        assert {each.topology_policy for each in admitter._loop.believed.facts.values()} == {"restricted"}
        # The scheduler believes in four nodes, and the agents in three.
        create_job(town, "all", 4, a_template(8, gates=()))
        await until(lambda: "failure-foreseen" in kinds("job.all"), "a gang that does not fit, and fails")
        assert kinds("job.all") == ["would-hold", "failure-foreseen"]
        client.patch(core.Node, liar, {"spec": {"unschedulable": True}}, patch_type=PatchType.MERGE)
        await until(lambda: not [pod for pod in pods(town, "all") if pod.status.phase == "Running"], "its end")
        await until(lambda: all(_free(admitter, name) == 8 for name in NODES[1:]), "free nodes")
        create_job(town, "fits", 3, a_template(8, gates=()))
        await until(lambda: len(running(town, "fits")) == 3, "a gang that fits, and runs")
        await until(lambda: admitter._tally.ends[Verdict.GOES, Outcome.RAN] == 1, "its count")
        assert kinds("job.fits") == ["would-let-go"]
        assert admitter._tally.ends == {(Verdict.HELD, Outcome.FAILED): 1, (Verdict.GOES, Outcome.RAN): 1}
        assert not any(pod.spec.schedulingGates for pod in pods(town, ""))
        kinds_asked = {kind for kind in proxy.asked if kind.split()[0] in ("POST", "PUT", "PATCH", "DELETE")}
        # Its own Lease, and what it asks about its callers.
        assert kinds_asked <= {"POST leases", "PUT leases", "POST tokenreviews", "POST subjectaccessreviews"}
    town.kube.deletecollection(batch_v1.Job, namespace=town.namespace)
    remove(town, "")


def _free(admitter, node):
    return admitter._loop.believed.nodes[node].report.resources[GPU].admit_strict.value
