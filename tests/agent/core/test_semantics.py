"""The rules that the catalogue calls S1-S21, each by its id, beside faults that no entry shows together with it.

Every row is judged alone, beside a lost GPU, beside a stranger's process, with one GPU counted out, and beside all three
(tests/beside.py). The principles P1-P6: test_principles.py.
"""

import dataclasses
import inspect
import re
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.sources import checkpoint, podresources
from hack.fakenode import kubelet as fakekubelet
from hack.fakenode import kubeletstate
from muster.model import codec, kube
from muster.model.reading import Known, Unknown
from muster.model.report import PodState, Verdict
from tests import builders
from tests.beside import (
    A_ON_0,
    BESIDES,
    EIGHT,
    MIG,
    SETTLED,
    Beside,
    a_cut_node,
    causes,
    each_beside,
    expected,
    node,
    numbers,
)
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_lost_gpu, a_node, a_pod, a_process


@each_beside
def test_s1_allocatable_is_a_health_count_and_use_does_not_lower_it(beside):
    listed = tuple(a_listed_pod(f"p{number}", f"GPU-{number}") for number in range(3))
    pods = tuple(a_pod(f"p{number}") for number in range(3))
    assert numbers(node(beside, *pods, listed=listed)) == expected(beside, held=(0, 1, 2))


@pytest.mark.parametrize(
    ("says", "seconds", "cause"), [((8, 0), 90, "PluginDownInGrace"), ((0, 0), 0, "PluginDownAfterGrace")]
)
def test_s2_without_its_plugin_a_name_is_n_of_0_and_then_0_of_0(says, seconds, cause):
    gone = node(Beside(out=frozenset(EIGHT)), says=says)
    report = builders.reports_of(gone, (0, seconds, seconds + 5))[-1]
    assert causes(report) == {cause}
    assert numbers(gone) == (0, 0, 0.0)


def test_s2_an_absent_key_is_not_0_a_pod_bound_directly_runs_without_a_gpu():
    running = kube.Container(
        name="main", state=kube.ContainerState.RUNNING, since=builders.after(-90), requests=codec.freeze({WHOLE: 1})
    )
    absent = node(
        Beside(),
        a_pod("a", containers=(running,)),
        listed=(a_listed_pod("a"),),
        node_object=builders.a_node_object({}),
    )
    report = builders.reports_of(absent, (0,))[-1]
    assert {(pod.pod, pod.state) for pod in report.pods} == {("ml/a", PodState.WITHOUT_DEVICE)}
    assert numbers(absent) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("says", "age", "cause"), [((0, 0), 30, "KubeletRestartZeroWindow"), ((8, 0), 3600, "PluginDownInGrace")]
)
def test_s3_zero_of_zero_points_at_the_kubelet_and_n_of_zero_at_the_plugin(says, age, cause):
    gone = node(Beside(out=frozenset(EIGHT)), says=says, kubelet={"started_at": Known(builders.after(-age))})
    assert cause in causes(builders.reports_of(gone, (0,))[-1])


@pytest.mark.parametrize("says", [(8, 8), (8, 3)])
def test_s4_a_difference_between_ga_and_the_node_is_a_stale_object_once_it_lasts(says):
    stale = node(Beside(out=frozenset({5, 6})), says=says)
    assert builders.reports_of(stale, (0,))[-1].resources[WHOLE].verdict in (Verdict.TRANSIENT, Verdict.UNDER)
    assert "NodeStatusStale" in causes(builders.reports_of(stale, SETTLED)[-1])
    assert numbers(stale)[1] == min(6, says[1])


@each_beside
def test_s5_free_is_ga_less_list_as_sets(beside):
    """A pod of another resource, and one that holds what is not offered, take nothing away."""
    other = a_listed_pod("x", "fpga-0", resource="example.com/fpga")
    assert numbers(node(beside, a_pod("a"), listed=(*A_ON_0, other))) == expected(beside, held=(0,))


@each_beside
def test_s6_a_device_on_two_numa_nodes_is_one(beside):
    twice = node(beside, a_pod("a"), listed=A_ON_0)
    kubelet = twice.kubelet.value
    entries = tuple(
        planes.DeviceIds(resource=WHOLE, ids=(text,), topology=planes.IdTopology.NODES, numa_nodes=(numa,))
        for entry in kubelet.allocatable.value
        for text in entry.ids
        for numa in (0, 1)
    )
    doubled = dataclasses.replace(kubelet, allocatable=Known(entries))
    assert numbers(dataclasses.replace(twice, kubelet=Known(doubled))) == expected(beside, held=(0,))


