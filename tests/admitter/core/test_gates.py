"""The life of a group of held pods."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import gates, grouprequest
from admitter.core import strikes as strikes_of
from admitter.model.group import Workloads
from admitter.model.hold import Hold, HoldReason, Join, Leave, Open, Release, Replan, Strike, Tell, Withdraw
from admitter.model.record import GangState
from muster.model import kube, labels
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, kinds, opened, released, running
from tests.admitter.grouppods import GATE, a_group, a_job, a_job_pod, a_pod, rejected

PAIR = [a_pod(), a_pod("trainer-1")]


# -- before the lease


def test_nothing_is_asked_before_all_are_there():
    hold, intents = gates.step(a_scene(PAIR[:1]), Hold(), POLICY)
    assert [intent.told.reason for intent in intents] == [HoldReason.INCOMPLETE]
    assert intents[0].told.summary == "1 of 2 pods exist"
    assert gates.step(a_scene(PAIR[:1]), hold, POLICY) == (hold, ()), "and it is said once"


def test_all_are_asked_for_at_once():
    _, gang = opened(PAIR)
    assert (gang.full_name, gang.pods) == ("team-a/trainer", 2)


def test_the_same_pods_ask_the_same_question_in_another_process():
    assert opened(PAIR)[1] == opened(list(reversed(PAIR)))[1]
    assert opened([a_pod(), a_pod("trainer-9")])[1].request_id != opened(PAIR)[1].request_id


def test_a_gate_of_somebody_else_holds_the_gang_and_is_never_lifted():
    pods = [a_pod(), a_pod("trainer-1", gates=("example.com/quota", GATE))]
    _, intents = gates.step(a_scene(pods), Hold(), POLICY)
    assert [intent.told for intent in intents] == [
        dataclasses.replace(intents[0].told, reason=HoldReason.FOREIGN_GATE, summary="example.com/quota on trainer-1")
    ]
    known = dataclasses.replace(POLICY, gates_before=frozenset({"example.com/quota"}))
    assert kinds(gates.step(a_scene(pods), Hold(), known)[1]) == [Open]


@pytest.mark.parametrize(
    "kept",
    [{"gates": ("example.com/quota", GATE)}, {"annotations": {labels.GANG_SIZE.full: "many"}}],
    ids=["a gate of its own", "a bad annotation"],
)
def test_who_keeps_itself_from_asking_has_no_place_meanwhile(kept):
    born = {pod.uid: NOW - 500 for pod in PAIR}
    parked = [PAIR[0], dataclasses.replace(PAIR[1], **kept)]
    hold, _ = gates.step(a_scene(parked, born=born), Hold(), POLICY)
    _, intents = gates.step(a_scene(PAIR, born=born, now=NOW + 1), hold, POLICY)
    assert [intent.asked_at for intent in intents if isinstance(intent, Open)] == [NOW]
    _, intents = gates.step(a_scene(PAIR, born=born, now=NOW + 1), Hold(), POLICY)
    assert [intent.asked_at for intent in intents if isinstance(intent, Open)] == [NOW - 500]


def test_a_gang_that_can_be_no_gang_is_told_and_not_asked_for():
    pods = [a_pod(annotations={labels.GANG_SIZE.full: "many"})]
    _, intents = gates.step(a_scene(pods), Hold(), POLICY)
    assert [intent.told.reason for intent in intents] == [HoldReason.INVALID_GANG]


def test_a_pod_that_goes_takes_the_question_back():
    hold, gang = opened(PAIR)
    _, intents = gates.step(a_scene(PAIR[:1], a_record(gang)), hold, POLICY)
    assert kinds(intents) == [Withdraw, Tell]


def test_a_pod_that_is_replaced_while_it_waits_makes_a_new_question():
    hold, gang = opened(PAIR)
    pods = [a_pod(), a_pod("trainer-1", uid="another")]
    hold, intents = gates.step(a_scene(pods, a_record(gang)), hold, POLICY)
    assert kinds(intents) == [Withdraw]
    record = a_record(gang, state=GangState.ENDED)
    hold, (intent,) = gates.step(a_scene(pods, record), hold, POLICY)
    assert intent.gang.request_id != gang.request_id


def test_pods_without_devices_wait_for_nothing():
    pods = [a_pod(requests={"cpu": 1}), a_pod("trainer-1", requests={})]
    _, intents = gates.step(a_scene(pods), Hold(), POLICY)
    assert [intent.uid for intent in intents if isinstance(intent, Release)] == ["uid-trainer-0", "uid-trainer-1"]


def test_a_member_that_runs_without_our_gate_is_not_asked_for_again():
    pods = [running(a_pod(), "n1"), a_pod("trainer-1")]
    assert opened(pods)[1].pods == 1


# -- under the lease


def test_every_member_gets_a_seat_of_its_own_and_its_gate_goes_with_the_pin():
    pods, where, hold, record = released(PAIR, ("n1", "n2"))
    assert where == {"uid-trainer-0": "n1", "uid-trainer-1": "n2"}
    assert gates.step(a_scene(pods, record), hold, POLICY)[1] == (), "what is done is not wanted again"


def test_a_release_that_was_lost_is_wanted_again():
    hold, gang = opened(PAIR)
    record = a_record(gang, nodes=("n1", "n2"))
    hold, first = gates.step(a_scene(PAIR, record), hold, POLICY)
    _, second = gates.step(a_scene(PAIR, record), hold, POLICY)
    assert [i for i in first if isinstance(i, Release)] == [i for i in second if isinstance(i, Release)]


def test_members_are_reported_where_they_are():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    pods = [dataclasses.replace(pods[0], node="n1"), pods[1]]
    hold, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert [(i.member.uid, i.member.node) for i in intents if isinstance(i, Join)] == [("uid-trainer-0", "n1")]
    assert gates.step(a_scene(pods, record), hold, POLICY)[1] == ()


def test_a_pod_that_comes_back_gets_the_place_that_was_held():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    again = a_pod("trainer-1", uid="again")
    hold, intents = gates.step(a_scene([running(pods[0], "n1"), again], record), hold, POLICY)
    assert [(i.uid, i.nodes) for i in intents if isinstance(i, Release)] == [("again", ("n2",))]


def test_a_gang_that_starts_anew_needs_a_lease_of_its_own():
    _, _, hold, record = released(PAIR, ("n1", "n2"))
    anew = [a_pod("trainer-0", uid="a"), a_pod("trainer-1", uid="b")]
    hold, intents = gates.step(a_scene(anew, record), hold, POLICY)
    assert kinds(intents) == [Withdraw]
    assert hold.seats == {}
    assert opened(anew)[1].request_id != record.gang.request_id


def test_a_member_that_is_done_gives_its_units_back():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    done = dataclasses.replace(running(pods[0], "n1"), phase=kube.PodPhase.SUCCEEDED)
    pods = [done, running(pods[1], "n2")]
    hold, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert [i.uid for i in intents if isinstance(i, Leave)] == ["uid-trainer-0"]
    assert not [i for i in gates.step(a_scene(pods, record), hold, POLICY)[1] if isinstance(i, Leave)]
    pods = [done, dataclasses.replace(pods[1], phase=kube.PodPhase.SUCCEEDED)]
    assert kinds(gates.step(a_scene(pods, record), hold, POLICY)[1]) == [Withdraw]


def test_a_work_queue_goes_on_in_the_seats_of_those_that_are_done():
    job = a_job(is_indexed=False, parallelism=2, completions=5)
    workloads = Workloads(jobs={job.uid: job}, managed=frozenset({"team-a"}))
    pods, _, hold, record = released([a_job_pod(0), a_job_pod(1)], ("n1", "n2"), workloads)
    done = dataclasses.replace(running(pods[0], "n1"), phase=kube.PodPhase.SUCCEEDED)
    pods = [done, running(pods[1], "n2"), a_job_pod(2)]
    _, intents = gates.step(a_scene(pods, record, workloads=workloads), hold, POLICY)
    assert [(i.uid, i.nodes) for i in intents if isinstance(i, Release)] == [("uid-train-2", ("n1",))]
    assert not [i for i in intents if isinstance(i, Leave)]


def test_a_new_leader_finds_the_question_that_its_pods_were_let_go_under():
    pods, where, _, record = released(PAIR, ("n1", "n2"))
    half = [dataclasses.replace(pods[0], node=where["uid-trainer-0"]), PAIR[1]]
    known = {"t1-1": record.gang.request_id}
    hold, (intent,) = gates.step(a_scene(half, request_of=known), Hold(), POLICY)
    assert intent == Open(gang=record.gang)
    hold, intents = gates.step(a_scene(half, record, request_of=known), hold, POLICY)
    assert [(i.uid, i.nodes) for i in intents if isinstance(i, Release)] == [("uid-trainer-1", ("n2",))]


# -- what is refused


def test_what_a_kubelet_refused_is_a_strike_and_the_gang_goes_back():
    job = a_job(parallelism=2, completions=2)
    workloads = Workloads(jobs={job.uid: job})
    pods, where, hold, record = released([a_job_pod(0), a_job_pod(1)], ("n1", "n2"), workloads)
    pods = [rejected(pods[0], where[pods[0].uid]), pods[1]]
    hold, intents = gates.step(a_scene(pods, record, workloads=workloads), hold, POLICY)
    assert kinds(intents) == [Strike, Replan]
    assert (intents[0].node, intents[0].reason, intents[0].lease_id) == ("n1", "UnexpectedAdmissionError", "t1-1")
    assert (intents[1].owner.kind, intents[1].uids) == ("Job", ("uid-train-1",))
    assert (dict(hold.strikes), hold.not_before) == ({"node n1: UnexpectedAdmissionError": 1}, NOW + 5)
    ended = dataclasses.replace(record, state=GangState.ENDED, lease=None)
    again = [a_job_pod(0, uid="a"), a_job_pod(1, uid="b")]
    hold, intents = gates.step(a_scene(again, record, workloads=workloads), hold, POLICY)
    assert kinds(intents) == [Withdraw], "nobody waits for its scheduler any more"
    _, intents = gates.step(a_scene(again, ended, workloads=workloads), hold, POLICY)
    assert [intent.told.reason for intent in intents] == [HoldReason.ON_STRIKE]
    _, intents = gates.step(a_scene(again, ended, now=NOW + 5, workloads=workloads), hold, POLICY)
    assert kinds(intents) == [Open]


def test_pods_that_have_started_are_left_where_they_are():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    pods = [rejected(pods[0], "n1"), running(pods[1], "n2"), a_pod("trainer-0", uid="again")]
    hold, intents = gates.step(a_scene(pods, record), hold, POLICY)
    assert kinds(intents) == [Strike, Withdraw]
    ended = dataclasses.replace(record, state=GangState.ENDED, lease=None)
    _, (intent,) = gates.step(a_scene(pods, ended, now=NOW + 9), hold, POLICY)
    assert intent.gang.pods == 1, "whoever is missing is placed anew, around those that run"


def test_what_is_not_bound_in_time_goes_back_through_its_owner():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    assert gates.step(a_scene(pods, record, now=NOW + 60), hold, POLICY)[1] == ()
    _, intents = gates.step(a_scene(pods, record, now=NOW + 61), hold, POLICY)
    assert kinds(intents) == [Strike, Strike, Replan]
    assert intents[-1].owner is None


def test_what_goes_back_is_wanted_back_until_it_is_gone_and_its_places_are_kept_as_long():
    pods, where, hold, record = released(PAIR, ("n1", "n2"))
    first, intents = gates.step(a_scene(pods, record, now=NOW + 61), hold, POLICY)
    again, more = gates.step(a_scene(pods, record, now=NOW + 62), first, POLICY)
    assert more == intents[2:], "the request was lost; it is counted once"
    assert again.strikes == first.strikes
    bound = [dataclasses.replace(pod, node=where[pod.uid]) for pod in pods]
    _, intents = gates.step(a_scene(bound, record, now=NOW + 63), again, POLICY)
    assert kinds(intents) == [Join, Join], "bound at last, to places that are still its own"
    one_is_back = [pods[0], a_pod("trainer-1", uid="again")]
    _, intents = gates.step(a_scene(one_is_back, record, now=NOW + 63), again, POLICY)
    assert kinds(intents) == [Replan], "nobody is let go while another one goes back"
    back = [a_pod(uid="a"), a_pod("trainer-1", uid="b")]
    after, intents = gates.step(a_scene(back, record, now=NOW + 63), again, POLICY)
    assert kinds(intents) == [Withdraw]
    assert after.strikes == again.strikes


def a_strike(party="node n1", reason="OutOfcpu", uid="u"):
    return Strike(party=party, reason=reason, detail="", uid=uid)


@given(strikes=st.integers(0, 10_000))
def test_each_strike_makes_the_delay_longer_up_to_a_bound(strikes):
    known = {"node n1: OutOfcpu": strikes} if strikes else {}
    one = strikes_of.struck(Hold(strikes=known), POLICY, NOW, [a_strike()])
    two = strikes_of.struck(one, POLICY, NOW, [a_strike()])
    assert NOW < one.not_before <= two.not_before <= NOW + POLICY.strike_max_seconds


def test_refusals_count_for_each_party_and_reason_and_are_forgotten_in_time():
    hold = Hold()
    for turn in range(3):
        hold = strikes_of.struck(hold, POLICY, NOW + turn, [a_strike(uid="a"), a_strike(uid="b")])
    assert hold.not_before == NOW + 2 + 4 * POLICY.strike_seconds, "two pods refused in one breath are one refusal"
    hold = strikes_of.struck(hold, POLICY, NOW + 100, [a_strike("api server", "refused")])
    assert hold.not_before == NOW + 100 + POLICY.strike_seconds
    assert hold.refusals == 4
    late = NOW + 100 + POLICY.strike_memory_seconds
    assert strikes_of.faded(hold, POLICY, late) == hold
    assert strikes_of.faded(hold, POLICY, late + 1).refusals == 0


def test_the_queue_hears_of_refusals_and_when_they_are_forgotten():
    hold, gang = opened(PAIR)
    hold = strikes_of.struck(hold, POLICY, NOW - 60, [a_strike()])
    _, (stand,) = gates.step(a_scene(PAIR, a_record(gang)), hold, POLICY)
    assert (stand.standing.strikes, stand.standing.refused_by) == (1, "node n1: OutOfcpu")
    assert not stand.standing.may_reserve
    told = a_record(gang, standing=stand.standing)
    assert gates.step(a_scene(PAIR, told), hold, POLICY)[1] == ()
    _, (stand,) = gates.step(a_scene(PAIR, told, now=NOW + 3600), hold, POLICY)
    assert stand.standing.may_reserve


def test_what_a_group_asks_is_what_its_pods_say():
    group = a_group(PAIR)
    assert grouprequest.ask(group, group.members, opened(PAIR)[1].request_id).gang == opened(PAIR)[1]


def test_a_gang_that_runs_under_a_lease_that_nobody_knows_is_asked_for_with_its_members():
    pods = [running(a_pod(annotations={**a_pod().annotations, labels.LEASE.full: "t0-9"}), "n1")]
    pods += [running(a_pod("trainer-1", annotations={**a_pod().annotations, labels.LEASE.full: "t0-9"}), "n2")]
    hold, intents = gates.step(a_scene(pods), Hold(), POLICY)
    assert kinds(intents) == [Open, Join, Join]
    assert [(each.member.uid, each.member.node) for each in intents[1:]] == [
        ("uid-trainer-0", "n1"),
        ("uid-trainer-1", "n2"),
    ]
    members = tuple(each.member for each in intents[1:])
    record = a_record(intents[0].gang, nodes=("n1", "n2"), members=members, is_taken_over=True)
    hold, _ = gates.step(a_scene(pods, record), hold, POLICY)
    assert {uid: seat.node for uid, seat in hold.seats.items()} == {"uid-trainer-0": "n1", "uid-trainer-1": "n2"}
    again = a_pod("trainer-1", uid="again")
    hold, intents = gates.step(a_scene([pods[0], again], record), hold, POLICY)
    assert [(i.uid, i.nodes) for i in intents if isinstance(i, Release)] == [("again", ("n2",))]


def test_a_pod_of_an_earlier_lease_is_not_taken_for_one_of_the_next():
    pods, _, hold, record = released(PAIR, ("n1", "n2"))
    straggler = running(a_pod(uid="old", annotations={**a_pod().annotations, labels.LEASE.full: "t0-9"}), "n1")
    assert gates.step(a_scene([straggler, a_pod("trainer-1")]), Hold(), POLICY)[1][0].gang.pods == 1
    _, intents = gates.step(a_scene([*pods, dataclasses.replace(straggler, name="old")], record), hold, POLICY)
    assert not [intent for intent in intents if isinstance(intent, Join) and intent.member.uid == "old"]
