"""Garbage in every input, carried through its parser into the core: a reason on its plane, no crash, never more capacity.

Each source is broken where it really breaks: a file cut short, bytes that are no UTF-8, a log of any noise, an answer of a
kubelet that is no message or a strange one, a capture edited by hand, thousands of pods, a clock that jumps back.
"""

import dataclasses
import datetime
import json
import pathlib

import hypothesis
import pytest
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from agent.reader.kernel_log import KernelLog
from agent.sources import capturefile, checkpoint, podresources
from hack.fakenode import kubelet as fakekubelet
from hack.fakenode import kubeletstate
from muster.model import jsonform, kube
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.pb.kubelet.podresources.v1 import podresources_pb2 as pb
from tests import builders
from tests.builders import WHOLE, a_listed_pod, a_node, a_pod

CAPTURES = pathlib.Path(__file__).parents[1] / "captures"
ADMITS = ("admit_strict", "admit_lenient")
SETTINGS = hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))


def admits_of(report):
    """Return what may be leased: nothing on null."""
    return {
        (name, admit): reading.value if isinstance(reading := getattr(resource, admit), Known) else 0
        for name, resource in report.resources.items()
        for admit in ADMITS
    }


def judged(*observations):
    history = History()
    for observation in observations:
        history, report = judge.judge(history, observation, Policy(), api_server=True)
    return report


def busy(**kubelet):
    """Return a node of eight GPUs, two of them held."""
    held = (a_listed_pod("a", "GPU-0"), a_listed_pod("b", "GPU-1"))
    whole = builders.a_kubelet({WHOLE: tuple(f"GPU-{number}" for number in range(8))}, held).value
    return a_node(kubelet=Known(dataclasses.replace(whole, **kubelet)), pods=Known((a_pod("a"), a_pod("b"))))


