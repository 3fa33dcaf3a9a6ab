"""A gang is judged until the scheduler binds it, and counts once: as it went, or as it should have gone."""

import dataclasses

import pytest

from admitter.core import observe, offers
from admitter.core.observe import Outcome, Verdict, Watched
from admitter.model.decision import Explanation, Grant, Policy
from admitter.model.group import Workloads
from admitter.model.hold import Told
from admitter.model.lease import Placement
from muster.model.reading import Known, Unknown
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import GPU, NOW, a_node, a_resource, a_view, some_facts
from tests.admitter.gatescenes import running
from tests.admitter.grouppods import a_group, a_job, a_job_pod, rejected

JOB = a_job(parallelism=2, completions=2)
JOBS = Workloads(jobs={JOB.uid: JOB})
WHY = Explanation(reason=WaitReason.NODES_BLIND, summary="n1 cannot be seen", position=1)
PATIENCE = 60.0


def a_grant(*nodes, pin=()):
    return Grant(
        placements=tuple(
            Placement(podset="main", node=node, resource=GPU, pods=1, units_per_pod=8, pin=pin) for node in nodes
        )
    )


def the_pods():
    return [a_job_pod(index, gates=()) for index in range(2)]


def watched(pods, answer=None):
    first = Watched(uids=frozenset(pod.uid for pod in pods), arrival=1)
    return first if answer is None else observe.answered(first, answer, pods)


def the_end(gang, pods, now=NOW):
    return observe.followed(gang, a_group(pods, JOBS), PATIENCE, now)


def test_the_decision_is_final_once_a_pod_is_bound():
    pods = the_pods()
    gang = watched(pods, WHY)
    assert (gang.verdict, gang.reason, gang.is_final) == (Verdict.HELD, "NodesBlind", False)
    pods[0] = dataclasses.replace(pods[0], node="n1")
    gang = observe.answered(gang, a_grant("n1", "n2"), pods)
    assert (gang.verdict, gang.reason, gang.nodes, gang.is_final) == (Verdict.GOES, "", {"n1", "n2"}, True)


ENDS = {
    "let go and ran": (a_grant("n1", "n2"), False, Verdict.GOES, Outcome.RAN, []),
    "held wrongly": (WHY, False, Verdict.HELD, Outcome.RAN, ["held-wrongly"]),
    "invalid and ran": (
        Told(reason="InvalidGang", summary="two groups"), False, Verdict.HELD, Outcome.RAN, ["held-wrongly"],
    ),
    "held and failed": (WHY, True, Verdict.HELD, Outcome.FAILED, ["failure-foreseen"]),
    "elsewhere": (a_grant("n3", "n4"), True, Verdict.ELSEWHERE, Outcome.FAILED, ["failure-foreseen"]),
    "missed": (a_grant("n1", "n2"), True, Verdict.GOES, Outcome.FAILED, ["failure-missed"]),
    "a set of nodes": (a_grant("n3", pin=("n3", "n1")), True, Verdict.GOES, Outcome.FAILED, ["failure-missed"]),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "is_refused", "verdict", "outcome", "lines"), ENDS.values(), ids=ENDS)
def test_each_end_is_what_was_decided_against_what_became_of_it(answer, is_refused, verdict, outcome, lines):
    pods = the_pods()
    first = rejected(pods[0], "n1") if is_refused else running(pods[0], "n1")
    gang, words = the_end(watched(pods, answer), [first, running(pods[1], "n2")])
    assert (gang.verdict, gang.outcome) == (verdict, outcome)
    events = list(observe.end("team-a/job.train", gang, words))
    assert [event.kind for event in events] == lines
    assert all(words in event.detail and event.rule == "observe" for event in events)


def test_half_a_gang_that_waits_for_the_other_half_has_failed_after_a_while():
    pods = the_pods()
    half = [running(pods[0], "n1"), pods[1]]
    gang, words = the_end(watched(pods, WHY), half)
    assert (gang.outcome, words) == (None, "")
    assert the_end(gang, half, NOW + PATIENCE)[0].outcome is None
    gang, words = the_end(gang, half, NOW + PATIENCE + 1)
    assert gang.outcome is Outcome.FAILED
    assert words == "PartlyStarted: 1 of 2 run, train-1 does not"


def test_one_that_waits_whole_or_lost_a_pod_has_no_end_yet():
    pods = the_pods()
    gang = watched(pods, WHY)
    assert the_end(gang, pods, NOW + 1000) == (gang, "")
    assert the_end(gang, [running(pods[0], "n1")])[0].outcome is None


def test_only_another_decision_is_a_line_and_the_same_in_other_words_is_not():
    pods = the_pods()
    first = watched(pods)
    held = observe.answered(first, WHY, pods)
    assert [event.kind for event in observe.decision("k", first, held)] == ["would-hold"]
    other_words = observe.answered(held, dataclasses.replace(WHY, summary="n2 too"), pods)
    assert list(observe.decision("k", held, other_words)) == []
    goes = observe.answered(held, a_grant("n1", "n2"), pods)
    assert [(e.kind, e.detail) for e in observe.decision("k", held, goes)] == [("would-let-go", "to n1, n2")]


def what_is_free(resource, *, facts=None, heard=NOW, barred=False, bound="n1"):
    pod = dataclasses.replace(the_pods()[0], node=bound, requests={GPU: 2, "cpu": 4000})
    facts = facts or some_facts(requested={"cpu": 4000}, counted=(pod.uid,))
    view = a_view(a_node("n1", resource, heard=heard), facts={"n1": facts})
    view = dataclasses.replace(view, barred={"n1": "refused"} if barred else {})
    supply = observe.back([pod], view, offers.of_view(view, {}, Policy()))
    return int(supply.table.column(GPU)[0]), int(supply.table.column("cpu")[0])


def counted(admit, *others, usable=8, risk=0.0, own=2):
    uids = (("uid-train-0", own), *((f"other-{number}", units) for number, units in enumerate(others)))
    resource = a_resource(admit, counted=uids, risk=risk)
    return dataclasses.replace(resource, usable=usable if isinstance(usable, Unknown) else Known(usable))


@pytest.mark.parametrize(
    ("resource", "gpus"),
    [
        (counted(0, 6), 2),
        (counted(4, 2), 6),
        (counted(0, 6, usable=7), 1),
        (counted(0, 6, usable=6), 0),
        (counted(0, 4, risk=0.5), 0),
        (counted(0, 6, usable=Unknown("NotCollected")), 0),
        (dataclasses.replace(counted(0, 6), admit_strict=Unknown("PlaneUnreadable")), 0),
        (a_resource(3, counted=(("other", 5),)), 3),
    ],
    ids=[
        "full",
        "half-full",
        "one-lost",
        "two-lost",
        "may-pick-a-bad-one",
        "usable-unknown",
        "blind",
        "not-counted-yet",
    ],
)
def test_what_its_own_pods_hold_is_free_for_it_and_no_bad_device_is(resource, gpus):
    assert what_is_free(resource) == (gpus, 64_000)


def test_nothing_is_given_back_on_a_node_that_is_closed_silent_or_not_there():
    full = counted(0, 6)
    assert what_is_free(full, barred=True)[0] == 0
    assert what_is_free(full, heard=0.0)[0] == 0
    assert what_is_free(full, bound="n9")[0] == 0
