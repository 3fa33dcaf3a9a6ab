"""Why a pod does not run, asked of an admitter on a real API server and scheduler, of pods that are Muster's and of others."""

import asyncio
import contextlib

import grpc
import pytest
from lightkube.models import core_v1, meta_v1, rbac_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import rbac_authorization_v1 as rbac
from lightkube.types import PatchType

from muster import client as clients
from muster.model import labels
from tests.admitter.kubeagents import GPU, truthful
from tests.admitter.kubetown import KubeTown, until

NODES = ("fake-0000", "fake-0001", "fake-0002", "fake-0003")
GATE = labels.GANG.full


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    town = KubeTown(tmp_path, cluster, client, namespace)
    metadata = meta_v1.ObjectMeta(name="operator", namespace=namespace)
    rule = rbac_v1.PolicyRule(apiGroups=["muster.dev"], resources=["gangs"], verbs=["get"])
    client.create(rbac.Role(metadata=metadata, rules=[rule]))
    reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name="operator")
    subject = rbac_v1.Subject(kind="User", name="muster:client:operator", apiGroup=reference.apiGroup)
    client.create(rbac.RoleBinding(metadata=metadata, roleRef=reference, subjects=[subject]))
    return town


def create(town, name, *, gates=(), marks=None, resource=GPU, units=8, selector=None, **annotations):
    request = {resource: str(units)}
    spec = core_v1.PodSpec(
        containers=[
            core_v1.Container(
                name="main", image="none", resources=core_v1.ResourceRequirements(requests=request, limits=request)
            )
        ],
        schedulingGates=[core_v1.PodSchedulingGate(name=gate) for gate in gates],
        nodeSelector=selector,
        restartPolicy="Never",
    )
    meta = meta_v1.ObjectMeta(
        name=name,
        namespace=town.namespace,
        labels=marks or {},
        annotations={"fake.muster.dev/run-seconds": "600", **annotations},
    )
    town.kube.create(core.Pod(metadata=meta, spec=spec))


@contextlib.asynccontextmanager
async def asked(town, client, **settings):
    """An admitter and whoever asks it; yields a function that returns the causes of a pod."""
    async with (
        town.kube_admitter(gates=True, **settings) as (_, address),
        truthful(town, address, client, NODES),
        town.client(address, "operator") as operator,
    ):
        await until(lambda: town.holder() == "admitter-0", "a leader")

        async def causes(name):
            try:
                found = await operator.why_pod(town.namespace, name, 20)
            except (clients.Refused, clients.Unreachable):  # not seen yet, or its term has not begun
                return {}
            return {cause.reason: cause.summary for cause in found.causes}

        yield causes, operator


async def eventually(causes, name, reason):
    """The causes of a pod, once this one is among them."""
    async with asyncio.timeout(60):
        while reason not in (found := await causes(name)):  # noqa: ASYNC110 -- the admitter has no event for us
            await asyncio.sleep(0.1)
    return found


async def test_pods_of_nobody_hear_what_keeps_them_off(town, client):
    async with asked(town, client) as (causes, operator):
        create(town, "narrow", selector={"zone": "nowhere"})
        found = await eventually(causes, "narrow", "SelectorTooNarrow")
        assert "selector zone=nowhere" in found["SelectorTooNarrow"]
        create(town, "sliced", resource="nvidia.com/mig-1g.10gb", units=1)
        found = await eventually(causes, "sliced", "MigProfileMismatch")
        assert "offers whole GPUs" in found["MigProfileMismatch"]
        create(town, "misspelt", resource="nvidia.com/gpus")
        await eventually(causes, "misspelt", "NoSuchResource")
        create(town, "gated", gates=("example.com/quota",))
        found = await eventually(causes, "gated", "GateNobodyLifts")
        assert "NoAutoscalerActs" in found
        create(town, "large", units=9)
        await eventually(causes, "large", "AllInUse")
        with pytest.raises(clients.Refused) as refused:
            await operator.why_pod(town.namespace, "nobody", 20)
        assert refused.value.code is grpc.StatusCode.NOT_FOUND


