"""What a group of held pods starts from reaches its gang; a gang that cannot pull is sent back, if nothing has started."""

import dataclasses

import pytest

from admitter.core import grouprequest, strikes
from admitter.model.content import Content
from admitter.model.hold import GatePolicy, Hold, Replan, Seat
from muster.model import kube
from tests.admitter.grouppods import a_group, a_pod

POLICY = GatePolicy(pull_patience_seconds=100.0)


def content(*pods, handlers=None):
    group = a_group([*pods])
    (podset,) = grouprequest.ask(group, group.members, "r1", handlers=handlers or {}).gang.podsets
    return podset.content


def test_all_images_of_all_pods_count_and_make_no_podset_of_their_own():
    first = a_pod(images=("r.example/a:1",), init_images=("r.example/init:1",), pull_secrets=("s",))
    second = a_pod("trainer-1", images=("r.example/b:1",))
    found = content(first, second)
    assert found == Content(images=("r.example/a:1", "r.example/b:1", "r.example/init:1"), pull_secrets=("s",))


def test_an_image_is_never_pulled_if_no_pod_that_names_it_has_it_pulled():
    never = {"unpulled_images": ("r.example/a:1",)}
    first, second = a_pod(images=("r.example/a:1",), **never), a_pod("trainer-1", images=("r.example/b:1",))
    assert content(first, second).unpulled == ("r.example/a:1",)
    pulls = a_pod("trainer-2", images=("r.example/a:1",))
    assert content(first, second, pulls).unpulled == ()


@pytest.mark.parametrize(
    ("name", "handler"), [("", ""), ("nvidia", "nvidia"), ("fast", "kata"), ("nobody-has-it", None)]
)
def test_a_runtime_class_becomes_its_handler(name, handler):
    found = content(a_pod(runtime_class=name), handlers={"nvidia": "nvidia", "fast": "kata"})
    assert found.handler == handler


def let_go(name, state=kube.ContainerState.WAITING, reason="ImagePullBackOff", **changes):
    container = kube.Container(name="c", state=state, reason=reason, message="not found")
    return a_pod(name, gates=(), node="n1", containers=(container,), **changes)


def judge(*pods, now, hold=None):
    seats = {pod.uid: Seat(node="n1", podset="main", lease_id="t1-x-1", at=0.0) for pod in pods}
    return strikes.judge(a_group([*pods]), hold or Hold(request_id="r1", seats=seats), POLICY, now, {}, lambda _: ())


def test_a_gang_of_which_a_member_cannot_pull_goes_back_after_the_bound():
    pods = let_go("trainer-0"), let_go("trainer-1", reason="ContainerCreating")
    hold, intents = judge(*pods, now=1000.0)
    assert intents == (), "it has pulled for long, and fails for the first time"
    hold, intents = judge(*pods, now=1100.0, hold=hold)
    assert intents == ()
    hold, intents = judge(*pods, now=1101.0, hold=hold)
    (strike,) = (intent for intent in intents if isinstance(intent, strikes.Strike))
    assert (strike.reason, strike.node, strike.party) == ("ImagePullBackOff", "", "image pull on n1")
    (replan,) = (intent for intent in intents if isinstance(intent, Replan))
    assert set(replan.uids) == {pod.uid for pod in pods}
    assert hold.seats.keys() == set(replan.uids), "their places are kept until they are gone"
    assert hold.not_before > 1101.0


def test_a_try_between_two_failures_is_no_new_beginning():
    failed, trying = let_go("trainer-0"), let_go("trainer-0", reason="ContainerCreating")
    hold, _ = judge(failed, now=0.0)
    hold, _ = judge(trying, now=99.0, hold=hold)
    assert judge(trying, now=101.0, hold=hold)[1] == ()
    assert judge(failed, now=101.0, hold=hold)[1] != ()
    assert judge(let_go("trainer-0", restarts=1), now=101.0, hold=hold)[1] == ()


@pytest.mark.parametrize("changes", [{"state": kube.ContainerState.RUNNING, "reason": ""}, {"restarts": 1}])
def test_a_gang_of_which_a_container_has_started_is_never_sent_back(changes):
    pods = let_go("trainer-0"), let_go("trainer-1", **changes)
    assert judge(*pods, now=10_000.0)[1] == ()


def test_one_that_pulls_slowly_is_left_alone():
    slow = let_go("trainer-0", reason="ContainerCreating")
    assert judge(slow, dataclasses.replace(slow, uid="b", name="trainer-1"), now=10_000.0)[1] == ()
