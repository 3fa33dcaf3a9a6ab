"""What a group asks of the queue."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import grouprequest
from admitter.model.cluster import Constraints, Toleration
from admitter.model.gang import GpuRequest, PodClass, ResourceRequest, TopologyWish
from muster.model import labels
from tests.admitter.grouppods import GPU, a_group, a_job_pod, a_pod


def asked(*pods, **options):
    """Return the answer for pods that are all held."""
    group = a_group([*pods])
    return grouprequest.ask(group, group.members, "r1", **options)


def test_like_pods_make_one_podset_with_all_they_take():
    tolerant = Constraints(tolerations=(Toleration(key="gpu", operator="Exists"),))
    answer = asked(a_pod(constraints=tolerant, priority=7), a_pod("trainer-1", constraints=tolerant, priority=7))
    (podset,) = answer.gang.podsets
    assert (answer.gang.full_name, answer.gang.request_id, answer.gang.priority) == ("team-a/trainer", "r1", 7)
    assert (podset.name, podset.count, podset.request) == ("main", 2, GpuRequest(gpus=8))
    assert (dict(podset.requests), podset.constraints) == ({"cpu": 4000}, tolerant)
    assert answer.podset_of == {"uid-trainer-0": "main", "uid-trainer-1": "main"}


def test_the_keys_of_a_pod_are_its_wishes():
    pod = a_pod(
        labels={labels.GANG.full: "trainer", labels.CLASS.full: "restartable", labels.PODSET.full: "workers"},
        annotations={
            labels.GANG_SIZE.full: "1",
            labels.TOPOLOGY.full: "required=clique",
            labels.MAX_RUNTIME.full: "4h30m",
        },
    )
    (podset,) = asked(pod).gang.podsets
    assert podset.name == "workers"
    assert podset.topology == TopologyWish(level="clique", required=True)
    assert (podset.pod_class, podset.max_runtime_seconds) == (PodClass.RESTARTABLE, 16200)


def test_unlike_pods_of_one_podset_are_parted_by_what_they_ask():
    answer = asked(a_pod(requests={GPU: 1}), a_pod("trainer-1", requests={GPU: 8}))
    assert [(podset.name, podset.units_per_pod) for podset in answer.gang.podsets] == [("main", 8), ("main-2", 1)]
    assert answer.podset_of == {"uid-trainer-0": "main-2", "uid-trainer-1": "main"}


def test_pods_that_may_go_to_different_nodes_are_not_alike():
    there = Constraints(node_selector={"pool": "b"})
    answer = asked(a_pod(), a_pod("trainer-1", constraints=there))
    assert [podset.constraints for podset in answer.gang.podsets] == [a_pod().constraints, there]


def test_a_pod_without_a_device_is_in_no_podset():
    answer = asked(a_pod(), a_pod("launcher", requests={"cpu": 100}))
    assert [podset.count for podset in answer.gang.podsets] == [1]
    assert answer.podset_of == {"uid-trainer-0": "main"}
    assert asked(a_pod(requests={})).gang.podsets == ()


def test_other_resources_of_the_vendor_are_asked_for_by_name():
    (podset,) = asked(a_pod(requests={"nvidia.com/mig-1g.10gb": 2})).gang.podsets
    assert podset.request == ResourceRequest(name="nvidia.com/mig-1g.10gb", quantity=2)
    (other,) = asked(a_pod(requests={"example.com/npu": 1}), devices=frozenset({"example.com/npu"})).gang.podsets
    assert other.request == ResourceRequest(name="example.com/npu", quantity=1)


def test_the_owner_says_how_long_where_the_pod_does_not():
    (podset,) = asked(a_pod(), owner_runtime="90m").gang.podsets
    assert podset.max_runtime_seconds == 5400


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        (
            [a_pod(annotations={labels.TOPOLOGY.full: "rack"})],
            "pod trainer-0: muster.dev/topology: 'rack' is not required=LEVEL",
        ),
        (
            [a_pod(labels={labels.GANG.full: "trainer", labels.CLASS.full: "gold"})],
            "pod trainer-0: muster.dev/class: 'gold' is none of",
        ),
        ([a_pod(annotations={labels.MAX_RUNTIME.full: "soon"})], "'soon' is no duration such as 4h30m"),
        ([a_pod(annotations={labels.MAX_RUNTIME.full: "0s"})], "'0s' is no duration such as 4h30m"),
        ([a_pod(requests={GPU: 1, "nvidia.com/mig-1g.10gb": 1})], "asks for nvidia.com/gpu and nvidia.com/mig-1g.10gb"),
        (
            [a_pod(requests={GPU: 1, **{f"example.com/{index}": 1 for index in range(64)}})],
            "pod trainer-0: asks for 65 resources, not 1..64",
        ),
        ([a_pod(requests={GPU: 9000})], "pod trainer-0: gpus: 9000 is not in 1..4096"),
        ([a_pod(requests={GPU: 2**62})], "is not in 1..4096"),
        ([a_pod(priority=1), a_pod("trainer-1", priority=2)], "its pods have priorities 1 and 2"),
        (
            [a_pod(labels={labels.GANG.full: "Trainer"})],
            "gang: 'Trainer' is not a Kubernetes name",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_the_pod_and_the_key(pods, problem):
    answer = asked(*pods)
    assert isinstance(answer, tuple)
    assert any(problem in each for each in answer), answer


def test_every_problem_is_said_at_once():
    answer = asked(
        a_pod(annotations={labels.TOPOLOGY.full: "rack", labels.GANG_SIZE.full: "2"}),
        a_pod("trainer-1", annotations={labels.MAX_RUNTIME.full: "soon"}),
    )
    assert len(answer) == 2


def test_too_many_shapes_are_bad_input_not_a_crash():
    answer = asked(*(a_pod(f"t-{index}", requests={GPU: 1, "cpu": index + 1}) for index in range(65)))
    assert any("has 65 entries, not 1..64" in each for each in answer)


def test_the_same_pods_ask_the_same_whatever_their_order():
    pods = [a_pod(f"t-{index}", requests={GPU: 1 + index % 3}) for index in range(6)]
    one, other = asked(*pods), asked(*reversed(pods))
    assert one == other
    assert dataclasses.replace(one.gang, request_id="r2") != other.gang


def test_members_that_run_are_not_asked_for():
    pods = [a_job_pod(0, gates=()), a_job_pod(1)]
    labelled = [dataclasses.replace(pod, labels={**pod.labels, labels.GANG.full: "g"}) for pod in pods]
    group = a_group(labelled)
    held = [member for member in group.members if member.pod.gates]
    assert grouprequest.ask(group, held, "r").gang.pods == 1


def counting(monkeypatch, owner, name):
    """Count the calls of a method or a function from here on."""
    calls, real = [], getattr(owner, name)

    def counted(*args, **options):
        calls.append(args)
        return real(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_pods_of_many_shapes_are_not_compared_with_each_other(monkeypatch):
    pods = [a_pod(f"t-{index}", requests={GPU: 1, "cpu": index % 60 + 1}) for index in range(600)]
    compared = counting(monkeypatch, grouprequest.Shape, "__eq__")
    assert len(asked(*pods).gang.podsets) == 60
    assert len(compared) <= 2 * len(pods)


def test_past_the_most_podsets_no_further_pod_is_read(monkeypatch):
    pods = [a_pod(f"t-{index:04}", requests={GPU: 1, "cpu": index + 1}) for index in range(2000)]
    read = counting(monkeypatch, grouprequest, "_shape")
    assert asked(*pods) == ("podsets: has 65 entries, not 1..64",)
    assert len(read) == 65


PLACES = (
    Constraints(),
    Constraints(node_selector={"pool": "b"}),
    Constraints(node_selector={"zone": "1", "pool": "b"}),
    Constraints(node_selector={"pool": "b", "zone": "1"}),
    Constraints(tolerations=(Toleration(key="gpu", operator="Exists"),)),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.integers(1, 2), st.integers(1, 2), st.sampled_from(("", "restartable"))),
        min_size=1,
        max_size=12,
    )
)
def test_two_pods_are_in_one_podset_exactly_if_they_ask_alike(wishes):
    pods = [
        a_pod(
            f"t-{index}",
            constraints=where,
            requests={GPU: gpus, "cpu": cpu},
            labels={labels.GANG.full: "trainer", **({labels.CLASS.full: name} if name else {})},
        )
        for index, (where, gpus, cpu, name) in enumerate(wishes)
    ]
    podset_of = asked(*pods).podset_of
    for one, mine in zip(pods, wishes, strict=True):
        for other, its in zip(pods, wishes, strict=True):
            assert (podset_of[one.uid] == podset_of[other.uid]) == (mine == its)


@given(st.lists(st.tuples(st.frozensets(st.sampled_from("abcd")), st.frozensets(st.sampled_from("abcd"))), min_size=1))
def test_an_image_is_unpulled_exactly_if_no_pod_has_it_pulled(named):
    pods = [
        a_pod(f"t-{index}", images=tuple(images), unpulled_images=tuple(images & never))
        for index, (images, never) in enumerate(named)
    ]
    (podset,) = asked(*pods).gang.podsets
    every = {image for images, _ in named for image in images}
    expected = {image for image in every if all(image not in images or image in never for images, never in named)}
    assert podset.content.unpulled == tuple(sorted(expected))
