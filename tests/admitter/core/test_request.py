"""A request is valid in every field, or refused with every problem at once."""

import pytest
from google.protobuf import duration_pb2

from admitter.core import request
from admitter.model.gang import GpuRequest, Level, MigRequest, PodClass, Podset, ResourceRequest, TopologyWish
from muster.pb.muster.v1 import admission_pb2 as pb


def an_open(*podsets, **fields):
    return pb.OpenGang(**{"namespace": "team-a", "gang": "train", "request_id": "r1", "podsets": podsets} | fields)


def test_everything_is_read():
    worker = pb.Podset(name="worker", count=4, gpus=8, topology="required=clique")
    worker.max_runtime.FromSeconds(7200)
    single = pb.Podset(count=1, mig=pb.MigRequest(compute_slices=2, min_memory_bytes=5), **{"class": "restartable"})
    other = pb.Podset(name="io", count=2, resource=pb.ResourceQuantity(name="example.com/nic", quantity=1))
    gang = request.gang(an_open(worker, single, other, priority=3))
    assert (gang.full_name, gang.request_id, gang.priority, gang.pods) == ("team-a/train", "r1", 3, 7)
    assert gang.podsets == (
        Podset(
            name="worker",
            count=4,
            request=GpuRequest(gpus=8),
            topology=TopologyWish(level=Level.CLIQUE, required=True),
            max_runtime_seconds=7200.0,
        ),
        Podset(
            name="main",
            count=1,
            request=MigRequest(compute_slices=2, min_memory_bytes=5),
            pod_class=PodClass.RESTARTABLE,
        ),
        Podset(name="io", count=2, request=ResourceRequest(name="example.com/nic", quantity=1)),
    )


def test_every_problem_is_named_at_once():
    bad = pb.Podset(
        name="Worker!", count=0, gpus=0, topology="required=Rack!", max_runtime=duration_pb2.Duration(seconds=-1)
    )
    setattr(bad, "class", "gold")
    mig = pb.Podset(count=100_001, mig=pb.MigRequest(compute_slices=9, min_memory_bytes=-1))
    named = pb.Podset(name="x", count=1, resource=pb.ResourceQuantity(name="a/b/c", quantity=-2))
    with pytest.raises(request.InvalidRequest) as caught:
        request.gang(an_open(bad, mig, named, pb.Podset(name="x", count=1), namespace="", gang="A b", request_id="\n"))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "open.namespace",
        "open.gang",
        "open.request_id",
        "open.podsets[0].name",
        "open.podsets[0].count",
        "open.podsets[0].gpus",
        "open.podsets[0].topology",
        "open.podsets[0].class",
        "open.podsets[0].max_runtime",
        "open.podsets[1].count",
        "open.podsets[1].mig.compute_slices",
        "open.podsets[1].mig.min_memory_bytes",
        "open.podsets[2].resource.name",
        "open.podsets[2].resource.quantity",
        "open.podsets[3]",
        "open.podsets[3].name",
        "open.podsets",
    ]


@pytest.mark.parametrize("name", ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "x.kubernetes.io/y"])
def test_what_every_pod_takes_is_nothing_to_lease(name):
    asked = pb.Podset(count=1, resource=pb.ResourceQuantity(name=name, quantity=1))
    with pytest.raises(request.InvalidRequest) as caught:
        request.gang(an_open(asked))
    assert caught.value.problems == (f"open.podsets[0].resource.name: {name!r} is no extended resource, DOMAIN/NAME",)


@pytest.mark.parametrize("podsets", [(), tuple(pb.Podset(name=f"p{i}", count=1, gpus=1) for i in range(65))])
def test_podsets_are_bounded(podsets):
    with pytest.raises(request.InvalidRequest, match=r"open\.podsets: has"):
        request.gang(an_open(*podsets))


@pytest.mark.parametrize(("seconds", "is_refused"), [(31_536_000, False), (31_536_001, True), (2**63 - 1, True)])
def test_what_runs_for_more_than_a_year_is_no_plan(seconds, is_refused):
    asked = an_open(pb.Podset(count=1, gpus=1, max_runtime=duration_pb2.Duration(seconds=seconds)))
    if is_refused:
        with pytest.raises(request.InvalidRequest, match=r"open\.podsets\[0\]\.max_runtime: .* is more than a year"):
            request.gang(asked)
    else:
        assert request.gang(asked).podsets[0].max_runtime_seconds == seconds


def test_two_podsets_have_two_names():
    with pytest.raises(request.InvalidRequest, match=r"open\.podsets\[1\]\.name: 'main' is used before"):
        request.gang(an_open(pb.Podset(count=1, gpus=1), pb.Podset(name="main", count=1, gpus=1)))


def test_a_member_belongs_to_a_podset():
    gang = request.gang(an_open(pb.Podset(count=1, gpus=1)))
    assert request.member(pb.Member(podset="main", uid="u1", node="n1"), gang).uid == "u1"
    with pytest.raises(request.InvalidRequest) as caught:
        request.member(pb.Member(podset="worker"), gang)
    assert len(caught.value.problems) == 3


def test_a_network_level_is_known_or_refused_by_name():
    racked = pb.Podset(count=1, gpus=1, topology="preferred=rack")
    assert request.gang(an_open(racked), ["rack"]).podsets[0].topology == TopologyWish(level="rack", required=False)
    assert request.gang(an_open(racked)).podsets[0].topology.level == "rack"
    with pytest.raises(request.InvalidRequest, match="LEVEL of island, node, clique, block"):
        request.gang(an_open(racked), ["block"])
