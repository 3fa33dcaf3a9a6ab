"""No agent can be seen, on a real API server and scheduler: a queue that fails open lets go whole gangs, one that fails closed holds."""

import functools
import json

import pytest

from muster.model import labels
from tests.admitter import kubetown
from tests.admitter.kubeagents import truthful
from tests.admitter.kubegangs import NODES, create_gang, held, notes, pods, remove, running
from tests.admitter.kubetown import KubeTown

until = functools.partial(kubetown.until, seconds=180)


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


async def test_a_queue_that_fails_open_goes_on_without_agents_and_is_held_to_leases_once_they_are_back(
    town, client, tmp_path
):
    log = tmp_path / "decisions.jsonl"
    settings = {"gates": True, "lease_seconds": 15.0, "decision_log": log, "fail_open_after_seconds": 3.0}
    async with town.kube_admitter(fail_open=("elsewhere",), **settings):
        create_gang(town, "first", 2)
        await until(lambda: "outage-began" in _kinds(log), "the outage")
        await until(lambda: notes(town, "NoSuchResource") or notes(town, "NodesStale"), "why it waits")
        assert len(held(town, "first")) == 2
    async with town.kube_admitter(fail_open=(town.namespace,), **settings) as (_, address):
        create_gang(town, "half", 2)
        remove(town, "half-1")
        await until(lambda: len(running(town, "first")) == 2, "the gang without a lease")
        marks = {pod.metadata.annotations[labels.UNVERIFIED.full] for pod in pods(town, "first")}
        assert len(marks) == 1
        assert not any(labels.LEASE.full in pod.metadata.annotations for pod in pods(town, "first"))
        await until(lambda: notes(town, "ReleasedUnverified"), "the Event")
        assert len(held(town, "half")) == 1, "half a gang stays"
        async with truthful(town, address, client, NODES):
            await until(lambda: "outage-ended" in _kinds(log), "sight")
            create_gang(town, "fits", 2)
            create_gang(town, "waits", 1)
            await until(lambda: len(running(town, "fits")) == 2, "a gang with a lease, beside what runs without")
            assert all(labels.LEASE.full in pod.metadata.annotations for pod in pods(town, "fits"))
            await until(lambda: notes(town, "NotEnoughUnits"), "why the last one waits")
            assert len(held(town, "waits")) == 1
    remove(town, "")
    assert _kinds(log).count("let-go-unseen") == 1


def _kinds(log):
    return [json.loads(line)["kind"] for line in log.read_text().splitlines()]
