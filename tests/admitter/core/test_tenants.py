"""What a tenant may write on its own pods: gates stripped, leases forged, sizes changed midway, schedulers that nobody runs."""

import dataclasses

import pytest

from admitter.core import gates
from admitter.model.hold import Hold, HoldReason, Open, Release, Replan, Strike, Tell, Withdraw
from admitter.model.record import GangState
from muster.model import labels
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, kinds, opened, released, running
from tests.admitter.grouppods import a_pod

PAIR = [a_pod(), a_pod("trainer-1")]
THEIRS = "t1-theirs"


def with_lease(pod, lease, **changes):
    return dataclasses.replace(pod, annotations={**pod.annotations, labels.LEASE.full: lease}, **changes)


def sized(pods, size):
    return [dataclasses.replace(pod, annotations={**pod.annotations, labels.GANG_SIZE.full: size}) for pod in pods]


def let_go(intents):
    return {intent.uid: intent.nodes for intent in intents if isinstance(intent, Release)}


# -- gates stripped by hand


def test_a_member_whose_gate_was_stripped_while_it_waited_counts_and_is_placed_around():
    hold, gang = opened(PAIR)
    pods = [dataclasses.replace(PAIR[0], gates=()), PAIR[1]]
    hold, intents = gates.step(a_scene(pods, a_record(gang)), hold, POLICY)
    assert kinds(intents) == [Withdraw], "the old question counts a pod that goes its own way"
    _, (intent,) = gates.step(a_scene(pods, a_record(gang, state=GangState.ENDED)), hold, POLICY)
    assert intent.gang.pods == 1


@pytest.mark.parametrize("node", ["", "n9"], ids=["not bound", "bound by hand to another node"])
def test_one_whose_gate_was_stripped_under_the_lease_takes_nobodys_place(node):
    hold, gang = opened(PAIR)
    record = a_record(gang, nodes=("n1", "n2"))
    stripped = dataclasses.replace(PAIR[0], gates=(), node=node)
    hold, intents = gates.step(a_scene([stripped, PAIR[1]], record), hold, POLICY)
    assert list(let_go(intents)) == [PAIR[1].uid]
    assert set(hold.seats) == {PAIR[1].uid}
    late = NOW + POLICY.bind_patience_seconds + 1
    pods = [stripped, with_lease(PAIR[1], "t1-1", gates=(), node="n2")]
    _, intents = gates.step(a_scene(pods, record, now=late), hold, POLICY)
    assert not [intent for intent in intents if isinstance(intent, Replan)], "nothing that may start is sent back"


def test_all_gates_stripped_is_a_gang_of_nobodys():
    hold, gang = opened(PAIR)
    pods = [dataclasses.replace(pod, gates=()) for pod in PAIR]
    _, intents = gates.step(a_scene(pods, a_record(gang)), hold, POLICY)
    assert not [intent for intent in intents if not isinstance(intent, Tell | Withdraw)]


# -- leases forged


def test_anothers_lease_on_a_held_pod_gives_it_nothing():
    pods = [with_lease(pod, THEIRS) for pod in PAIR]
    hold, intents = gates.step(a_scene(pods, request_of={THEIRS: "their-request"}), Hold(), POLICY)
    (intent,) = intents
    assert isinstance(intent, Open)
    assert intent.gang.full_name == "team-a/trainer", "an orphan is given to its own gang's name only"
    record = a_record(intent.gang, nodes=("n1", "n2"))
    _, intents = gates.step(a_scene(pods, record, request_of={THEIRS: "their-request"}), hold, POLICY)
    assert sorted(let_go(intents).values()) == [("n1",), ("n2",)], "it sits where its own lease says"


@pytest.mark.parametrize("lease", [THEIRS, "nobodys", "", "x" * 10_000], ids=["known", "unknown", "empty", "long"])
def test_a_forged_lease_on_a_pod_that_was_let_go_never_makes_more_places(lease):
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    forged = [with_lease(a_pod(f"trainer-{index}", uid=f"extra-{index}"), lease, gates=()) for index in (7, 8)]
    _, intents = gates.step(a_scene([*pods, *forged], record, request_of={THEIRS: "r"}), hold, POLICY)
    assert not let_go(intents)
    assert not [intent for intent in intents if isinstance(intent, Replan | Withdraw)]


def test_an_invented_lease_on_ones_own_pods_harms_only_them():
    """They are taken for pods whose lease is lost: nothing is asked for them, and what nobody binds goes back."""
    pods = [with_lease(PAIR[0], "invented", gates=()), PAIR[1]]
    hold, (told,) = gates.step(a_scene(pods), Hold(), POLICY)
    assert told.told.reason == HoldReason.NOT_BOUND
    _, intents = gates.step(a_scene(pods, now=NOW + 99), hold, POLICY)
    assert [intent.uids for intent in intents if isinstance(intent, Replan)] == [(pods[0].uid,)]
    bound = [dataclasses.replace(pods[0], node="n1"), PAIR[1]]
    _, (intent,) = gates.step(a_scene(bound, now=NOW + 99), hold, POLICY)
    assert intent.gang.pods == 1, "bound all the same: placed around"


# -- sizes that change midway


@pytest.mark.parametrize("size", ["0", "1", "3", "1000000", "two"])
def test_a_size_that_changes_while_the_gang_waits_takes_the_question_back_and_is_told(size):
    hold, gang = opened(PAIR)
    pods = [PAIR[0], *sized(PAIR[1:], size)]
    _, intents = gates.step(a_scene(pods, a_record(gang)), hold, POLICY)
    assert kinds(intents) == [Withdraw, Tell]
    assert intents[1].told.reason == HoldReason.INVALID_GANG
    assert len(intents[1].told.summary) <= 512


@pytest.mark.parametrize("size", ["0", "1", "3", "1000000", "two"])
def test_one_that_changes_under_the_lease_neither_ends_nor_adds_anything(size):
    pods, where, hold, record = released(PAIR, ("n1", "n2"))
    for changed in ([pods[0], *sized(pods[1:], size)], sized(pods, size)):
        _, intents = gates.step(a_scene(changed, record), hold, POLICY)
        assert not [intent for intent in intents if not isinstance(intent, Tell)]
        started = [running(pod, where[pod.uid]) for pod in changed]
        _, intents = gates.step(a_scene(started, record), hold, POLICY)
        assert not [intent for intent in intents if isinstance(intent, Withdraw | Replan | Strike)]


# -- pods of two schedulers


def test_the_scheduler_that_does_not_bind_its_part_is_named_and_the_other_part_stays():
    pair = [PAIR[0], a_pod("trainer-1", scheduler="nobody-runs-this")]
    pods, where, hold, record = released(pair, ("n1", "n2"))
    pods = [running(pods[0], where[pods[0].uid]), pods[1]]
    _, intents = gates.step(a_scene(pods, record, now=NOW + 99), hold, POLICY)
    assert [intent.party for intent in intents if isinstance(intent, Strike)] == ["scheduler nobody-runs-this"]
    assert not [intent for intent in intents if isinstance(intent, Replan | Withdraw)]
