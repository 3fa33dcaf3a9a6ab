"""Rejections: one is bad luck, a burst is the node's, and a restart answers them."""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.kube import Rejection
from muster.model.reading import Known
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE

PREFERRED = "Allocate failed due to rpc error: GetPreferredAllocation: error getting device links, which is unexpected"
LEAK = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 2"


def rejections(message, *seconds):
    return tuple(
        Rejection(
            at=builders.after(at), pod=f"ml/r{at}", uid=f"u{at}", reason="UnexpectedAdmissionError", message=message
        )
        for at in seconds
    )


def judged(observation):
    return judge(History(), observation, Policy(), api_server=True)[1]


def node(*items, **changes):
    return dataclasses.replace(builders.a_node(**changes), rejections=items)


def test_one_rejection_is_noted_and_fades():
    report = judged(node(*rejections("out of luck", -10)))
    assert (report.verdict, report.resources[WHOLE].admit_strict) == (Verdict.TRANSIENT, Known(8))
    assert [(item.pod, item.state.value) for item in report.pods] == [("ml/r-10", "rejected")]
    assert judged(node(*rejections("out of luck", -130))).verdict is Verdict.OK


def test_a_burst_blocks_until_the_plugin_restarts():
    burst = rejections(PREFERRED, -100, -60, -20)
    resource = judged(node(*burst)).resources[WHOLE]
    assert (resource.verdict, resource.admit_lenient) == (Verdict.BLOCKED, Known(0))
    restarted = Known((builders.a_plugin(started_at=Known(builders.after(-10))),))
    assert judged(node(*burst, plugins=restarted)).resources[WHOLE].admit_strict == Known(8)


def test_a_pod_that_got_a_device_since_answers_the_burst():
    kubelet = builders.a_kubelet({WHOLE: tuple(f"GPU-{n}" for n in range(8))}, (builders.a_listed_pod("a", "GPU-0"),))
    pods = Known((builders.a_pod("a", created_at=builders.after(-5)),))
    observation = node(*rejections(PREFERRED, -100, -60, -20), kubelet=kubelet, pods=pods)
    assert judged(observation).resources[WHOLE].admit_strict == Known(7)


def test_two_rejections_do_not_make_a_burst():
    assert judged(node(*rejections(PREFERRED, -100, -20))).resources[WHOLE].admit_strict == Known(8)


def test_a_lost_gpu_and_one_such_rejection_poison_the_node():
    observation = builders.with_gpus(node(*rejections(PREFERRED, -10)), builders.a_lost_gpu(3))
    resource = judged(observation).resources[WHOLE]
    assert (resource.admit_strict, resource.admit_lenient) == (Known(0), Known(0))
    assert "LostGpuPoisonsNode" in [finding.cause for finding in resource.findings]


def test_a_leak_admits_what_the_kubelet_itself_says_is_left():
    resource = judged(node(*rejections(LEAK, -50, -10))).resources[WHOLE]
    assert (resource.verdict, resource.admit_strict, resource.admit_lenient) == (Verdict.BLOCKED, Known(2), Known(2))


def test_one_pod_s_word_is_not_enough_for_a_leak():
    once = rejections(LEAK, -50)[0]
    twice = dataclasses.replace(once, at=builders.after(-10))
    assert judged(node(once, twice)).resources[WHOLE].admit_strict == Known(8)


def test_a_pile_is_counted_and_the_list_stays_bounded():
    many = tuple(
        dataclasses.replace(item, pod=f"ml/p{number}", uid=f"p{number}")
        for number, item in enumerate(rejections("other", -10) * 1000)
    )
    report = judged(node(*many))
    assert "RejectedPodsPileUp" in [finding.cause for finding in report.node_findings]
    assert len(report.pods) == 256


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu", "NotAdvertised"),
        ("Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: init: Unknown Error", "ReadFailed"),
        ("Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1", "Rejected"),
        ("", "Rejected"),
    ],
)  # fmt: skip
def test_a_rejected_pod_is_listed_with_what_the_kubelet_accused(message, reason):
    refused = Rejection(at=builders.after(-5), pod="ml/r", uid="r", reason="UnexpectedAdmissionError", message=message)
    (pod,) = builders.reports_of(builders.a_node(rejections=(refused,)), (0,))[-1].pods
    assert (pod.pod, pod.state.value, pod.reason) == ("ml/r", "rejected", reason)