async def test_a_taint_and_a_cordon_are_told_apart(town, client):
    create(town, "shy", selector={"kubernetes.io/hostname": "fake-0003"})
    await until(lambda: town.kube.get(core.Pod, "shy", namespace=town.namespace).status.phase == "Running", "a pod")
    town.kube.delete(core.Pod, "shy", namespace=town.namespace, grace_period=0)
    taint = {"key": labels.UNTRUSTED.full, "value": "OVER", "effect": "NoSchedule"}
    client.patch(core.Node, "fake-0003", {"spec": {"taints": [taint]}}, patch_type=PatchType.MERGE)
    try:
        async with asked(town, client) as (causes, _):
            create(town, "kept-off", selector={"kubernetes.io/hostname": "fake-0003"})
            found = await eventually(causes, "kept-off", "TaintNotTolerated")
            assert "taint muster.dev/untrusted=OVER:NoSchedule" in found["TaintNotTolerated"]
            client.patch(
                core.Node, "fake-0003", {"spec": {"taints": None, "unschedulable": True}}, patch_type=PatchType.MERGE
            )
            await eventually(causes, "kept-off", "Cordoned")
    finally:
        body = {"spec": {"taints": None, "unschedulable": None}}
        client.patch(core.Node, "fake-0003", body, patch_type=PatchType.MERGE)


async def test_our_own_pods_hear_of_their_gang(town, client):
    async with asked(town, client) as (causes, operator):
        size = {labels.GANG_SIZE.full: "2"}
        create(town, "short-0", gates=(GATE,), marks={GATE: "short"}, **size)
        found = await eventually(causes, "short-0", "HeldByMuster")
        assert "IncompleteGang: 1 of 2 pods exist" in found["HeldByMuster"]
        gang = await operator.why(town.namespace, "short", 20)
        assert (gang.state, gang.why.reason) == ("held", "IncompleteGang")
        assert "no autoscaler acts" in gang.autoscaler
        for index in range(5):
            create(town, f"big-{index}", gates=(GATE,), marks={GATE: "big"}, **{labels.GANG_SIZE.full: "5"})
        await eventually(causes, "big-0", "HeldByMuster")
        gang = None
        while gang is None or not gang.HasField("why") or gang.state != "waiting":
            try:
                gang = await operator.why(town.namespace, "big", 20)
            except clients.Refused:
                await asyncio.sleep(0.1)
        assert gang.why.reason in ("NeverFits", "NotEnoughUnits")
        assert "no autoscaler acts" in gang.autoscaler
        create(town, "lonely", gates=(GATE,))
        found = await eventually(causes, "lonely", "GateNobodyLifts")
        assert "belongs to no gang" in found["GateNobodyLifts"]


async def test_without_gates_our_gate_is_one_that_nobody_lifts(town, client):
    async with town.kube_admitter(gates=False) as (_, address), town.client(address, "operator") as operator:
        create(town, "held", gates=(GATE,), marks={GATE: "g"})

        async def is_said():
            try:
                found = await operator.why_pod(town.namespace, "held", 20)
            except (clients.Refused, clients.Unreachable):
                return False
            return [cause.reason for cause in found.causes] == ["GateNobodyLifts", "NoAutoscalerActs"]

        for _ in range(600):
            if await is_said():
                return
            await asyncio.sleep(0.1)
        pytest.fail("its cause is not told")


def stands(town, name):
    """The condition on a pod, in short."""
    found = town.kube.get(core.Pod, name, namespace=town.namespace).status.conditions or ()
    return next((f"{each.status} {each.reason}" for each in found if each.type == labels.PLACED.full), "")


async def test_a_gangs_word_stands_on_its_first_pod_and_nothing_else_is_touched(town, client):
    async with asked(town, client):
        size = {labels.GANG_SIZE.full: "2"}
        create(town, "pair-0", gates=(GATE,), marks={GATE: "pair"}, **size)
        await until(lambda: stands(town, "pair-0") == "False IncompleteGang", "the condition")
        create(town, "pair-1", gates=(GATE,), marks={GATE: "pair"}, **size)
        await until(lambda: stands(town, "pair-0") == "True Released", "its end")
        await until(
            lambda: town.kube.get(core.Pod, "pair-0", namespace=town.namespace).status.phase == "Running", "the pod"
        )
        assert stands(town, "pair-0") == "True Released", "the kubelet leaves it"
        assert stands(town, "pair-1") == ""
        found = town.kube.get(core.Pod, "pair-0", namespace=town.namespace)
        assert {"PodScheduled", "Ready"} <= {each.type for each in found.status.conditions}
        owned = [entry.manager for entry in found.metadata.managedFields if entry.subresource == "status"]
        assert "muster-pods-placed" in owned
        told = [event.reason for event in town.kube.list(core.Event, namespace=town.namespace)]
        assert {"IncompleteGang", "Released"} <= set(told)
