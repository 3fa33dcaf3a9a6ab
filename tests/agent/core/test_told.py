"""What a report tells beyond its verdict: how instances are cut, what the kubelet said of those it refused; both bounded."""

import dataclasses

from agent.core import devicereport, podreport
from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model.kube import Rejection
from muster.model.reading import NOT_COLLECTED, Known
from muster.model.report import MigShape
from tests import builders


def report_of(observation):
    return judge(History(), observation, Policy(), api_server=True)[1]


def test_an_instance_is_told_by_the_drivers_numbers_and_a_whole_gpu_by_none():
    instance = planes.MigInstance(
        uuid="MIG-0-0",
        gi=1,
        ci=0,
        profile="1g.10gb+me",
        compute_slices=Known(1),
        memory_bytes=Known(10_468_982_784),
        attributes=tuple(f"a{number}" for number in range(20)),
    )
    cut = builders.a_gpu(0, mig=Known(planes.Mig(current=True, pending=True, instances=(instance,))))
    devices = {item.uuid: item for item in report_of(builders.with_gpus(builders.a_node(gpus=2), cut)).devices}
    assert devices["MIG-0-0"].shape == MigShape(
        profile="1g.10gb+me",
        compute_slices=Known(1),
        gpu_slices=NOT_COLLECTED,
        memory_bytes=Known(10_468_982_784),
        attributes=instance.attributes[: devicereport.MAX_ATTRIBUTES],
    )
    assert devices["GPU-1"].shape is None


def test_an_instance_that_the_driver_does_not_show_has_no_shape():
    kubelet = builders.a_kubelet({"nvidia.com/mig-1g.10gb": ("MIG-gone",)})
    devices = {item.uuid: item for item in report_of(builders.a_node(kubelet=kubelet)).devices}
    assert devices["MIG-gone"].shape is None


def test_the_newest_refusals_are_told_in_the_kubelets_words():
    def refused(count, message):
        items = tuple(
            Rejection(
                at=builders.after(-number),
                pod=f"ml/r{number}",
                uid=f"u{number}",
                reason="UnexpectedAdmissionError",
                message=message,
            )
            for number in range(count)
        )
        return report_of(dataclasses.replace(builders.a_node(), rejections=items)).pods

    (only,) = refused(1, "x" * 5000)
    assert only.message == "x" * podreport.MAX_MESSAGE
    told = {item.uid for item in refused(40, "no room") if item.message == "no room"}
    assert told == {f"u{number}" for number in range(podreport.MAX_MESSAGES)}
