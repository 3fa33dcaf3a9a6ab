"""What the admitter writes on Nodes, on a real API server: beside other writers, across restarts, and taken away again."""

import asyncio
import dataclasses
import datetime
import uuid

import lightkube
import pytest
from lightkube.config import kubeconfig
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import events_v1
from lightkube.types import PatchType

from admitter.core import conditions
from admitter.model.leadership import Leadership
from admitter.model.nodestatus import Note, TaintChange, Write
from admitter.publish.nodes import NodeWriter, Outcome
from muster.model import labels
from muster.model.nodeconditions import ConditionType
from muster.model.report import DeviceState, Verdict
from tests.admitter.nodewords import UTC, a_device, a_finding, a_report, in_short

TERM = 7
WELL = conditions.opinions(a_report())
LOST = conditions.opinions(
    a_report(a_finding(Verdict.OVER, "GpuLost", "GPU-3"), devices=[a_device(3, DeviceState.LOST, "GpuLost")])
)
ALL_WELL = {
    "GPUCapacityTruthful": "True AsAdvertised",
    "GPUHealthy": "True AllHealthy",
    "MIGLayoutMatches": "True NotPartitioned",
}
BYSTANDERS = {"Ready": "True KubeletReady", "FrequentKubeletRestart": "False NoFrequentKubeletRestart"}


class Leading:
    """A guard that the test commands."""

    def __init__(self):
        self.leadership = Leadership(term=TERM, until=float("inf"))

    def may_write(self, term):
        return term > 0 and term == self.leadership.term


@pytest.fixture
async def wire(cluster):
    """Return an asynchronous administrator's client."""
    client = lightkube.AsyncClient(
        config=kubeconfig.KubeConfig.from_file(cluster.kubeconfig), trust_env=False, field_manager="test"
    )
    yield client
    await client.close()


@pytest.fixture
def guard():
    return Leading()


@pytest.fixture
def writer(wire, guard):
    return NodeWriter(wire, guard.may_write, lambda: UTC, reporter="admitter-0")


@pytest.fixture
def node(client):
    """Return a Node that no kubelet serves, with conditions and taints of others."""
    name = f"bare-{uuid.uuid4().hex[:8]}"
    taint = core_v1.Taint(key="example.com/team", value="blue", effect="NoSchedule")
    made = client.create(
        core.Node(metadata=meta_v1.ObjectMeta(name=name), spec=core_v1.NodeSpec(taints=[taint])), field_manager="test"
    )
    report(client, name, *BYSTANDERS)
    yield made
    if name in {item.metadata.name for item in client.list(core.Node)}:
        client.delete(core.Node, name)


def report(client, name, *types, status=None):
    """Write conditions as a kubelet does."""
    body = []
    for kind in types:
        value, reason = BYSTANDERS[kind].split()
        body.append({"type": kind, "status": status or value, "reason": reason, "message": "by another writer"})
    client.patch(
        core.NodeStatus, name, {"status": {"conditions": body}}, patch_type=PatchType.STRATEGIC, field_manager="kubelet"
    )


def a_write(node, said=WELL):
    stamped = {name: dataclasses.replace(item, since=UTC) for name, item in said.items()}
    return Write(node=node.metadata.name, uid=node.metadata.uid, conditions=stamped)


def said_by(client, node):
    """Return all conditions of the Node as {type: "Status Reason"}."""
    found = client.get(core.Node, node.metadata.name)
    return {item.type: f"{item.status} {item.reason}" for item in found.status.conditions or ()}


def bare(client, node):
    """Return the whole object without what every write changes, our conditions, and the node controller's own taints."""
    found = client.get(core.Node, node.metadata.name).to_dict()
    for key in ("resourceVersion", "managedFields"):
        found["metadata"].pop(key)
    found["status"]["conditions"] = [
        item for item in found["status"]["conditions"] if item["type"] not in set(ConditionType)
    ]
    taints = found["spec"].get("taints", [])
    found["spec"]["taints"] = [taint for taint in taints if not taint["key"].startswith("node.kubernetes.io/")]
    return found


def ours(client, node):
    found = client.get(core.Node, node.metadata.name).to_dict()
    return {item["type"]: item for item in found["status"]["conditions"] if item["type"] in set(ConditionType)}


