"""`muster bypass` on a real API server: everything is let go with kubectl alone, no Muster process being there."""

import asyncio
import json
import pathlib
import sys

import pytest
from lightkube.models import batch_v1 as batch_models
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from muster.model import labels
from tests.admitter import gatepolicy

MUSTER = pathlib.Path(sys.executable).parent / "muster"
GATE = labels.GANG.full
PUTS_ON = {
    "1.37": ("policy.yaml", gatepolicy.resource("MutatingAdmissionPolicyBinding")),
    "1.35": ("../webhook/webhook.yaml", gatepolicy.resource("MutatingWebhookConfiguration")),
}
"""What puts the gate on, by the line of Kubernetes."""


async def bypass(cluster, *arguments):
    """Run it to its end; return the exit status, its JSON object and the lines before that."""
    process = await asyncio.create_subprocess_exec(
        MUSTER,
        "bypass",
        *arguments,
        "--kubeconfig",
        str(cluster.kubeconfig),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    *lines, last = out.decode().splitlines() or [""]
    return process.returncode, json.loads(last) if last.startswith("{") else err.decode(), lines


def create_pod(client, namespace, name, *gates, gang="", **metadata):
    spec = core_v1.PodSpec(
        containers=[core_v1.Container(name="main", image="none")],
        schedulingGates=[core_v1.PodSchedulingGate(name=gate) for gate in gates],
        # Nobody runs it: what is asked here is whether it is held.
        nodeSelector={"example.com/nowhere": "true"},
    )
    marks = {GATE: gang} if gang else {}
    meta = meta_v1.ObjectMeta(name=name, namespace=namespace, labels=marks, **metadata)
    return client.create(core.Pod(metadata=meta, spec=spec))


def gates_of(client, namespace):
    return {
        pod.metadata.name: [gate.name for gate in pod.spec.schedulingGates or ()]
        for pod in client.list(core.Pod, namespace=namespace)
    }


def suspended_job(client, namespace, name, **annotations):
    template = core_v1.PodTemplateSpec(
        spec=core_v1.PodSpec(restartPolicy="Never", containers=[core_v1.Container(name="main", image="none")])
    )
    metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, annotations=annotations)
    client.create(batch_v1.Job(metadata=metadata, spec=batch_models.JobSpec(suspend=True, template=template)))


@pytest.fixture
def tainted(client):
    """A Node with our taint and one of somebody else."""
    ours = {"key": labels.UNTRUSTED.full, "value": "OVER", "effect": "NoSchedule"}
    body = {"spec": {"taints": [{"key": "example.com/x", "effect": "PreferNoSchedule"}, ours]}}
    client.patch(core.Node, "fake-0003", body, patch_type=PatchType.MERGE)
    yield "fake-0003"
    client.patch(core.Node, "fake-0003", {"spec": {"taints": None}}, patch_type=PatchType.MERGE)


async def test_everything_of_ours_is_let_go_and_nothing_of_others(cluster, client, namespace, tainted, line):
    manifest, kind = PUTS_ON[line]
    create_pod(client, namespace, "ours", GATE)
    create_pod(client, namespace, "both", "example.com/quota", GATE)
    create_pod(client, namespace, "theirs", "example.com/quota")
    suspended_job(client, namespace, "ours", **{labels.REPLAN.full: "suspended"})
    suspended_job(client, namespace, "theirs")
    with gatepolicy.installed(client, manifest):
        status, record, lines = await bypass(cluster, "all", "--dry-run")
        assert status == 1
        assert any(f"lift the gate {GATE}: pod {namespace}/ours" in line for line in lines)
        assert gates_of(client, namespace)["ours"] == [GATE], "nothing is done on trial"

        status, record, _ = await bypass(cluster, "all", "--yes")
        assert status == 0, record
        assert record["left"] == {}
        assert record["actor"]
        assert not [each for each in client.list(kind) if each.metadata.name.startswith("muster-")]
    assert gates_of(client, namespace) == {
        name: gates
        for name, gates in gates_of(client, namespace).items()
        if GATE not in gates  # the resumed Job's pod too
    }
    assert gates_of(client, namespace)["both"] == ["example.com/quota"]
    assert gates_of(client, namespace)["theirs"] == ["example.com/quota"]
    ours = client.get(batch_v1.Job, "ours", namespace=namespace)
    assert not ours.spec.suspend
    assert labels.REPLAN.full not in (ours.metadata.annotations or {})
    assert client.get(batch_v1.Job, "theirs", namespace=namespace).spec.suspend
    taints = client.get(core.Node, tainted).spec.taints
    assert [taint.key for taint in taints] == ["example.com/x"]
    reasons = [each.reason for each in client.list(core.Event, namespace="default") if each.action == "Bypass"]
    assert {"BypassBegan", "BypassEnded"} <= set(reasons)

    status, record, _ = await bypass(cluster, "all", "--yes")
    assert (status, record["planned"]) == (0, 0), "again, there is nothing to do"


async def test_one_gang_is_let_go_and_the_others_stay(cluster, client, namespace):
    create_pod(client, namespace, "a", GATE, gang="train")
    create_pod(client, namespace, "b", GATE, gang="other")
    status, record, _ = await bypass(cluster, f"gang/{namespace}/train", "--yes", "--json")
    assert (status, record["done"]) == (0, {"pod": 1})
    assert gates_of(client, namespace) == {"a": [], "b": [GATE]}
    (event, *_) = [each for each in client.list(core.Event, namespace=namespace) if each.action == "Bypass"]
    assert event.involvedObject.name == "train"
    status, record, _ = await bypass(cluster, f"namespace/{namespace}", "--yes", "--json")
    assert gates_of(client, namespace) == {"a": [], "b": []}


async def test_nothing_is_done_without_a_yes(cluster, client, namespace):
    create_pod(client, namespace, "a", GATE)
    status, words, _ = await bypass(cluster, f"namespace/{namespace}")
    assert status == 2
    assert "--yes" in str(words)
    assert gates_of(client, namespace) == {"a": [GATE]}
    assert (await bypass(cluster, "everything"))[0] == 2


async def test_one_that_was_killed_midway_is_run_again(cluster, client, namespace):
    """The proxy that it opened ends with it."""
    for number in range(40):
        create_pod(client, namespace, f"p{number}", GATE)
    process = await asyncio.create_subprocess_exec(
        MUSTER,
        *("bypass", f"namespace/{namespace}", "--yes", "--kubeconfig", str(cluster.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    while line := await process.stdout.readline():
        if line.endswith(b": done\n"):
            break
    process.kill()
    await process.wait()
    # Whoever else has our end of the output, kubectl among them, is gone when it ends.
    async with asyncio.timeout(30):
        await process.stdout.read()
    status, record, _ = await bypass(cluster, f"namespace/{namespace}", "--yes", "--json")
    assert (status, record["left"]) == (0, {})
    assert set(map(tuple, gates_of(client, namespace).values())) == {()}


async def test_no_cluster_is_no_answer(tmp_path):
    class Nowhere:
        kubeconfig = tmp_path / "none"

    assert (await bypass(Nowhere, "all", "--yes"))[0] == 3
