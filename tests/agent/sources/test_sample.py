"""One clean sample (P4): what is asked, in which order, how often, and what stays when it is not."""

import pytest

from agent.model import planes
from agent.sources import podresources, sample
from agent.sources.slice import SliceStore
from hack.fakenode import kubelet, kubeletstate
from hack.fakenode.kubeletstate import Fault, FaultKind
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown
from tests.fakes import agent_shell as fakes

ONE = (planes.DeviceIds(resource="nvidia.com/gpu", ids=("GPU-a",)),)


class World:
    def __init__(self, *, reader=None, kubelet=None):
        self.clock = fakes.FakeClock()
        self.reader = reader or fakes.FakeReader()
        self.kubelet = kubelet or fakes.FakeKubelet()
        self.slices = SliceStore(grace_seconds=45, expect_api_server=False)
        self.sampler = sample.Sampler(
            node="gpu-a1",
            time=self.clock,
            reader=self.reader,
            kubelet=self.kubelet,
            checkpoint=fakes.NoCheckpoint(),
            slices=self.slices,
            periods=sample.Periods(processes=30, slow=30),
        )

    async def take(self, *, fresh=False, nvml_closed=False, expected=None):
        return await self.sampler.sample(fresh=fresh, nvml_closed=nvml_closed, expected=expected)


def kubelet_of(taken):
    match taken.observation.kubelet:
        case Known(value):
            return value
        case other:
            pytest.fail(str(other))


def nvml_calls(world):
    return [call for call in world.reader.calls if isinstance(call, tuple)]


async def test_agreeing_pairs_take_one_attempt():
    """Two equal pairs around NVML make a clean sample."""
    world = World(kubelet=fakes.FakeKubelet(allocatable=(ONE,)))
    taken = await world.take()
    assert taken.attempts == 1
    assert world.kubelet.asked == 2
    assert kubelet_of(taken).allocatable == Known(ONE)


async def test_a_change_between_the_pairs_discards_the_sample():
    """The second pair opens the next attempt, so a single change costs one more look."""
    world = World(kubelet=fakes.FakeKubelet(allocatable=((), ONE)))
    taken = await world.take()
    assert taken.attempts == 2
    assert kubelet_of(taken).allocatable == Known(ONE)
    assert len(nvml_calls(world)) == 2


async def test_pairs_that_never_agree_are_no_reading():
    """After three attempts both halves are unreadable; NVML still counts."""
    world = World(kubelet=fakes.FakeKubelet(allocatable=((), ONE, (), ONE, ()), pods=((),)))
    taken = await world.take()
    assert taken.attempts == sample.MAX_ATTEMPTS
    assert kubelet_of(taken).allocatable.reason == "NotConsistent"
    assert kubelet_of(taken).pods.reason == "NotConsistent"
    assert isinstance(taken.observation.nvml, Known)


async def test_a_half_that_fails_is_asked_once_and_the_other_half_counts():
    """A hanging method costs one deadline a sample, and hides nothing of the other."""
    world = World(kubelet=fakes.FakeKubelet(allocatable=(Unknown("Deadline"),), pods=((),)))
    taken = await world.take()
    assert world.kubelet.asked == 1
    assert kubelet_of(taken).allocatable == Unknown("Deadline")
    assert kubelet_of(taken).pods == Known(())


async def test_a_real_kubelet_that_flickers(tmp_path):
    """Over a real socket: every second answer differs, so nothing can be said."""
    state, socket = tmp_path / "s.json", tmp_path / "k.sock"
    flicker = Fault(kind=FaultKind.FLICKER)
    kubeletstate.write_state(state, kubeletstate.with_faults(allocatable_fault=flicker)(kubeletstate.gpus(["a", "b"])))
    client = podresources.PodResources(socket)
    async with kubelet.FakeKubelet(state=state, socket=socket):
        world = World(kubelet=client)
        assert kubelet_of(await world.take()).allocatable.reason == "NotConsistent"
        kubeletstate.edit(state, kubeletstate.with_faults())
        assert isinstance(kubelet_of(await world.take()).allocatable, Known)
        await client.close()


async def test_static_facts_once_processes_every_thirty_seconds():
    """The hot path asks for neither; the process list's age is told."""
    world = World()
    await world.take()
    await world.clock.advance(5)
    taken = await world.take()
    await world.clock.advance(30)
    await world.take()
    assert nvml_calls(world) == [("nvml", True, True), ("nvml", False, False), ("nvml", False, True)]
    assert world.clock.monotonic() - taken.read_at["processes"] == 35