@st.composite
def broken(draw, content):
    """Bytes that were good: cut, overwritten, with holes, or something else altogether."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 20))] = draw(st.binary(max_size=20))
    end = draw(st.integers(0, len(data)))
    return draw(st.sampled_from((bytes(data), bytes(data[:end]), draw(st.binary(max_size=200)))))


def a_checkpoint():
    made = kubeletstate.gpus([f"GPU-{number}" for number in range(8)])
    made = kubeletstate.allocate("ml", "a", WHOLE, ["GPU-0"], uid="uid-a")(made)
    return fakekubelet.checkpoint_text(made).encode()


@hypothesis.given(broken(a_checkpoint()))
@SETTINGS
def test_a_broken_checkpoint_is_a_reason_and_changes_no_number(content):
    """It is a hint and never a count (faults.md S11)."""
    read = checkpoint.parse(content)
    report = judged(busy(checkpoint=read))
    assert admits_of(report) == {(WHOLE, admit): 6 for admit in ADMITS}
    match read:
        case Unknown(reason):
            assert any(text.startswith(f"kubelet.checkpoint: {reason}") for text in report.unverified)
        case Known():
            assert not any(text.startswith("kubelet.checkpoint") for text in report.unverified)


LOG = b"""6,1,1000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module
3,2,5000000,-;NVRM: Xid (PCI:0000:11:00): 48, pid=1, name=python
3,3,6000000,-;NVRM: Xid (PCI:0000:12:00 GPU-I:07 GPU-CI:00): 95, pid=1
3,4,7000000,-;NVRM: The NVIDIA GPU 0000:13:00.0
"""


@hypothesis.given(broken(LOG), st.booleans())
@SETTINGS
def test_a_broken_kernel_log_never_adds_capacity(content, is_answered):
    """What nobody can parse accuses nobody; what is left of it may."""
    taken = []
    log = KernelLog(builders.LONG_AGO, taken.append)
    log.feed_file(content)
    log.feed_record(content)
    node = busy()
    if not is_answered:
        unsupported = {"recovery_action": Known(planes.RecoveryAction.UNSUPPORTED)}
        node = builders.with_gpus(node, *(builders.a_gpu(number, **unsupported) for number in range(8)))
    report = judged(dataclasses.replace(node, kernel_log=Known(log.records)))
    assert all(value <= 6 for value in admits_of(report).values())
    assert report.verdict in ((Verdict.OK,) if is_answered else (Verdict.OK, Verdict.OVER))


TEXTS = st.one_of(
    st.sampled_from((WHOLE, "GPU-0", "GPU-1::1", "nvidia.com/mig-1g.10gb", "gpu.nvidia.com", "")), st.text(max_size=9)
)
NODES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2)


@st.composite
def devices(draw):
    message = pb.ContainerDevices(resource_name=draw(TEXTS), device_ids=draw(st.lists(TEXTS, max_size=4)))
    if draw(st.booleans()):
        message.topology.CopyFrom(pb.TopologyInfo(nodes=[pb.NUMANode(ID=number) for number in draw(NODES)]))
    return message


@st.composite
def lists(draw):
    pods = []
    for _ in range(draw(st.integers(0, 3))):
        claim = pb.DynamicResource(
            claim_name=draw(TEXTS),
            claim_resources=[pb.ClaimResource(driver_name=draw(TEXTS), pool_name=draw(TEXTS), device_name=draw(TEXTS))],
        )
        container = pb.ContainerResources(
            name=draw(TEXTS), devices=draw(st.lists(devices(), max_size=3)), dynamic_resources=[claim]
        )
        pods.append(pb.PodResources(name=draw(st.sampled_from(("a", "b", ""))), namespace="ml", containers=[container]))
    return pb.ListPodResourcesResponse(pod_resources=pods)


@hypothesis.given(st.lists(devices(), max_size=4), lists())
@SETTINGS
def test_a_strange_answer_of_the_kubelet_promises_no_more_than_the_driver_has(allocatable, listed):
    whole = pb.AllocatableResourcesResponse(devices=allocatable)
    node = busy(allocatable=Known(podresources.devices_from_pb(whole)), pods=Known(podresources.pods_from_pb(listed)))
    report = judged(node)
    for resource in report.resources.values():
        lenient = resource.admit_lenient
        if isinstance(lenient, Known) and lenient.value:
            assert lenient.value <= min(resource.advertised.value, resource.present.value)


@hypothesis.given(
    broken(
        pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name="a", namespace="ml")] * 3).SerializeToString()
    )
)
@SETTINGS
def test_an_answer_that_is_no_message_is_garbage_and_never_no_pods(content):
    message = pb.ListPodResourcesResponse()
    try:
        message.ParseFromString(content)
        pods = Known(podresources.pods_from_pb(message))
    except DecodeError:
        pods = Unknown("Garbage", "List")
    report = judged(busy(), dataclasses.replace(busy(pods=pods), taken_at=builders.after(5)))
    if isinstance(pods, Unknown):
        assert report.resources[WHOLE].verdict is Verdict.BLIND
    assert all(value <= 6 for value in admits_of(report).values())


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.just([]), st.just({}),
    st.sampled_from(("2026-13-01T00:00:00Z", "0000-00-00", "\\ud800", -1, 1e308)),
)  # fmt: skip


@st.composite
def edited(draw, line):
    """A line of a capture in which somebody changed a few places."""
    data = json.loads(line)
    for _ in range(draw(st.integers(1, 3))):
        place, key = data, draw(st.sampled_from(sorted(data)))
        while isinstance(place[key], (dict, list)) and place[key] and draw(st.integers(0, 3)):
            place = place[key]
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        place[key] = draw(JSON)
    return json.dumps(data)


LINES = [
    (CAPTURES / f"{name}.jsonl").read_text().splitlines()[-1]
    for name in ("b10-one-mig-fault-unreported", "g2-device-plugin-and-dra-both", "e9-rejected-pods-pile-up")
]


@hypothesis.given(st.sampled_from(LINES).flatmap(edited))
@SETTINGS
def test_an_edited_capture_is_refused_with_its_places_or_judged(line):
    observations, problems = (), ()
    try:
        observations = capturefile.parse([line]).observations
    except capturefile.BadCapture as error:
        problems = error.problems
    assert bool(problems) is not bool(observations)
    assert all(problem.startswith("line 1") for problem in problems)
    for observation in observations:
        report = judged(observation)
        assert all(value >= 0 for value in admits_of(report).values())
        assert jsonform.to_json(report)["node"] == observation.node


def test_four_thousand_pods_on_the_node_are_counted_as_one_is():
    names = [f"p-{number}" for number in range(4000)]
    holding = {name: f"GPU-{number}" for number, name in enumerate(names[:7])}
    listed = tuple(a_listed_pod(name, *([holding[name]] if name in holding else ())) for name in names)
    pods = tuple(a_pod(name, units=1 if name in holding else 0) for name in names)
    crowd = a_node(
        kubelet=builders.a_kubelet({WHOLE: tuple(f"GPU-{number}" for number in range(8))}, listed), pods=Known(pods)
    )
    report = judged(crowd)
    assert builders.numbers_of(report) == {WHOLE: ("OK", 1, 1, 0.0)}
    finished = tuple(dataclasses.replace(pod, phase=kube.PodPhase.FAILED) for pod in pods)
    report = judged(dataclasses.replace(crowd, pods=Known(finished)))
    assert builders.numbers_of(report) == {WHOLE: ("OK", 8, 8, 0.0)}


def test_four_thousand_rejections_are_a_number_and_not_a_list():
    refused = tuple(
        kube.Rejection(
            at=builders.after(-number / 50), pod=f"ml/p-{number}", uid=f"u-{number}", reason="UnexpectedAdmissionError"
        )
        for number in range(4000)
    )
    report = judged(a_node(rejections=refused))
    assert [finding.units for finding in report.node_findings if finding.cause == "RejectedPodsPileUp"] == [4000]
    assert len(report.pods) == 256


@pytest.mark.parametrize("back", [1, 59, 3600, 86400 * 400])
def test_a_clock_that_jumps_back_raises_nothing_and_ends_no_hold_down(back):
    lost = builders.with_gpus(busy(), builders.a_lost_gpu(5))
    earlier = dataclasses.replace(lost, taken_at=builders.NOW - datetime.timedelta(seconds=back))
    history, report = judge.judge(History(), lost, Policy(), api_server=True)
    assert builders.numbers_of(report) == {WHOLE: ("TRANSIENT", 0, 5, 1 / 6)}
    for _ in range(3):
        history, report = judge.judge(history, earlier, Policy(), api_server=True)
        assert builders.numbers_of(report) == {WHOLE: ("TRANSIENT", 0, 5, 1 / 6)}
    _, report = judge.judge(history, dataclasses.replace(lost, taken_at=builders.after(60)), Policy(), api_server=True)
    assert builders.numbers_of(report) == {WHOLE: ("OVER", 0, 5, 1 / 6)}


@pytest.mark.parametrize("back", [3600, 86400 * 400])
def test_a_hold_down_goes_on_by_the_clock_that_there_is(back):
    """A jump back must not keep a fault TRANSIENT until the old time comes round again."""
    lost = builders.with_gpus(busy(), builders.a_lost_gpu(5))
    history, _ = judge.judge(History(), lost, Policy(), api_server=True)
    for seconds in (0, 20, 40):
        now = builders.NOW + datetime.timedelta(seconds=seconds - back)
        history, report = judge.judge(history, dataclasses.replace(lost, taken_at=now), Policy(), api_server=True)
    assert builders.numbers_of(report) == {WHOLE: ("OVER", 0, 5, 1 / 6)}
