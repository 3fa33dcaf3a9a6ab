"""Every advertised id without a unit has exactly one reason, and one rule that takes it out."""

import pytest

from agent.core.judge import judge
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE


def judged(gpus, *texts, resource=WHOLE, history=History()):  # noqa: B008 -- frozen
    observation = builders.a_node(
        0,
        nvml=Known(builders.planes.Nvml(devices=gpus)),
        kubelet=builders.a_kubelet({resource: texts}),
        node_object=builders.a_node_object({resource: len(texts)}),
    )
    return judge(history, observation, Policy(), api_server=True)


def outcome(gpus, *texts, **settings):
    resource = next(iter(judged(gpus, *texts, **settings)[1].resources.values()))
    worst = resource.findings[0]
    return worst.rule.partition("/")[0], worst.reason, resource.admit_strict, resource.admit_lenient


ONE = builders.a_gpu(0)


@pytest.mark.parametrize(
    ("gpus", "answer"),
    [
        pytest.param((ONE, builders.a_lost_gpu(1)), ("B2", "GpuLost", Known(0), Known(1)), id="listed and lost"),
        pytest.param((ONE, builders.a_lost_gpu(1, "TIMEOUT")), ("B8", "DriverUnresponsive", Known(0), Known(1)), id="silent"),
        pytest.param((ONE,), ("B2", "GpuNotFound", Known(0), Known(1)), id="not listed"),
        pytest.param(
            (ONE, builders.planes.Gpu(uuid="unidentified-1", error="TIMEOUT")),
            ("B8", "DriverUnresponsive", Known(0), Known(1)),
            id="failed before it said its name",
        ),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_be_opened_is_bad(gpus, answer):
    assert outcome(gpus, "GPU-0", "GPU-1") == answer


@pytest.mark.parametrize("error", ["NO_PERMISSION", "UNKNOWN", "SOMETHING_NEW"])
def test_an_error_that_says_nothing_about_the_gpu_is_blind(error):
    _, report = judged((ONE, builders.a_lost_gpu(1, error)), "GPU-0", "GPU-1")
    resource = report.resources[WHOLE]
    assert resource.verdict is Verdict.BLIND
    assert isinstance(resource.admit_lenient, Unknown)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_reason_of_every_gpu_that_has_no_name_counts(order):
    """Two failed before they said who they are: that one of them wants a reset does not explain the other."""
    errors = dict(zip(order, ("RESET_REQUIRED", "UNKNOWN"), strict=True))
    nameless = [builders.planes.Gpu(uuid=f"unidentified-{index}", error=errors[index]) for index in (1, 2)]
    _, report = judged((ONE, *nameless), "GPU-0", "GPU-1", "GPU-2")
    resource = report.resources[WHOLE]
    assert resource.verdict is Verdict.BLIND
    assert isinstance(resource.admit_lenient, Unknown)
    assert {finding.rule.partition("/")[0] for finding in resource.findings} == {"B2", "gpu-unreadable"}


def test_an_id_of_an_unknown_form_cannot_join():
    assert outcome((ONE,), "GPU-0", "gpu7@host") == ("H5", "CannotJoin", Known(0), Known(1))


def test_an_instance_of_a_lost_gpu_is_lost_with_it_and_not_reconfigured():
    name = "nvidia.com/mig-1g.10gb"
    history, _ = judged((builders.a_mig_gpu(1, ("1g.10gb",)),), "MIG-1-0", resource=name)
    assert outcome((builders.a_lost_gpu(1),), "MIG-1-0", resource=name, history=history)[:2] == ("B2", "GpuLost")


def test_an_instance_that_no_readable_gpu_has_is_stale():
    name = "nvidia.com/mig-1g.10gb"
    assert outcome((builders.a_mig_gpu(1, ("3g.40gb",)),), "MIG-1-9", resource=name)[:2] == ("C1", "MigMismatch")