@each_beside
@pytest.mark.parametrize("form", list(planes.IdTopology))
def test_s7_no_form_of_an_empty_topology_changes_a_number(beside, form):
    plain = node(beside)
    kubelet = plain.kubelet.value
    entries = tuple(dataclasses.replace(entry, topology=form) for entry in kubelet.allocatable.value)
    changed = dataclasses.replace(plain, kubelet=Known(dataclasses.replace(kubelet, allocatable=Known(entries))))
    assert numbers(changed) == expected(beside)


@each_beside
def test_s8_a_finished_pod_holds_nothing_and_a_terminating_one_its_device(beside):
    done = a_pod("a", phase=kube.PodPhase.SUCCEEDED)
    assert numbers(node(beside, done, listed=A_ON_0)) == expected(beside)
    ending = a_pod("a", deletion_at=builders.after(-10))
    assert numbers(node(beside, ending, listed=A_ON_0)) == expected(beside, held=(0,))


def test_s9_get_is_never_asked():
    assert re.findall(r'_call\("(\w+)"', inspect.getsource(podresources)) == ["GetAllocatableResources", "List"]


@each_beside
def test_s10_an_init_container_is_seen_by_its_process(beside):
    init = kube.Container(name="i", kind=kube.ContainerKind.INIT, state=kube.ContainerState.RUNNING)
    mine = a_gpu(0, processes=Known((a_process(cgroup=builders.pod_cgroup("uid-a")),)))
    observation = node(beside, a_pod("a", containers=(init,)), listed=(a_listed_pod("a"),), gpus=(mine,))
    strict, lenient, risk = expected(beside, held=(0,))
    assert numbers(observation)[1:] == (
        lenient,
        pytest.approx(risk * (len(EIGHT) - 1 - len(beside.out)) / (8 - len(beside.out))),
    )
    assert numbers(observation)[0] == strict


@each_beside
def test_s11_the_checkpoint_is_no_count(beside):
    everything = planes.Checkpoint(
        registered=codec.EMPTY,
        pods=(planes.CheckpointPod(uid="gone", resource=WHOLE, ids=tuple(f"GPU-{number}" for number in EIGHT)),),
    )
    for hint in (Known(everything), Unknown("NotFound"), Known(planes.Checkpoint(registered=codec.EMPTY, pods=()))):
        observation = node(beside, a_pod("a"), listed=A_ON_0, kubelet={"checkpoint": hint})
        assert numbers(observation) == expected(beside, held=(0,))


def test_s12_both_shapes_of_the_checkpoint_are_one():
    made = kubeletstate.allocate("ml", "a", WHOLE, ["GPU-0"], uid="u")(kubeletstate.gpus(["GPU-0", "GPU-1"]))
    texts = (
        fakekubelet.checkpoint_text(dataclasses.replace(made, checkpoint_shape=shape))
        for shape in kubeletstate.CheckpointShape
    )
    one, other = (checkpoint.parse(text.encode()) for text in texts)
    assert one == other


@each_beside
@pytest.mark.parametrize("units", [1, 3])
def test_s13_a_bound_pod_that_nobody_sees_will_take_a_device(beside, units):
    observation = node(beside, a_pod("a"), a_pod("w", units=units), listed=A_ON_0)
    assert numbers(observation) == expected(beside, held=(0,), waiting=units)


@each_beside
def test_s14_requests_beyond_allocatable_are_clamped_after_they_were_signed(beside):
    pods = tuple(a_pod(f"p{number}") for number in range(8))
    listed = tuple(a_listed_pod(f"p{number}", f"GPU-{number}") for number in range(8))
    observed = node(dataclasses.replace(beside, out=frozenset({4, 5})), *pods, listed=listed)
    assert numbers(observed) == (0, 0, 0.0)


def test_s15_a_plugin_that_has_not_looked_again_promises_what_is_no_more():
    late = a_cut_node("MIG-0-0", "MIG-9-1", "MIG-9-2", profiles=("1g.10gb", "3g.40gb"))
    assert numbers(late, name=MIG) == (0, 1, 2 / 3)


