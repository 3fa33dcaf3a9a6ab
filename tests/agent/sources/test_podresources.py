"""The pod-resources client against the fake kubelet, over a real socket."""

import asyncio
import socket
import socketserver
import threading

import grpc
import pytest

from agent.model import planes
from agent.model.planes import IdTopology
from agent.sources import podresources
from hack.fakenode import kubeletstate as state
from hack.fakenode.kubelet import FakeKubelet
from hack.fakenode.kubeletstate import Fault, FaultKind, SocketState, Topology
from muster.model.reading import Known, Unknown

GPU = "nvidia.com/gpu"


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "pr").mkdir()
    return tmp_path / "state.json", tmp_path / "pr" / "kubelet.sock"


@pytest.fixture
async def node(paths):
    state.write_state(paths[0], state.gpus(["GPU-a", "GPU-b"], numa_nodes={"GPU-a": 0, "GPU-b": 1}))
    async with FakeKubelet(state=paths[0], socket=paths[1]) as kubelet:
        yield kubelet


@pytest.fixture
async def client(paths):
    made = podresources.PodResources(paths[1], deadline_seconds=30)
    yield made
    await made.close()


async def test_allocatable_keeps_numa_node_zero_apart_from_no_topology(node, client):
    """NUMA node 0 looks empty on the wire and is still a place."""
    assert await client.read_allocatable() == Known(
        (
            planes.DeviceIds(resource=GPU, ids=("GPU-a",), topology=IdTopology.EMPTY_NODE),
            planes.DeviceIds(resource=GPU, ids=("GPU-b",), topology=IdTopology.NODES, numa_nodes=(1,)),
        )
    )


async def test_every_form_of_topology(node, client, paths):
    """Absent, two nodes (two entries) and no nodes (no entry) are three different answers."""
    devices = (
        state.Device(id="absent"),
        state.Device(id="both", topology=Topology.NODES, numa_nodes=(0, 1)),
        state.Device(id="gone", topology=Topology.NO_NODES),
    )
    state.edit(paths[0], state.register(GPU, devices))
    assert await client.read_allocatable() == Known(
        (
            planes.DeviceIds(resource=GPU, ids=("absent",), topology=IdTopology.ABSENT),
            planes.DeviceIds(resource=GPU, ids=("both",), topology=IdTopology.EMPTY_NODE),
            planes.DeviceIds(resource=GPU, ids=("both",), topology=IdTopology.NODES, numa_nodes=(1,)),
        )
    )


async def test_pods_with_devices_and_claims(node, client, paths):
    """List names pod, container and device, and DRA claims apart from devices."""
    claim = state.Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n1", device="gpu-0")
    claimant = state.Pod(namespace="ml", name="z", uid="u", containers=(state.Container(name="main", claims=(claim,)),))
    state.edit(
        paths[0],
        state.allocate("ml", "train-0", GPU, ["GPU-b"]),
        lambda now: state.dataclasses.replace(now, pods=(*now.pods, claimant)),
    )
    match await client.read_pods():
        case Known((train, other)):
            assert train.full_name == "ml/train-0"
            assert train.containers[0].devices == (
                planes.DeviceIds(resource=GPU, ids=("GPU-b",), topology=IdTopology.NODES, numa_nodes=(1,)),
            )
            assert other.containers[0].claims == (
                planes.Claim(
                    namespace="ml",
                    name="c",
                    devices=(planes.ClaimDevice(driver="gpu.nvidia.com", pool="n1", device="gpu-0"),),
                ),
            )
        case other:
            pytest.fail(str(other))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(kind=FaultKind.TOO_LARGE, size=17 * 1024 * 1024), "ResourceExhausted"),
        (Fault(kind=FaultKind.UNIMPLEMENTED), "Unimplemented"),
        (Fault(kind=FaultKind.HANG), "Deadline"),
        (Fault(kind=FaultKind.GARBAGE), "Garbage"),
        (Fault(kind=FaultKind.ERROR), "KubeletError"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind.value,
)
async def test_each_fault_has_its_reason_and_leaves_the_other_method_alone(node, client, paths, fault, reason):
    """A method that fails is Unknown with its own reason, and clears with its cause."""
    state.edit(paths[0], state.with_faults(list_fault=fault))
    hurried = podresources.PodResources(paths[1], deadline_seconds=0.2)
    asked = hurried if fault.kind is FaultKind.HANG else client
    listed, advertised = await asyncio.gather(asked.read_pods(), client.read_allocatable())
    await hurried.close()
    assert isinstance(listed, Unknown)
    assert listed.reason == reason
    assert isinstance(advertised, Known)
    state.edit(paths[0], state.with_faults())
    assert await client.read_pods() == Known(())


