"""A check that fails after a fault: neither verdict nor admit changes (design.md sections 3 and 5)."""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import kube
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE, a_gpu, a_mig_gpu, a_node, a_process, with_gpus

SETTLED = (0, 20, 40)
FABRIC_DOWN = Known(planes.Fabric(state=planes.FabricState.IN_PROGRESS))

NO_ACTION = Known(planes.RecoveryAction.UNSUPPORTED)


def node(*, gpus=(), **changes):
    return with_gpus(a_node(**changes), *gpus)


def a_used_gpu(number):
    return a_gpu(number, processes=Known((a_process(),)))


def moved(observation, at):
    return dataclasses.replace(observation, taken_at=builders.after(at))


def row_of(report):
    resource = report.resources[WHOLE]
    numbers = (resource.admit_strict, resource.admit_lenient, resource.pick_risk)
    return (resource.verdict.value, *(reading.value for reading in numbers))


REMAPPED = Known(planes.Remap(pending=Known(True), failed=Known(False)))
MISSING = Known((planes.DeviceNode(path="/dev/nvidia-uvm", present=False),))
XID_79 = planes.Xid(code=79, at=builders.after(-100))
SILENT = Unknown("NO_PERMISSION")

UNREAD = {
    # What took the numbers, and the same check once it fails.
    "foreign process": (node(gpus=[a_used_gpu(0)]), node(gpus=[a_gpu(0, processes=SILENT)])),
    "foreign process, host PID view gone": (
        node(gpus=[a_used_gpu(0)]),
        node(gpus=[a_gpu(0, processes=Known((planes.Process(pid=1000),)))]),
    ),
    "recovery action": (
        node(gpus=[a_gpu(0, recovery_action=Known(planes.RecoveryAction.RESET))]),
        node(gpus=[a_gpu(0, recovery_action=SILENT)]),
    ),
    "row remap": (node(gpus=[a_gpu(0, remap=REMAPPED)]), node(gpus=[a_gpu(0, remap=SILENT)])),
    "row remap, one field": (
        node(gpus=[a_gpu(0, remap=REMAPPED)]),
        node(gpus=[a_gpu(0, remap=Known(planes.Remap(pending=SILENT)))]),
    ),
    "fabric": (node(gpus=[a_gpu(0, fabric=FABRIC_DOWN)]), node(gpus=[a_gpu(0, fabric=SILENT)])),
    "Xid without a recovery action": (
        node(gpus=[a_gpu(0, recovery_action=SILENT, xids=Known((XID_79,)))]),
        node(gpus=[a_gpu(0, recovery_action=SILENT, xids=SILENT)]),
    ),
    "Xid with a driver that has no recovery action": (
        node(gpus=[a_gpu(0, recovery_action=NO_ACTION, xids=Known((XID_79,)))]),
        node(gpus=[a_gpu(0, recovery_action=NO_ACTION, xids=SILENT)]),
    ),
    "a whole GPU in MIG mode": (node(gpus=[a_mig_gpu(0, ("1g.10gb",))]), node(gpus=[a_gpu(0, mig=Unknown("UNKNOWN"))])),
    "device files": (node(device_nodes=MISSING), node(device_nodes=Unknown("ReaderTimeout"))),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_check_that_fails_leaves_what_it_said(name):
    """Neither verdict nor admit changes (design.md section 3), however long it lasts; the next answer decides."""
    fault, unread = UNREAD[name]
    history, expected = History(), None
    for at in SETTLED:
        history, report = judge(history, moved(fault, at), Policy(), api_server=True)
        expected = row_of(report)
    assert expected[1] == 0
    for at in (60, 80, 500):
        history, report = judge(history, moved(unread, at), Policy(), api_server=True)
        assert row_of(report) == expected
    for at in (520, 540):
        history, report = judge(history, moved(node(), at), Policy(), api_server=True)
    assert row_of(report) == ("OK", 8, 8, 0.0)


def test_a_check_that_fails_completes_no_evidence():
    history, _ = judge(History(), moved(node(gpus=[a_used_gpu(0)]), 0), Policy(), api_server=True)
    for at in (40, 80):
        unread = moved(node(gpus=[a_gpu(0, processes=SILENT)]), at)
        history, report = judge(history, unread, Policy(), api_server=True)
        assert row_of(report) == ("TRANSIENT", 0, 7, 1 / 8)


def test_a_check_that_was_never_read_accuses_nobody():
    unread = node(gpus=[a_gpu(0, processes=SILENT, recovery_action=SILENT, fabric=SILENT)])
    history = History()
    for at in SETTLED:
        history, report = judge(history, moved(unread, at), Policy(), api_server=True)
    assert row_of(report) == ("OK", 8, 8, 0.0)


@pytest.mark.parametrize("said", [Unknown("NotAsked"), Unknown("EACCES")])
def test_a_driver_of_which_nobody_can_say_whether_it_answers_stays_what_it_was(said):
    """A socket that appears anywhere in the registry and was not asked yet gives no dead driver its capacity back."""
    name = "gpu.nvidia.com"
    devices = tuple(kube.DraDevice(name=f"gpu-{number}", uuid=f"GPU-{number}") for number in range(8))

    bare = node(kubelet=builders.a_kubelet({}), node_object=builders.a_node_object({}), plugins=Known(()))

    def observed(answering, at):
        driver = kube.DraDriver(name=name, registration_socket_present=answering, answering=answering)
        plane = kube.Dra(drivers=(driver,), slices=(kube.DraSlice(driver=name, devices=devices),))
        return moved(dataclasses.replace(bare, dra=Known(plane)), at)

    def row(report):
        return report.resources[name].verdict.value, report.resources[name].admit_lenient

    history, expected = History(), None
    for at in (0, 60, 120, 180):
        history, report = judge(history, observed(Known(False), at), Policy(), api_server=True)
        expected = row(report)
    assert expected == ("OVER", Known(0))
    history, report = judge(history, observed(said, 200), Policy(), api_server=True)
    assert row(report) == expected
    _, report = judge(History(), observed(said, 200), Policy(), api_server=True)
    assert report.resources[name].verdict.value == "OK"


SLICES = [a_mig_gpu(number, ("3g.40gb",) if number == 7 else ("1g.10gb",)) for number in range(8)]
SINGLE = {"nvidia.com/mig.strategy": "single"}
FAILED = SINGLE | {"nvidia.com/mig.config.state": "failed"}
ASKED = kube.DesiredMig(name="small", layout=(kube.MigLayout(gpus="all", profiles={"1g.10gb": 1}),))


@pytest.mark.parametrize(
    ("labels", "desired", "cause"),
    [(SINGLE, Unknown("NOT_COLLECTED"), "SingleStrategyNotUniform"), (FAILED, Known(ASKED), "HalfAppliedGeometry")],
    ids=["C5", "C8-single"],
)
@pytest.mark.parametrize(
    "hung", [builders.a_lost_gpu(7, "TIMEOUT"), a_gpu(7, mig=Unknown("UNKNOWN"))], ids=["the GPU", "its geometry"]
)
def test_the_odd_gpu_that_hangs_gives_the_others_no_capacity_back(labels, desired, cause, hung):
    """Strategy single needs one geometry on all GPUs (faults.md C5, C8); nobody has seen that it is one now."""
    whole = node(
        gpus=SLICES,
        kubelet=builders.a_kubelet({WHOLE: tuple(f"MIG-{number}-0" for number in range(8))}),
        node_object=builders.a_node_object({WHOLE: 8}, labels=labels),
        desired_mig=desired,
    )
    uniform = with_gpus(whole, a_mig_gpu(7, ("1g.10gb",)))
    history = History()
    for observation, ats in ((whole, SETTLED), (with_gpus(whole, hung), (60, 80, 500))):
        for at in ats:
            history, report = judge(history, moved(observation, at), Policy(), api_server=True)
            assert row_of(report)[1:3] == (0, 0)
            assert cause in [finding.cause for finding in report.resources[WHOLE].findings]
    for at in (520, 540):
        history, report = judge(history, moved(uniform, at), Policy(), api_server=True)
    assert row_of(report) == ("OK", 8, 8, 0.0)