@each_beside
def test_s16_what_the_plugin_counts_out_stays_out_until_it_restarts(beside):
    out = dataclasses.replace(beside, out=beside.out | {2})
    report = builders.reports_of(node(out), SETTLED)[-1]
    assert "XidStickyUnhealthy" in causes(report)
    assert numbers(node(out)) == expected(out)


@pytest.mark.parametrize("form", ["GPU-{}", "gpu-{}", "nvidia{}", "GPU-{}::0"])
def test_s17_an_id_in_any_form_is_its_gpu(form):
    texts = tuple(form.format(number) for number in EIGHT)
    observation = builders.with_gpus(
        a_node(kubelet=builders.a_kubelet({WHOLE: texts}, (a_listed_pod("a", texts[0]),)), pods=Known((a_pod("a"),))),
        a_lost_gpu(6),
    )
    if form.startswith("nvidia"):  # a silent GPU has no index: what it was called is nobody's to know
        assert numbers(observation) == (0, 6, pytest.approx(1 / 7))
        return
    assert numbers(observation) == expected(Beside(lost=frozenset({6})), held=(0,))


@pytest.mark.parametrize(
    ("profile", "name"), [("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"), ("1g.10gb-me", "nvidia.com/mig-1g.10gb-me")]
)
def test_s18_a_profile_is_its_resource_name(profile, name):
    assert numbers(a_cut_node("MIG-0-0", profiles=(profile,), name=name), name=name) == (1, 1, 0.0)


@pytest.mark.parametrize("mode", [True, False])
def test_s19_instances_do_not_survive_a_reboot_and_the_mode_may_not(mode):
    wanted = kube.DesiredMig(
        name="all-1g.10gb", layout=(kube.MigLayout(gpus="all", profiles=codec.freeze({"1g.10gb": 7})),)
    )
    after = a_node(
        boot=Known(planes.Boot(id="boot-2", at=builders.after(-1200))),
        nvml=Known(planes.Nvml(devices=(a_gpu(0, mig=Known(planes.Mig(current=mode, pending=mode, instances=()))),))),
        kubelet=builders.a_kubelet({} if mode else {WHOLE: ("GPU-0",)}),
        node_object=builders.a_node_object({MIG: 0} if mode else {MIG: 0, WHOLE: 1}),
        desired_mig=Known(wanted),
    )
    cut = a_cut_node("MIG-0-0")
    history, _ = judge.judge(
        History(), dataclasses.replace(cut, taken_at=builders.after(-1300)), Policy(), api_server=True
    )
    _, report = judge.judge(history, after, Policy(), api_server=True)
    assert "InstancesGoneAfterReboot" in causes(report)


LABELS = st.dictionaries(
    st.sampled_from(
        ("nvidia.com/gpu.count", "nvidia.com/gpu.replicas", "nvidia.com/mig-1g.10gb.count", "nvidia.com/gpu.product")
    ),
    st.text(max_size=4),
)


@hypothesis.given(LABELS, st.sampled_from(sorted(BESIDES)))
def test_s20_a_label_is_never_capacity(labels, name):
    observation = node(BESIDES[name])
    said = dataclasses.replace(observation.node_object.value, labels=codec.freeze(labels))
    assert numbers(dataclasses.replace(observation, node_object=Known(said))) == expected(BESIDES[name])


def test_s21_what_dra_promises_is_in_slices_and_what_it_gave_in_claims():
    devices = tuple(kube.DraDevice(name=f"d{number}", uuid=f"GPU-{number}") for number in EIGHT)
    claim = planes.Claim(devices=(planes.ClaimDevice(driver="gpu.nvidia.com", device="d0"),))
    pod = planes.ListedPod(
        namespace="ml", name="a", containers=(planes.ListedContainer(name="m", devices=(), claims=(claim,)),)
    )
    observation = a_node(
        kubelet=builders.a_kubelet({}, (pod,)),
        node_object=builders.a_node_object({}),
        plugins=Known(()),
        dra=Known(kube.Dra(slices=(kube.DraSlice(driver="gpu.nvidia.com", devices=devices),))),
    )
    lost = builders.with_gpus(observation, a_lost_gpu(6))
    assert numbers(lost, name="gpu.nvidia.com") == expected(Beside(lost=frozenset({6})), held=(0,))


def test_every_semantic_has_a_test_here():
    named = {match[1] for name in dir(sys.modules[__name__]) if (match := re.match(r"test_(s\d+)_", name))}
    assert named == {f"s{number}" for number in range(1, 22)}
