"""CDI: a container that waits accuses the node only if a spec was read and lacks its device (faults.md D6)."""

import pytest
from lightkube.resources import core_v1 as core

from admitter.core import slices
from admitter.sources import slimpod
from admitter.sources.sharing import Shared
from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import jsonform, kube
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE

UUIDS = tuple(f"GPU-{number}" for number in range(8))
CDI = "unresolvable CDI devices"
EMPTY = (planes.CdiSpec(kind="nvidia.com/gpu", written_at=builders.LONG_AGO, devices=()),)
FULL = (planes.CdiSpec(kind="nvidia.com/gpu", written_at=builders.LONG_AGO, devices=UUIDS),)
OF_OTHERS = (planes.CdiSpec(kind="example.com/nic", written_at=builders.LONG_AGO, devices=("0",)),)


def row(*specs, reason="CreateContainerError", message=""):
    """Return what is said of a node whose pod holds GPU 0 and has been seen to wait for its container for 60 s."""
    main = kube.Container(name="main", state=kube.ContainerState.WAITING, reason=reason, message=message)
    observation = builders.a_node(
        kubelet=builders.a_kubelet({WHOLE: UUIDS}, (builders.a_listed_pod("a", "GPU-0"),)),
        pods=Known((builders.a_pod("a", phase=kube.PodPhase.PENDING, containers=(main,)),)),
        cdi=Known(specs),
    )
    return builders.row_of(builders.reports_of(observation, (0, 60))[-1].resources[WHOLE])


FREE = ("OK", 7, 7, 0.0)
BLOCKED = ("BLOCKED", 0, 0, 0.0)


@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError"])
def test_a_spec_that_lacks_the_held_device_blocks(reason):
    assert row(*EMPTY, reason=reason) == BLOCKED
    assert row(*FULL, reason=reason) == FREE


@pytest.mark.parametrize("specs", [(), OF_OTHERS], ids=["no spec", "another vendor's"])
@pytest.mark.parametrize(
    "reason", ["CreateContainerError", "RunContainerError", "StartError", "CreateContainerConfigError"]
)
def test_a_node_without_cdi_is_not_blocked_by_a_pod_s_own_fault(specs, reason):
    assert row(*specs, reason=reason, message='exec: "trian.py": executable file not found in $PATH') == FREE


@pytest.mark.parametrize("reason", ["StartError", "CreateContainerConfigError"])
def test_a_missing_secret_or_a_wrong_command_is_the_pod_s_own_fault_beside_a_stale_spec_too(reason):
    assert row(*EMPTY, reason=reason) == FREE


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"CDI device injection failed: {CDI} nvidia.com/gpu=GPU-0", BLOCKED),
        (f"failed to inject CDI devices: {CDI} nvidia.com/pgpu=9, runtime.nvidia.com/gpu=0: unknown", BLOCKED),
        (f"{CDI} nvidia.com/gpu=GPU-1", FREE),
        (f"{CDI} example.com/nic=GPU-0", FREE),
        (f"{CDI}", FREE),
        ('exec: "nvidia.com/gpu=GPU-0": executable file not found in $PATH', FREE),
    ],
    ids=["by UUID", "by index", "of another GPU", "of another vendor", "of nothing", "no complaint of CDI"],
)
def test_without_any_spec_only_the_runtime_s_complaint_about_that_device_blocks(message, expected):
    assert row(message=message) == expected


def from_the_api(uid, state):
    """Return a pod as the admitter reads it from the API server and tells it to the node's agent."""
    status = {"phase": "Pending", "containerStatuses": [{"name": "main", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": state}]}  # fmt: skip
    container = {"name": "main", "image": "i", "resources": {"limits": {WHOLE: "1"}}}
    pod = slimpod.pod(
        core.Pod.from_dict(
            {
                "metadata": {"uid": uid, "name": "a", "namespace": "ml"},
                "spec": {"nodeName": "gpu-a1", "containers": [container]},
                "status": status,
            }
        ),
        Shared(),
    )
    return slices.assemble(None, (pod,), (), Known(kube.Dra())).pods


STUCK = {"waiting": {"reason": "CreateContainerError", "message": f"{CDI} nvidia.com/gpu=GPU-0"}}
STARTED = {"running": {"startedAt": "2026-12-01T10:00:00Z"}}


def verdicts(*samples):
    """Judge (seconds, pods, specs), with the agent restarted before each sample."""
    history, result = History(), []
    for at, pods, specs in samples:
        observation = builders.a_node(
            at=at,
            kubelet=builders.a_kubelet({WHOLE: UUIDS}, (builders.a_listed_pod("a", "GPU-0"),)),
            pods=pods,
            cdi=specs,
        )
        history, report = judge(history, observation, Policy(), api_server=True)
        history = jsonform.from_json(History, jsonform.to_json(history))
        result.append(builders.row_of(report.resources[WHOLE])[:3])
    return result


def test_the_minute_is_the_agent_s_own_since_the_api_does_not_say_how_long_a_container_waits():
    stuck = from_the_api("u", STUCK)
    assert stuck.value[0].containers[0].since is None
    assert verdicts(*((at, stuck, Known(EMPTY)) for at in (0, 30, 59, 60, 4000))) == [
        ("TRANSIENT", 0, 0),
        ("TRANSIENT", 0, 0),
        ("TRANSIENT", 0, 0),
        ("BLOCKED", 0, 0),
        ("BLOCKED", 0, 0),
    ]


def test_each_pod_s_container_has_a_minute_of_its_own():
    first, second = from_the_api("u1", STUCK), from_the_api("u2", STUCK)
    assert [verdict for verdict, *_ in verdicts((0, first, Known(EMPTY)), (40, second, Known(EMPTY)), (70, second, Known(EMPTY)))] == ["TRANSIENT"] * 3  # fmt: skip


@pytest.mark.parametrize(
    "end",
    [(from_the_api("u", STARTED), Known(EMPTY)), (from_the_api("u", STUCK), Known(FULL)), (Known(()), Known(EMPTY))],
    ids=["the container runs", "the spec names the device", "the pod is gone"],
)
def test_it_clears_with_what_it_says(end):
    stuck = from_the_api("u", STUCK)
    assert verdicts((0, stuck, Known(EMPTY)), (90, stuck, Known(EMPTY)), (100, *end), (110, *end))[1:] == [
        ("BLOCKED", 0, 0),
        ("TRANSIENT", 0, 0),
        ("OK", 7, 7),
    ]


def test_specs_that_cannot_be_read_neither_clear_it_nor_let_its_minute_run():
    stuck, unread = from_the_api("u", STUCK), Unknown("IO_ERROR")
    assert verdicts((0, stuck, Known(EMPTY)), (90, stuck, unread), (100, stuck, Known(EMPTY))) == [
        ("TRANSIENT", 0, 0),
        ("TRANSIENT", 0, 0),
        ("BLOCKED", 0, 0),
    ]
