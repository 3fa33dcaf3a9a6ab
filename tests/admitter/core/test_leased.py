"""Under a lease: who is let go where, whose place is lost, and when the lease goes back."""

import dataclasses

from admitter.core import gates
from admitter.model.hold import HoldReason, Join, Release, Strike, Tell, Withdraw
from admitter.model.record import GangState
from muster.model import labels
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, kinds, opened, released, running
from tests.admitter.grouppods import GATE, a_pod, rejected

PAIR = [a_pod(), a_pod("trainer-1")]


def replaced(pods, record, hold, now=NOW, broken=("n2",)):
    """Step with the second member replaced, while these nodes take nothing."""

    def barrier(_pod, node):
        return "is not Ready" if node in broken else ""

    return gates.step(a_scene(pods, record, barrier=barrier, now=now), hold, POLICY)


def test_a_replacement_is_never_pinned_to_a_node_that_takes_nothing_and_is_asked_for_around_those_that_run():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    record = dataclasses.replace(record, state=GangState.STARTED)
    mine = [running(pods[0], "n1"), a_pod("trainer-1", uid="again")]
    hold, intents = replaced(mine, record, hold)
    assert [type(each) for each in intents] == [Join, Tell]
    assert intents[1].told.reason == HoldReason.NO_PLACE
    assert "trainer-1 has no place under the gang's lease: n2 is not Ready" in intents[1].told.summary
    assert replaced(mine, record, hold, now=NOW + POLICY.bind_patience_seconds) == (hold, ()), "and it is said once"
    late = NOW + POLICY.bind_patience_seconds + 1
    hold, (back,) = replaced(mine, record, hold, now=late)
    assert back == Withdraw(detail=intents[1].told.summary, has_run=True)
    assert (hold.seats, hold.strikes) == ({}, {}), "nobody refused anything"
    hold, (asked,) = replaced(mine, dataclasses.replace(record, state=GangState.ENDED, lease=None), hold, now=late)
    assert (asked.gang.pods, asked.gang.request_id != record.gang.request_id) == (1, True)
    record = a_record(asked.gang, nodes=("n3",))
    hold, intents = replaced(mine, record, hold, now=late)
    assert [(each.uid, each.nodes) for each in intents if isinstance(each, Release)] == [("again", ("n3",))]


def test_a_node_that_comes_back_in_time_gets_the_replacement():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    mine = [running(pods[0], "n1"), a_pod("trainer-1", uid="again")]
    hold, _ = replaced(mine, record, hold)
    hold, intents = replaced(mine, record, hold, now=NOW + 59, broken=())
    assert [(each.uid, each.nodes) for each in intents if isinstance(each, Release)] == [("again", ("n2",))]
    assert hold.unseated == {}


def test_the_lease_stays_while_one_who_was_let_go_may_still_be_bound():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    mine = [pods[0], a_pod("trainer-1", uid="again")]
    hold, _ = replaced(mine, record, hold, now=NOW + 50)
    hold, intents = replaced(mine, record, hold, now=NOW + 58)
    assert not [each for each in intents if isinstance(each, Withdraw)]


def test_nobody_is_let_go_first_while_another_one_of_the_gang_has_no_place():
    hold, gang = opened(PAIR)
    record = a_record(gang, nodes=("n1", "n2"))
    hold, intents = replaced(PAIR, record, hold)
    assert kinds(intents) == [Tell]
    assert hold.seats == {}
    _, intents = replaced(PAIR, record, hold, now=NOW + 61)
    assert kinds(intents) == [Withdraw]
    _, intents = replaced(PAIR, record, hold, broken=())
    assert kinds(intents)[:2] == [Release, Release]


def test_a_member_more_than_the_lease_has_places_for_is_asked_for_around_the_others():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    mine = [running(pods[0], "n1"), running(pods[1], "n2"), a_pod("trainer-2")]
    hold, intents = gates.step(a_scene(mine, record), hold, POLICY)
    assert intents[-1].told.reason == HoldReason.NO_PLACE
    _, intents = gates.step(a_scene(mine, record, now=NOW + 61), hold, POLICY)
    assert kinds(intents) == [Withdraw]


TRIO = [a_pod(name, annotations={labels.GANG_SIZE.full: "3"}) for name in ("trainer-0", "trainer-1", "trainer-2")]


def refused_one(third):
    """Of three one was refused, one runs, and the third is as it is told; whoever comes in the first one's stead is held."""
    pods, where, hold, record = released(TRIO, ("n1", "n2", "n3"))
    assert list(where.values()) == ["n1", "n2", "n3"]
    anew = dataclasses.replace(TRIO[0], uid="anew")
    return [rejected(pods[0], "n1"), running(pods[1], "n2"), third(pods[2]), anew], hold, record


def test_the_lease_goes_back_once_nobody_who_was_let_go_may_be_bound_to_its_places():
    pods, hold, record = refused_one(lambda pod: pod)
    hold, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert kinds(intents) == [Strike]
    hold, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert kinds(intents) == [Join, Tell], "nobody else is let go under it, and it is counted once"
    assert "goes back once those that were let go are bound or gone" in intents[1].told.summary
    assert gates.step(a_scene(pods, record), hold, POLICY) == (hold, ())
    pods[2] = dataclasses.replace(pods[2], node="n3")
    after, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert kinds(intents) == [Withdraw]
    assert (after.seats, after.yields, after.strikes) == ({}, "", hold.strikes)
    del pods[2]
    assert kinds(gates.step(a_scene(pods, record), hold, POLICY)[1]) == [Withdraw]


def test_a_patch_that_is_on_its_way_may_still_come_through():
    pods, hold, record = refused_one(lambda pod: dataclasses.replace(pod, gates=(GATE,)))
    _, intents = gates.step(a_scene(pods, record, is_busy=lambda uid: uid == pods[2].uid), hold, POLICY)
    assert kinds(intents) == [Strike]
    _, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert kinds(intents) == [Strike, Withdraw], "and one that is not, will not"
