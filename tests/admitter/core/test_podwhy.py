"""Why a pod does not run: one scene for each cause, and what holds for every scene."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import facts, podwhy, predicates
from admitter.model.cluster import Condition, Constraints, KubeNode
from admitter.model.hold import Told
from admitter.model.podstory import PodReason, PodScene
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import PodFinding, PodState, Verdict
from tests.admitter.grouppods import GPU, a_pod, rejected
from tests.admitter.nodewords import a_finding, a_report

MIG = "nvidia.com/mig-1g.10gb"


def a_node(name, allocatable=None, *, labels=None, taints=(), cordoned=False, ready=True):
    allocatable = {GPU: 8} if allocatable is None else allocatable
    return KubeNode(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        object=kube.NodeObject(
            ready=Known(ready),
            capacity=allocatable,
            allocatable=allocatable,
            labels=labels or {},
            taints=tuple(taints),
            unschedulable=cordoned,
        ),
        allocatable=allocatable,
    )


def a_scene(pod, *nodes, bound=(), reports=None, **fields):
    return PodScene(
        pod=pod,
        nodes={node.name: node for node in nodes},
        facts={node.name: facts.of_node(node, [each for each in bound if each.node == node.name]) for node in nodes},
        reports=reports or {},
        **{"lifts_gates": True, **fields},
    )


def loose(**changes):
    """A pod that nothing holds."""
    return a_pod("p", gates=(), labels={}, annotations={}, **changes)


def said(scene):
    return {cause.reason: cause.summary for cause in podwhy.causes(scene)}


UNSCHEDULABLE = Condition(
    type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available"
)
TAINT = kube.Taint(key="dedicated", value="infra", effect="NoSchedule")
FULL = loose(uid="other", node="n1")
PLUGIN = a_finding(
    Verdict.UNDER, "PluginNotRegistered", cause="PluginDownInGrace", detail="plugin not registered since 12:00"
)
ABSENT = a_report(PLUGIN, node="n1")

CASES = {
    "selector": (
        a_scene(loose(constraints=Constraints(node_selector={"zone": "a"})), a_node("n1"), a_node("n2")),
        PodReason.SELECTOR,
        (
            "2 nodes have room for 8 nvidia.com/gpu, and the pod's selector or affinity excludes them: "
            "n1: selector zone=a, has none; n2: selector zone=a, has none"
        ),
    ),
    "taint": (
        a_scene(loose(), a_node("n1", taints=(TAINT,))),
        PodReason.TAINT,
        "1 node has room for 8 nvidia.com/gpu, and a taint keeps the pod off: n1: taint dedicated=infra:NoSchedule",
    ),
    "cordoned": (
        a_scene(loose(), a_node("n1", cordoned=True)),
        PodReason.CORDONED,
        "1 node has room for 8 nvidia.com/gpu and is cordoned: n1: cordoned",
    ),
    "not advertised again after a drain": (
        a_scene(loose(), a_node("n1", {GPU: 0}), reports={"n1": ABSENT}),
        PodReason.NOT_READVERTISED,
        "1 node has nvidia.com/gpu that the device plugin has not advertised again: n1: plugin not registered since 12:00",
    ),
    "ready without GPUs": (
        a_scene(loose(), a_node("n1", {}, labels={"nvidia.com/gpu.present": "true"})),
        PodReason.NODE_WITHOUT_GPUS,
        "1 node should have nvidia.com/gpu and advertises none: n1: Ready",
    ),
    "another MIG profile": (
        a_scene(loose(requests={MIG: 1}), a_node("n1", {"nvidia.com/mig-2g.20gb": 3})),
        PodReason.MIG_PROFILE,
        f"1 node offers another shape than {MIG}: n1: offers nvidia.com/mig-2g.20gb",
    ),
    "whole GPUs where MIG is asked for": (
        a_scene(loose(requests={MIG: 1}), a_node("n1")),
        PodReason.MIG_PROFILE,
        f"1 node offers another shape than {MIG}: n1: offers whole GPUs",
    ),
    "in use": (
        a_scene(loose(), a_node("n1"), bound=(FULL,)),
        PodReason.IN_USE,
        "1 node has nvidia.com/gpu, and less than 8 free: n1: 0 of 8 free",
    ),
    "no such resource": (
        a_scene(loose(requests={"nvidia.com/gpux": 1}), a_node("n1")),
        PodReason.NO_SUCH_RESOURCE,
        "no node that takes it has nvidia.com/gpux",
    ),
    "no device, the scheduler says no": (
        a_scene(loose(requests={"cpu": 1}, conditions=(UNSCHEDULABLE,)), a_node("n1")),
        PodReason.SCHEDULER,
        "its scheduler says: 0/3 nodes are available",
    ),
    "nobody schedules": (
        a_scene(loose(requests={"cpu": 1}, scheduler="mine"), a_node("n1")),
        PodReason.SCHEDULER,
        "the scheduler mine has not said anything about it",
    ),
    "held": (
        a_scene(a_pod(), gang="trainer", told=Told(reason="NotEnoughUnits", summary="needs 16 GPUs")),
        PodReason.HELD,
        "held until all of gang team-a/trainer have a place; NotEnoughUnits: needs 16 GPUs",
    ),
    "held by nobody": (
        a_scene(a_pod(), lifts_gates=False),
        PodReason.GATE_NOBODY_LIFTS,
        "it carries the gate muster.dev/gang, and this admitter runs without --gates",
    ),
    "held and of no gang": (
        a_scene(a_pod()),
        PodReason.GATE_NOBODY_LIFTS,
        "it carries the gate muster.dev/gang, and belongs to no gang: nothing says with whom it starts",
    ),
    "a gate of Kueue": (
        a_scene(a_pod(gates=("kueue.x-k8s.io/admission",))),
        PodReason.FOREIGN_GATE,
        "it carries the gate kueue.x-k8s.io/admission, which is Kueue's to lift",
    ),
    "a gate of nobody": (
        a_scene(a_pod(gates=("example.com/quota",))),
        PodReason.GATE_NOBODY_LIFTS,
        "it carries the gate example.com/quota, and nobody that Muster knows lifts it",
    ),
    "pinned": (
        a_scene(a_pod(gates=(), annotations={"muster.dev/lease": "t1"}, conditions=(UNSCHEDULABLE,))),
        PodReason.PINNED,
        (
            "Muster let it go with a place of its own, and it is not bound there yet; "
            "its scheduler says: 0/3 nodes are available"
        ),
    ),
    "rejected": (
        a_scene(rejected(loose(), "n1"), a_node("n1"), reports={"n1": ABSENT}),
        PodReason.REJECTED,
        (
            "the kubelet of n1 refused it, UnexpectedAdmissionError: no devices; its agent says UNDER: "
            "plugin not registered since 12:00"
        ),
    ),
    "bound and not started": (
        a_scene(
            loose(
                node="n1",
                containers=(
                    kube.Container(
                        name="main", state=kube.ContainerState.WAITING, reason="ImagePullBackOff", message="no such tag"
                    ),
                ),
            ),
            a_node("n1"),
        ),
        PodReason.NOT_STARTED,
        "bound to n1, and no container has started: main waits: ImagePullBackOff no such tag",
    ),
    "runs without its device": (
        a_scene(
            loose(node="n1", phase=kube.PodPhase.RUNNING),
            a_node("n1"),
            reports={
                "n1": a_report(
                    pods=(PodFinding(pod="team-a/p", state=PodState.WITHOUT_DEVICE, reason="PodWithoutDevice"),)
                )
            },
        ),
        PodReason.WITHOUT_DEVICE,
        "runs without the device that it asked for on n1, PodWithoutDevice",
    ),
}


@pytest.mark.parametrize(("scene", "reason", "summary"), CASES.values(), ids=CASES.keys())
def test_each_cause_is_told_in_a_sentence(scene, reason, summary):
    found = said(scene)
    assert found[reason] == summary
    assert all(cause.remedy for cause in podwhy.causes(scene))


def test_what_is_advertised_and_not_usable_is_told():
    report = a_report(a_finding(detail="GPU-3 fell off the bus"))
    own = dataclasses.replace(report.resources[GPU], admit_strict=Known(7))
    scene = a_scene(loose(), a_node("n1"), reports={"n1": dataclasses.replace(report, resources={GPU: own})})
    assert said(scene) == {
        PodReason.NOT_USABLE: "1 node advertises 8 free nvidia.com/gpu that is not there: "
        "n1: 7 really usable: GPU-3 fell off the bus"
    } | {PodReason.SCHEDULER: said(scene)[PodReason.SCHEDULER]}


def test_a_gated_pod_is_no_signal_to_an_autoscaler():
    assert PodReason.NO_AUTOSCALER in said(a_scene(a_pod(), gang="trainer"))
    assert PodReason.NO_AUTOSCALER not in said(a_scene(loose(conditions=(UNSCHEDULABLE,)), a_node("n1")))


def test_nobody_is_sent_to_widen_a_selector_for_nodes_that_are_full():
    full = [loose(uid=f"other-{name}", node=name) for name in ("n1", "n2")]
    pod = loose(constraints=Constraints(node_selector={"zone": "a"}))
    nodes = [a_node("n1", labels={"zone": "a"}), a_node("n2")]
    assert PodReason.SELECTOR not in said(a_scene(pod, *nodes, bound=full))
    # Where every node is both full and excluded, that it is full is still said.
    assert PodReason.IN_USE in said(a_scene(pod, nodes[1], bound=full))


def test_where_a_node_would_take_it_no_node_is_blamed():
    pod = loose(conditions=(UNSCHEDULABLE,))
    nodes = (a_node("n1"), a_node("n2", cordoned=True), a_node("n3", {GPU: 0}))
    assert said(a_scene(pod, *nodes)) == {PodReason.SCHEDULER: "its scheduler says: 0/3 nodes are available"}


def test_a_pod_that_runs_well_has_no_cause():
    assert podwhy.causes(a_scene(loose(node="n1", phase=kube.PodPhase.RUNNING), a_node("n1"))) == ()
    assert podwhy.causes(a_scene(loose(phase=kube.PodPhase.SUCCEEDED))) == ()


@given(
    count=st.integers(0, 60),
    units=st.integers(1, 9),
    zone=st.sampled_from(["", "a", "b"]),
    cordoned=st.booleans(),
    allocatable=st.integers(0, 8),
)
def test_every_answer_is_bounded_and_the_same_whatever_the_order(count, units, zone, cordoned, allocatable):
    nodes = [a_node(f"n{n}", {GPU: allocatable}, labels={"zone": "a"}, cordoned=cordoned) for n in range(count)]
    pod = loose(requests={GPU: units}, constraints=Constraints(node_selector={"zone": zone} if zone else {}))
    found = podwhy.causes(a_scene(pod, *nodes))
    assert found == podwhy.causes(a_scene(pod, *reversed(nodes)))
    assert found, "a pod that is not placed always has a cause"
    assert all(len(cause.summary) <= 1024 for cause in found)


def test_who_makes_a_pod_does_not_choose_what_a_question_costs(monkeypatch):
    requests = {f"r{number:02}.example/x": 1 for number in range(50)} | {GPU: 8}
    looks = []

    def look(constraints, name, found):
        looks.append(name)
        return refusal(constraints, name, found)

    refusal = predicates.label_refusal
    monkeypatch.setattr(predicates, "label_refusal", look)
    nodes = [a_node(f"n{number}") for number in range(3)]
    waiting = loose(
        requests=requests, constraints=Constraints(node_selector={"zone": "a"}), conditions=(UNSCHEDULABLE,)
    )
    found = podwhy.causes(a_scene(waiting, *nodes))
    assert looks == ["n0", "n1", "n2"]
    assert [cause.reason for cause in found] == [
        PodReason.SELECTOR,
        *[PodReason.NO_SUCH_RESOURCE] * 3,
        PodReason.SCHEDULER,
    ]
    assert found[-1].summary.endswith("; of 51 devices only 4 were looked at")
    silent = podwhy.causes(a_scene(dataclasses.replace(waiting, conditions=()), *nodes))
    assert silent[-1].summary.endswith("; of 51 devices only 4 were looked at")
