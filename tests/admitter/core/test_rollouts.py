"""A rollout that waits for what it holds itself is told so, with what cures it; nobody else is."""

import pytest

from admitter.core import gates, gatescene, rollouts
from admitter.core.rollouts import Rollout
from admitter.model.cluster import Owner
from admitter.model.decision import Explanation
from admitter.model.group import Workloads
from admitter.model.hold import GatePolicy, Hold, HoldReason, Stand, Tell
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import TAKEN
from tests.admitter.gatescenes import POLICY, a_look, a_record
from tests.admitter.grouppods import GPU, a_pod

WEB = Rollout(namespace="team-a", kind="Deployment", name="web")


def a_replica(name, revision, node="", gpus=8, app="web"):
    owner = Owner(kind="ReplicaSet", name=f"{app}-{revision}", uid=revision, api_version="apps/v1", is_controller=True)
    labels = {rollouts.TEMPLATE_HASH: revision}
    gates = () if node else ("muster.dev/gang",)
    return a_pod(name, labels=labels, annotations={}, owners=(owner,), node=node, requests={GPU: gpus}, gates=gates)


def a_worker(name, revision, node=""):
    labels = {rollouts.LWS: "serve", rollouts.LWS_REVISION: revision}
    return a_pod(name, labels=labels, annotations={}, node=node, requests={GPU: 8})


def holdings(*bound):
    return rollouts.Holdings(lambda _: bound)


def test_a_surge_that_waits_for_its_predecessor_is_named_with_its_cure():
    said = rollouts.self_blocked([a_replica("new", "b")], holdings(a_replica("old", "a", "n1")), GPU, 8)
    assert "Deployment web waits for 8 nvidia.com/gpu that its own older pods hold (old)" in said
    assert "maxSurge 0 and maxUnavailable 1" in said
    said = rollouts.self_blocked([a_worker("new", "b")], holdings(a_worker("old", "a", "n1")), GPU, 8)
    assert "LeaderWorkerSet serve" in said
    assert "maxSurge 0" in said


@pytest.mark.parametrize(
    ("bound", "lacking"),
    [
        ([a_replica("old", "a", "n1", gpus=4)], 8),
        ([a_replica("old", "b", "n1")], 8),
        ([a_replica("old", "a", "n1", app="other")], 8),
        ([a_replica("old", "a")], 8),
        ([a_pod("stranger", node="n1", gates=())], 8),
        ([a_replica("old", "a", "n1")], 0),
        ([], 8),
    ],
    ids=[
        "its predecessors hold too little",
        "of the same revision",
        "another deployment",
        "not bound",
        "somebody else",
        "nothing is lacking",
        "nobody",
    ],
)
def test_whoever_waits_for_others_does_not_wait_for_itself(bound, lacking):
    assert rollouts.self_blocked([a_replica("new", "b")], holdings(*bound), GPU, lacking) == ""


def test_the_index_follows_pods_as_they_come_and_go():
    bound = rollouts.Bound()
    held, placed = a_replica("old", "a"), a_replica("old", "a", "n1")
    bound.note(None, held)
    assert bound.of(WEB) == frozenset()
    bound.note(held, placed)
    assert bound.of(WEB) == {"uid-old"}
    bound.note(placed, placed)
    assert bound.of(WEB) == {"uid-old"}
    bound.note(placed, None)
    assert bound.of(WEB) == frozenset()


def test_it_is_told_and_keeps_no_place_for_itself():
    pods, old = [a_replica("new", "b")], [a_replica("old", "a", "n1")]
    workloads = Workloads(managed=frozenset({"team-a"}))

    def scene(record, hold):
        look = a_look(pods, workloads, TAKEN, bound=lambda whose: old if whose == WEB else [])
        return gatescene.assemble("team-a/pod.new", pods, look, record=record, hold=hold, policy=GatePolicy())

    hold, (opened,) = gates.step(scene(None, Hold()), Hold(), POLICY)
    why = Explanation(
        reason=WaitReason.NOT_ENOUGH_UNITS, summary="needs 8 GPUs", position=1, needed_units=8, available_units=0
    )
    record = a_record(opened.gang, why=why)
    hold, intents = gates.step(scene(record, hold), hold, POLICY)
    (told,) = (intent.told for intent in intents if isinstance(intent, Tell))
    (standing,) = (intent.standing for intent in intents if isinstance(intent, Stand))
    assert told.reason == HoldReason.SELF_BLOCKED
    assert not standing.may_reserve


def test_a_rollout_is_gone_through_once_a_look_however_many_wait():
    asked = []
    holdings = rollouts.Holdings(lambda whose: asked.append(whose) or [a_replica("old", "a", "n1")])
    said = {rollouts.self_blocked([a_replica(f"new-{index}", "b")], holdings, GPU, 8) for index in range(50)}
    assert (len(said), asked) == (1, [WEB])
    assert rollouts.self_blocked([a_replica("newer", "c")], holdings, GPU, 8)
    assert asked == [WEB, WEB], "another revision has other older pods"
