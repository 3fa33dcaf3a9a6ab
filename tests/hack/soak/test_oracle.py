"""The oracle is held to the catalogue's own examples; it is the judge of the soak, so it has a judge of its own."""

import dataclasses
import pathlib
import time

import pytest

from hack import fakenvml
from hack.fakenode import kubeletstate
from hack.soak import oracle
from muster.model import codec, kube

GPU = "nvidia.com/gpu"
STATE = fakenvml.profile("hgx-h100")
UUIDS = tuple(gpu.uuid for gpu in STATE.gpus)
SCALE = 40.0


def a_machine(**changes):
    facts = oracle.Facts(
        resource=GPU,
        driver=STATE,
        kubelet=kubeletstate.gpus(UUIDS),
        node=kube.NodeObject(capacity=codec.freeze({GPU: 8}), allocatable=codec.freeze({GPU: 8})),
    )
    return dataclasses.replace(facts, **changes)


def bound(facts):
    found = oracle.bound(facts, time.monotonic(), SCALE)
    return found.most, found.least


def a_pod(phase=kube.PodPhase.RUNNING, units=1):
    return kube.Pod(namespace="ml", name="train", uid="u1", phase=phase, requests=codec.freeze({GPU: units}))


HOLDING = kubeletstate.allocate("ml", "train", GPU, UUIDS[:1], uid="u1")(kubeletstate.gpus(UUIDS))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(a_machine(), (8, 8), id="all is well"),
        pytest.param(a_machine(driver=STATE.with_gpu(3, lost=True)), (0, 0), id="B2: one may be picked and is lost"),
        pytest.param(
            a_machine(driver=STATE.with_gpu(0, lost=True), kubelet=HOLDING, pods=(a_pod(),)),
            (7, 7),
            id="a lost one that is held cannot be picked",
        ),
        pytest.param(a_machine(kubelet=HOLDING, pods=(a_pod(),)), (7, 7), id="N5: one is held"),
        pytest.param(a_machine(kubelet=HOLDING, pods=(a_pod(kube.PodPhase.SUCCEEDED),)), (8, 8), id="E1: its pod is over"),
        pytest.param(a_machine(pods=(a_pod(),)), (7, 7), id="S13: a bound pod will take one"),
        pytest.param(
            a_machine(kubelet=kubeletstate.plugin_down(GPU)(kubeletstate.gpus(UUIDS))), (0, 0), id="A1: nothing is promised"
        ),
        pytest.param(a_machine(node=None), (0, 0), id="no Node: blind"),
        pytest.param(a_machine(driver_away=True), (0, 0), id="D1: the driver does not answer"),
        pytest.param(
            a_machine(driver=STATE.with_process(2, fakenvml.Process(pid=7)), owners={7: ""}), (0, 0), id="E5: foreign"
        ),
        pytest.param(
            a_machine(driver=STATE.with_process(2, fakenvml.Process(pid=7)), owners={7: "u1"}, pods=(a_pod(),)),
            (7, 7),
            id="E8: held by a pod that List does not show",
        ),
        pytest.param(a_machine(ceiling=2), (2, 2), id="E3: the kubelet says two"),
        pytest.param(a_machine(missing_files=frozenset({"nvidiactl"})), (0, 0), id="D6: no control file"),
        pytest.param(a_machine(unsure=True), (8, 0), id="a part that comes and goes"),
        pytest.param(a_machine(remembered=frozenset({1})), (0, 0), id="nobody has seen it end"),
    ],
)  # fmt: skip
def test_the_bound_is_what_the_catalogue_says(facts, expected):
    """Most and least of each state, by sets of ids."""
    assert bound(facts) == expected


def test_nothing_is_held_to_be_seen_through_a_plane_that_is_away():
    """A silent agent shows nothing; an empty promise hides bad devices only."""
    assert oracle.readable(a_machine(is_speaking=False)) == oracle.PLANES - {"agent"}
    empty = a_machine(kubelet=kubeletstate.plugin_down(GPU)(kubeletstate.gpus(UUIDS)))
    assert oracle.readable(empty) == oracle.PLANES - {"promise"}
    assert oracle.readable(a_machine(unsure=True)) == frozenset()


def test_the_oracle_imports_nothing_of_the_agent():
    """What judges the rules must not be made of them."""
    text = pathlib.Path(oracle.__file__).read_text()
    assert "import agent" not in text
    assert "from agent" not in text


def test_what_gangs_hold_need_not_be_offered():
    """That it is subtracted is looked at by itself; nothing may be above what is there anyway."""
    assert bound(a_machine(leased=3)) == (8, 5)
    assert bound(a_machine(leased=9)) == (8, 0)