async def test_the_first_write_adds_three_conditions_and_changes_nothing_else(client, node, writer):
    before = bare(client, node)
    sent = await writer.set_conditions(a_write(node), TERM)
    assert sent.outcome is Outcome.DONE, sent
    assert bare(client, node) == before
    at = "2026-12-01T12:00:00Z"
    assert {name: _as_text(item) for name, item in ours(client, node).items()} == {
        "GPUCapacityTruthful": {
            "type": "GPUCapacityTruthful",
            "status": "True",
            "reason": "AsAdvertised",
            "message": "what the node advertises can be had",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        },
        "GPUHealthy": {
            "type": "GPUHealthy",
            "status": "True",
            "reason": "AllHealthy",
            "message": "no GPU has a fault",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        },
        "MIGLayoutMatches": {
            "type": "MIGLayoutMatches",
            "status": "True",
            "reason": "NotPartitioned",
            "message": "no GPU is cut into instances",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        },
    }
    owners = [
        (entry.manager, entry.operation, entry.subresource)
        for entry in client.get(core.Node, node.metadata.name).metadata.managedFields
    ]
    assert ("muster-admitter", "Apply", "status") in owners


def _as_text(item):
    return {
        key: value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime.datetime) else value
        for key, value in item.items()
    }


async def test_a_change_replaces_ours_and_an_empty_write_takes_them_away(client, node, writer):
    before = bare(client, node)
    await writer.set_conditions(a_write(node), TERM)
    assert (await writer.set_conditions(a_write(node, LOST), TERM)).outcome is Outcome.DONE
    assert said_by(client, node) == {**BYSTANDERS, **in_short(LOST)}
    assert (await writer.set_conditions(a_write(node, {}), TERM)).outcome is Outcome.DONE
    assert said_by(client, node) == BYSTANDERS
    assert bare(client, node) == before


async def test_two_writers_at_the_same_time_lose_nothing_of_each_other(client, node, writer):
    async def kubelet():
        for number in range(40):
            status = "False" if number % 2 else "True"
            await asyncio.to_thread(report, client, node.metadata.name, *BYSTANDERS, status=status)

    async def muster():
        for number in range(40):
            sent = await writer.set_conditions(a_write(node, WELL if number % 2 else LOST), TERM)
            assert sent.outcome is Outcome.DONE, sent

    await asyncio.gather(kubelet(), muster())
    assert said_by(client, node) == {
        "Ready": "False KubeletReady",
        "FrequentKubeletRestart": "False NoFrequentKubeletRestart",
        **in_short(WELL),
    }


async def test_a_condition_of_our_name_that_is_somebody_elses_is_theirs(client, node, writer):
    theirs = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.metadata.name},
        "status": {"conditions": [{"type": "GPUHealthy", "status": "False", "reason": "Theirs", "message": "m"}]},
    }
    client.patch(core.NodeStatus, node.metadata.name, theirs, patch_type=PatchType.APPLY, field_manager="npd")
    sent = await writer.set_conditions(a_write(node), TERM)
    assert (sent.outcome, sent.foreign) == (Outcome.DONE, frozenset({ConditionType.HEALTH}))
    assert said_by(client, node) == {**BYSTANDERS, **ALL_WELL, "GPUHealthy": "False Theirs"}
    await writer.set_conditions(a_write(node, {}), TERM)
    assert said_by(client, node) == {**BYSTANDERS, "GPUHealthy": "False Theirs"}


async def test_a_node_that_is_gone_is_not_made_and_another_of_its_name_is_left_alone(client, node, writer):
    again = dataclasses.replace(a_write(node), uid=str(uuid.uuid4()))
    assert (await writer.set_conditions(again, TERM)).outcome is Outcome.GONE
    change = TaintChange(node=node.metadata.name, uid=again.uid, value="OVER", why="test")
    assert (await writer.change_taint(change, TERM)).outcome is Outcome.GONE
    assert said_by(client, node) == BYSTANDERS
    client.delete(core.Node, node.metadata.name)
    assert (await writer.set_conditions(a_write(node), TERM)).outcome is Outcome.GONE
    assert (await writer.change_taint(change, TERM)).outcome is Outcome.GONE
    assert node.metadata.name not in {item.metadata.name for item in client.list(core.Node)}