async def test_an_answer_beyond_grpcs_own_limit_is_read(node, client, paths):
    """More than 4 MiB is many pods, not an error (H2)."""
    state.edit(paths[0], state.with_faults(list_fault=Fault(kind=FaultKind.TOO_LARGE, size=5 * 1024 * 1024)))
    match await client.read_pods():
        case Known(pods):
            assert len(pods) > 2000
        case other:
            pytest.fail(str(other))


async def test_a_slow_answer_within_the_deadline_counts(node, client, paths):
    """Slow is not broken."""
    state.edit(paths[0], state.with_faults(allocatable_fault=Fault(kind=FaultKind.SLOW, seconds=0.05)))
    assert isinstance(await client.read_allocatable(), Known)


async def test_ways_of_not_being_there(paths, client, tmp_path):
    """A mount that is missing, empty, without socket, and a kubelet between two lives are told apart (H4)."""
    away = podresources.PodResources(tmp_path / "nowhere" / "kubelet.sock")
    assert (await away.read_pods()).reason == "DirectoryMissing"
    assert (await client.read_pods()).reason == "DirectoryEmpty"
    (paths[1].parent / "other").touch()
    assert (await client.read_pods()).reason == "SocketMissing"
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(paths[1]))
    assert (await client.read_pods()).reason == "ConnectionRefused"


async def test_something_else_behind_the_socket(paths, client):
    """A server that does not speak gRPC is Unknown, not an exception."""

    class Babble(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(b"\x00\xffnot http2" * 10)

    with socketserver.UnixStreamServer(str(paths[1]), Babble) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert isinstance(await client.read_pods(), Unknown)
        server.shutdown()
        thread.join()


async def test_a_restarted_kubelet_is_read_again_at_once(node, client, paths):
    """After a restart the very next read dials anew; no back-off stands between."""
    assert isinstance(await client.read_allocatable(), Known)
    state.edit(paths[0], state.with_socket(SocketState.REFUSING))
    await node.settled()
    refused = await client.read_allocatable()
    assert isinstance(refused, Unknown)
    assert refused.reason == "ConnectionRefused"
    state.edit(paths[0], state.with_socket(SocketState.SERVING), state.restart)
    await node.settled()
    assert await client.read_allocatable() == Known(())


async def test_a_kubelet_that_dies_under_both_calls_cancels_nobody(node, client, paths):
    """Each method fails by itself: dropping the connection of one must not raise in the other."""
    hang = Fault(kind=FaultKind.HANG)
    for _ in range(10):
        state.edit(paths[0], state.with_faults(list_fault=hang, allocatable_fault=hang))
        asked = [
            asyncio.ensure_future(read()) for read in (client.read_pods, client.read_allocatable) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        state.edit(paths[0], state.with_socket(SocketState.REFUSING), state.with_faults())
        await node.settled()
        answers = await asyncio.gather(*asked, client.read_pods(), client.read_allocatable(), return_exceptions=True)
        assert all(isinstance(answer, Unknown) for answer in answers), answers
        state.edit(paths[0], state.with_socket(SocketState.SERVING))
        await node.settled()
        assert isinstance(await client.read_pods(), Known)


def test_every_status_code_has_a_reason():
    """A new gRPC status must be given a reason."""
    assert set(podresources._REASONS) == set(grpc.StatusCode)
