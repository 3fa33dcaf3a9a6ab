"""How the gate comes on, three ways: by the policy, by the webhook, written in the template. What follows is the same for all."""

import asyncio
import contextlib
import socket

import pytest
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import admissionregistration_v1 as registration
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from muster.model import labels
from tests.admitter import gatepolicy
from tests.admitter.kubeagents import GPU, truthful
from tests.admitter.kubetown import KubeTown, until

NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")
GATE = labels.GANG.full
WEBHOOK = "../webhook/webhook.yaml"


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_loopback(port):
    """Ask on this machine in place of the Service."""

    def change(document):
        for hook in document["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
        return document

    return change


@contextlib.asynccontextmanager
async def gating(town, client, gate_by, line, port=0, **settings):
    """An admitter that lets held pods go, true agents, and what puts the gate on."""
    port = port or free_port()
    async with contextlib.AsyncExitStack() as stack:
        match gate_by:
            case "policy" if line == "1.35":
                pytest.skip("Kubernetes 1.35 serves no v1 of MutatingAdmissionPolicy: what the webhook is for")
            case "policy":
                stack.enter_context(gatepolicy.installed(client))
            case "webhook":
                stack.enter_context(gatepolicy.installed(client, WEBHOOK, on_loopback(port)))
        listen = f"127.0.0.1:{port}" if gate_by == "webhook" else ""
        admitter = town.kube_admitter(gates=True, webhook_listen=listen, replan_patience_seconds=1.0, **settings)
        _, address = await stack.enter_async_context(admitter)
        await stack.enter_async_context(truthful(town, address, client, NODES))
        await until(lambda: town.holder() == "admitter-0", "a leader")
        if gate_by != "template":
            # The API server compiles a policy, and reads a configuration, in its own time.
            names = iter(f"try-{number}" for number in range(10_000))
            await until(lambda: gates(create(town, next(names), gang="try", gpus=0)) == [GATE], "the gate on a pod")
        yield


def create(town, name, *, gang="", gpus=8, gated=False, size=1000, others=()):
    request = {GPU: str(gpus)} if gpus else {}
    spec = core_v1.PodSpec(
        containers=[
            core_v1.Container(
                name="main", image="none", resources=core_v1.ResourceRequirements(requests=request, limits=request)
            )
        ],
        schedulingGates=[core_v1.PodSchedulingGate(name=gate) for gate in ((GATE,) if gated else ()) + tuple(others)],
        restartPolicy="Never",
    )
    metadata = meta_v1.ObjectMeta(
        name=name,
        namespace=town.namespace,
        labels={GATE: gang} if gang else {},
        annotations={"fake.muster.dev/run-seconds": "600", labels.GANG_SIZE.full: str(size)},
    )
    return town.kube.create(core.Pod(metadata=metadata, spec=spec))


def gates(pod):
    return [gate.name for gate in pod.spec.schedulingGates or ()]


def create_gang(town, gang, count, gate_by):
    for index in range(count):
        create(town, f"{gang}-{index}", gang=gang, size=count, gated=gate_by == "template")


def listed(town, gang):
    return list(town.kube.list(core.Pod, namespace=town.namespace, labels={GATE: gang}))


def running(town, gang):
    return [pod for pod in listed(town, gang) if pod.status.phase == "Running"]


@pytest.mark.parametrize("gate_by", ["policy", "webhook", "template"])
async def test_of_two_gangs_that_do_not_fit_together_one_runs_and_the_other_waits_whole(town, client, line, gate_by):
    async with gating(town, client, gate_by, line):
        create_gang(town, "first", 3, gate_by)
        await until(lambda: len(running(town, "first")) == 3, "the first gang")
        create_gang(town, "second", 3, gate_by)
        await until(
            lambda: (
                "NotEnoughUnits" in {event.reason for event in town.kube.list(core.Event, namespace=town.namespace)}
            ),
            "a word about the second gang",
        )
        assert [gates(pod) for pod in listed(town, "second")] == [[GATE]] * 3
        for pod in running(town, "first"):
            town.kube.delete(core.Pod, pod.metadata.name, namespace=town.namespace, grace_period=0)
        await until(lambda: len(running(town, "second")) == 3, "the second gang, once the first is gone")


@pytest.mark.parametrize("gate_by", ["policy", "webhook"])
async def test_the_gate_is_put_on_pods_that_are_ours_and_on_no_others(town, client, line, gate_by):
    async with gating(town, client, gate_by, line):
        assert gates(create(town, "stranger")) == []
        assert gates(create(town, "has-one", gang="g", gated=True)) == [GATE]
        assert sorted(gates(create(town, "beside", gang="g", others=("example.com/quota",)))) == [
            "example.com/quota",
            GATE,
        ]
        body = {"metadata": {"labels": {labels.MANAGED.full: "true"}}}
        town.kube.patch(core.Namespace, town.namespace, body, patch_type=PatchType.MERGE)
        names = iter(f"managed-{number}" for number in range(10_000))
        await until(lambda: gates(create(town, next(names))) == [GATE], "the namespace's label")
        assert gates(create(town, "without-gpu", gpus=0)) == []


async def test_an_admitter_that_is_away_stops_nobodys_pod(town, client, line):
    port = free_port()
    with gatepolicy.installed(client, WEBHOOK, on_loopback(port)):
        assert gates(await asyncio.to_thread(create, town, "alone", gang="g")) == []
        # Somebody listens and says nothing: two seconds, then on without it.
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", port))
            silent.listen()
            assert gates(await asyncio.to_thread(create, town, "silence", gang="g")) == []


async def test_the_leader_writes_its_authority_and_a_new_one_when_it_is_renewed(town, client, line):
    def bundle():
        found = client.get(registration.MutatingWebhookConfiguration, "muster-gates")
        return {hook.clientConfig.caBundle for hook in found.webhooks}

    async with gating(town, client, "webhook", line):
        (before,) = bundle()
        body = {"webhooks": [{"name": "labelled.gates.muster.dev", "clientConfig": {"caBundle": None}}]}
        client.patch(registration.MutatingWebhookConfiguration, "muster-gates", body, patch_type=PatchType.STRATEGIC)
        await until(lambda: bundle() == {before}, "its authority again, where somebody took it away")
    with pytest.raises(exceptions.ApiError):
        bundle()
