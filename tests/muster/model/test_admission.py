"""A client's values and their messages say the same."""

from admitter.core import request
from admitter.model import gang as gangs
from muster.model import admission
from muster.pb.muster.v1 import admission_pb2, inspect_pb2


def test_what_a_client_asks_is_what_the_admitter_reads():
    asked = admission.Gang(
        namespace="team-a",
        name="train",
        request_id="r1",
        priority=3,
        podsets=(
            admission.Podset(name="w", count=2, request=8, topology="required=clique", max_runtime_seconds=90.5),
            admission.Podset(name="m", count=1, request=admission.Mig(compute_slices=2, min_memory_bytes=7)),
            admission.Podset(
                name="q", count=1, request=admission.Quantity(name="a.b/c", quantity=4), pod_class="shared"
            ),
        ),
    )
    read = request.gang(admission.open_message(asked))
    assert (read.full_name, read.request_id, read.priority) == ("team-a/train", "r1", 3)
    assert [podset.request for podset in read.podsets] == [
        gangs.GpuRequest(gpus=8),
        gangs.MigRequest(compute_slices=2, min_memory_bytes=7),
        gangs.ResourceRequest(name="a.b/c", quantity=4),
    ]
    assert read.podsets[0].max_runtime_seconds == 90.5
    assert read.podsets[0].topology == gangs.TopologyWish(level=gangs.Level.CLIQUE, required=True)
    assert read.podsets[2].pod_class is gangs.PodClass.SHARED


def test_every_answer_is_a_state():
    answers = {
        "waiting": admission_pb2.Waiting(why=admission_pb2.Explanation(reason="Topology", summary="s", position=2)),
        "leased": admission_pb2.Leased(
            lease_id="l", placements=[admission_pb2.Placement(podset="w", node="n", pods=1, units=8)]
        ),
        "started": admission_pb2.Started(snapshot_version=9),
        "ended": admission_pb2.Ended(reason="Finished", detail="d"),
    }
    assert set(answers) == {field.name for field in admission_pb2.AdmitResponse.DESCRIPTOR.fields}
    states = [admission.state_of(admission_pb2.AdmitResponse(**{name: answer})) for name, answer in answers.items()]
    assert [type(state).__name__.lower() for state in states] == list(answers)
    assert states[0] == admission.Waiting(reason="Topology", summary="s", position=2)
    assert states[1].placements[0].units == 8


def test_an_answer_of_a_newer_admitter_is_no_state():
    assert admission.state_of(admission_pb2.AdmitResponse()) is None


def test_an_empty_change():
    change = admission.change_of(inspect_pb2.WatchCapacityResponse(version=4, removed=["n1"], synced=True))
    assert change == admission.CapacityChange(version=4, nodes={}, removed=("n1",), synced=True)