async def test_who_does_not_lead_any_more_sends_nothing(client, node, writer, guard):
    guard.leadership = Leadership()
    note = Note(reason="GpuLost", action="SetGPUHealthy", text="x", is_warning=True)
    change = TaintChange(node=node.metadata.name, uid=node.metadata.uid, value="OVER", why="test")
    sent = [
        await writer.set_conditions(a_write(node), TERM),
        await writer.change_taint(change, TERM),
        await writer.send_note(node.metadata.name, node.metadata.uid, note, TERM),
    ]
    assert {each.outcome for each in sent} == {Outcome.NOT_LEADING}
    assert said_by(client, node) == BYSTANDERS


def taints_of(client, node):
    found = client.get(core.Node, node.metadata.name).spec.taints or []
    return {
        (taint.key, taint.value, taint.effect)
        for taint in found
        if not taint.key.startswith("node.kubernetes.io/")  # the node controller's, for a Node without a kubelet
    }


TEAM = ("example.com/team", "blue", "NoSchedule")


async def test_the_taint_comes_changes_and_goes_beside_those_of_others(client, node, writer):
    for value, expected in (("OVER", {"OVER"}), ("BLOCKED", {"BLOCKED"}), ("BLOCKED", {"BLOCKED"}), ("", set())):
        change = TaintChange(node=node.metadata.name, uid=node.metadata.uid, value=value, why="test")
        outcome = Outcome.CONFLICT
        while outcome is Outcome.CONFLICT:  # the node controller taints a Node without a kubelet at the same time
            outcome = (await writer.change_taint(change, TERM)).outcome
        assert outcome is Outcome.DONE
        assert taints_of(client, node) == {TEAM} | {(labels.UNTRUSTED.full, text, "NoSchedule") for text in expected}


async def test_taints_of_two_writers_at_the_same_time_are_both_there(client, node, writer):
    done, lost = 0, 0

    async def muster():
        nonlocal done, lost
        while done < 10:
            change = TaintChange(
                node=node.metadata.name, uid=node.metadata.uid, value="" if done % 2 else "OVER", why="test"
            )
            sent = await writer.change_taint(change, TERM)
            assert sent.outcome in (Outcome.DONE, Outcome.CONFLICT), sent
            done += sent.outcome is Outcome.DONE
            lost += sent.outcome is Outcome.CONFLICT

    def other():
        for number in range(20):
            while not put(number):
                pass

    def put(number):
        found = client.get(core.Node, node.metadata.name)
        others = [taint for taint in found.spec.taints if taint.key != "example.com/n"]
        found.spec.taints = [*others, core_v1.Taint(key="example.com/n", value=str(number), effect="NoSchedule")]
        try:
            client.replace(found, field_manager="other")
        except exceptions.ApiError as error:
            return error.status.code != 409
        return True

    await asyncio.gather(muster(), asyncio.to_thread(other))
    assert taints_of(client, node) == {TEAM, ("example.com/n", "19", "NoSchedule")}


async def test_an_event_is_where_kubectl_looks_for_it(client, node, writer):
    note = Note(reason="GpuLost", action="SetGPUHealthy", text="GPUHealthy is False: GPU-3 lost", is_warning=True)
    sent = await writer.send_note(node.metadata.name, node.metadata.uid, note, TERM)
    assert sent.outcome is Outcome.DONE, sent
    found = [
        item
        for item in client.list(core.Event, namespace="default", fields={"involvedObject.name": node.metadata.name})
        if item.source is None or item.source.component != "node-controller"
    ]
    assert [(item.reason, item.type, item.message, item.involvedObject.uid) for item in found if item.action] == [
        ("GpuLost", "Warning", "GPUHealthy is False: GPU-3 lost", node.metadata.uid)
    ]
    # One by name: a list fails on what core components wrote in the older form, without an instant.
    (name,) = [item.metadata.name for item in found if item.action]
    event = client.get(events_v1.Event, name, namespace="default")
    assert event.reportingController == "muster.dev/admitter"
    assert (event.action, event.reportingInstance) == ("SetGPUHealthy", "admitter-0")
