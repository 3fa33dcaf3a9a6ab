"""Pods that were let go before: under a lease that nobody knows any more, or under one that the next leader must find again."""

import dataclasses

import pytest

from admitter.core import gates
from admitter.model.cluster import ANYWHERE, Constraints, Expression, NodeTerm
from admitter.model.group import Workloads
from admitter.model.hold import Hold, HoldReason, Open, Replan
from muster.model import labels
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, kinds, opened, released, running
from tests.admitter.grouppods import a_job, a_job_pod, a_pod

PAIR = [a_pod(), a_pod("trainer-1")]
STRAY = a_pod(gates=(), annotations={**a_pod().annotations, labels.LEASE.full: "t0-9"})
ZONE = Expression(key="zone", operator="In", values=("a",))


PINS = {
    "by selector": [{"node_selector": {"kubernetes.io/hostname": f"n{index}"}} for index in (1, 2)],
    "by a field": [
        {"required": (NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=(f"n{index}",)),)),)}
        for index in (1, 2)
    ],
}


@pytest.mark.parametrize(
    "own", [ANYWHERE, Constraints(required=(NodeTerm(labels=(ZONE,)),))], ids=["free", "in a zone"]
)
@pytest.mark.parametrize("pins", PINS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_new_leader_asks_what_was_asked_though_those_that_were_let_go_are_pinned(pins, count, own):
    pair = [dataclasses.replace(pod, constraints=own) for pod in PAIR]
    pods, _, _, record = released(pair, ("n1", "n2"))
    for index in range(count):
        pin = PINS[pins][index]
        if own.required and "required" in pin:
            pin = {"required": (dataclasses.replace(own.required[0], fields=pin["required"][0].fields),)}
        pods[index] = dataclasses.replace(pods[index], constraints=dataclasses.replace(own, **pin))
    half = [*pods[:count], *pair[count:]]
    _, (intent,) = gates.step(a_scene(half, request_of={"t1-1": record.gang.request_id}), Hold(), POLICY)
    assert intent.gang == record.gang


def test_one_that_was_let_go_under_an_older_lease_goes_back_before_anybody_is_let_go_under_the_new():
    hold, gang = opened(PAIR)
    record = a_record(gang, nodes=("n1", "n2"))
    pods, known = [STRAY, PAIR[1]], {"t1-1": "r"}
    hold, intents = gates.step(a_scene(pods, record, request_of=known), hold, POLICY)
    assert [intent.told.reason for intent in intents] == [HoldReason.NOT_BOUND]
    _, (intent,) = gates.step(a_scene(pods, record, now=NOW + 61, request_of=known), hold, POLICY)
    assert (type(intent), intent.uids) == (Replan, (STRAY.uid,))


def test_nothing_is_asked_beside_a_pod_that_may_be_bound_to_a_place_that_nobody_holds():
    pods = [STRAY, a_pod("trainer-1")]
    hold, intents = gates.step(a_scene(pods), Hold(), POLICY)
    assert [intent.told.reason for intent in intents] == [HoldReason.NOT_BOUND]
    assert gates.step(a_scene(pods, now=NOW + 60), hold, POLICY) == (hold, ())
    _, intents = gates.step(a_scene(pods, now=NOW + 61), hold, POLICY)
    assert [(intent.owner, intent.uids) for intent in intents] == [(None, (STRAY.uid,))]
    back = [a_pod(uid="again"), a_pod("trainer-1")]
    hold, intents = gates.step(a_scene(back, now=NOW + 62), hold, POLICY)
    assert (kinds(intents), dict(hold.astray)) == ([Open], {})


def test_one_whose_agent_comes_back_with_its_lease_is_no_stray():
    pods = [STRAY, a_pod("trainer-1")]
    hold, _ = gates.step(a_scene(pods), Hold(), POLICY)
    hold, (intent,) = gates.step(a_scene(pods, now=NOW + 600, request_of={"t0-9": "r"}), hold, POLICY)
    assert intent.gang.request_id == "r"
    assert not hold.astray


def test_one_beside_which_its_owners_pods_run_is_left_alone():
    job = a_job(parallelism=2, completions=2)
    workloads = Workloads(jobs={job.uid: job})
    stray = a_job_pod(0, gates=(), annotations={labels.LEASE.full: "t0-9"})
    pods = [stray, running(a_job_pod(1), "n2")]
    hold, _ = gates.step(a_scene(pods, workloads=workloads), Hold(), POLICY)
    assert gates.step(a_scene(pods, now=NOW + 99, workloads=workloads), hold, POLICY) == (hold, ())