async def test_processes_are_read_when_what_is_handed_out_changes():
    """A pod that appears or goes is a change."""
    pod = planes.ListedPod(namespace="ml", name="a", containers=())
    world = World(kubelet=fakes.FakeKubelet(pods=((), (), (pod,), (pod,))))
    await world.take()
    await world.take()
    assert nvml_calls(world)[1:] == [("nvml", False, True)]


async def test_an_event_is_not_held_up_by_slow_facts():
    """A woken sample asks for the hot facts only; what else may have changed is read at the next poll."""
    world = World()
    await world.take()
    await world.take(fresh=True)
    await world.take()
    await world.take()
    assert nvml_calls(world)[1:] == [("nvml", False, False), ("nvml", True, False), ("nvml", False, False)]


async def test_static_facts_stay_due_until_a_read_succeeds():
    """A reader that is away at the start costs nothing but time."""
    world = World()
    world.reader.broken["nvml"] = "ReaderUnavailable"
    await world.take()
    world.reader.broken.clear()
    await world.take()
    assert nvml_calls(world) == [("nvml", True, True)] * 2


async def test_slow_planes_keep_their_value_unless_something_happened():
    """PCI, MPS and CDI are asked every 30 s, or now when woken; a failed one at every sample."""
    world = World()
    await world.take()
    await world.clock.advance(5)
    await world.take()
    assert world.reader.calls.count("pci") == 1
    await world.take(fresh=True)
    assert world.reader.calls.count("pci") == 2
    world.reader.broken["pci"] = "ReadFailed"
    taken = await world.take(fresh=True)
    assert taken.observation.pci == Unknown("ReadFailed")
    await world.take()
    assert world.reader.calls.count("pci") == 4


async def test_every_plane_of_the_reader_may_fail_alone():
    """A plane that cannot be read has its reason and takes no other with it."""
    world = World()
    for plane in ("nvml", "pci", "device_nodes", "kernel_log", "mps", "cdi"):
        world.reader.broken = {plane: "ReaderGone"}
        observation = (await world.take(fresh=True)).observation
        unknown = {
            name for name in ("nvml", "pci", "device_nodes", "kernel_log", "mps", "cdi")
            if isinstance(getattr(observation, name), Unknown)
        }  # fmt: skip
        assert unknown == {plane}
    gone = Unknown("ReaderGone")
    world.reader.host = fakes.Host(boot=gone, kubelet_started_at=gone, plugins=gone)
    taken = await world.take()
    assert (taken.observation.boot, kubelet_of(taken).started_at) == (gone, gone)


async def test_closed_nvml_is_not_read():
    """In a maintenance closure nobody opens the driver, whatever the reader would say."""
    world = World()
    taken = await world.take(nvml_closed=True)
    assert taken.observation.nvml.reason == "MAINTENANCE"
    assert nvml_calls(world) == []


async def test_the_slice_is_part_of_the_sample():
    """Node, Pods and the pod half of a plugin come from the admitter."""
    world = World()
    world.reader.host = fakes.Host(
        plugins=Known((kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(True)),))
    )
    world.slices.connected(api_server=True)
    world.slices.offer(
        kube.NodeSlice(
            node_object=Known(kube.NodeObject(capacity={}, allocatable={})),
            pods=Known(()),
            plugins=Known((kube.Plugin(resource_prefix="nvidia.com", pod="kube-system/p", restarts=Known(3)),)),
        ),
        age_seconds=2,
        now=world.clock.monotonic(),
    )
    taken = await world.take(expected=planes.Expected(gpus=8, source="operator"))
    assert taken.api_server
    assert taken.observation.pods == Known(())
    assert taken.observation.expected == planes.Expected(gpus=8, source="operator")
    assert taken.observation.plugins == Known(
        (kube.Plugin(resource_prefix="nvidia.com", pod="kube-system/p", process_alive=Known(True), restarts=Known(3)),)
    )
    assert taken.observation.dra == NOT_COLLECTED


async def test_links_are_looked_at_again_every_minute():
    """A link that goes down makes no event: the static facts are read again (topology.md section 1.2)."""
    world = World()
    for _ in range(27):
        await world.take()
        await world.clock.advance(5)
    assert [with_static for _, with_static, _ in nvml_calls(world)].count(True) == 3
