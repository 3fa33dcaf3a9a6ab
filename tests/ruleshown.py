"""For every rule, timelines that hit it: the captures, and what is built by hand where no capture does."""

import dataclasses
import functools

from agent.model import planes
from agent.model.policy import Policy
from hack.matrix import captures
from muster.model import codec, kube
from muster.model.reading import Known
from tests import builders

MOST = 3
"""Timelines a rule: the shortest ones say it all."""

TIMES = (0, 45, 400, 1000)
"""Beyond every hold-down of the rules below."""


def rule_of(finding):
    """Return a finding's rule without its version."""
    return finding.rule.partition("/")[0]


def findings_of(report):
    """Return all findings of a report."""
    return (*report.node_findings, *(item for resource in report.resources.values() for item in resource.findings))


@functools.cache
def timelines():
    """Return rule -> the timelines that hit it, the shortest first."""
    found = {}
    known = (*captures.load_all(), *by_hand())
    for capture in sorted(known, key=lambda item: (len(item.observations), item.name)):
        reports = captures.replay(capture, Policy())
        for rule in {rule_of(finding) for report in reports for finding in findings_of(report)}:
            found.setdefault(rule, []).append(capture)
    return {rule: tuple(items[:MOST]) for rule, items in found.items()}


def without_slices():
    """Return a node of a DRA driver alone, whose slices are away."""
    return builders.a_node(
        kubelet=builders.a_kubelet({}),
        node_object=builders.a_node_object({}),
        plugins=Known(()),
        dra=Known(kube.Dra(drivers=(kube.DraDriver(name="gpu.nvidia.com"),))),
    )


def a_link(number, state=planes.LinkState.ACTIVE):
    """Return a link to the board's switches."""
    return planes.NvLink(link=number, state=state, remote=Known(planes.LinkRemote.SWITCH))


def a_fabric(summary):
    """Return a fabric that is up."""
    return planes.Fabric(state=planes.FabricState.COMPLETED, status=Known("success"), summary=Known(summary))


def by_hand():
    """Yield the nodes that the catalogue has no entry for."""
    sick = {
        "gpu-drained": builders.a_gpu(3, drain=Known(True)),
        "gpu-hardware": builders.a_lost_gpu(3, "IRQ_ISSUE"),
        "gpu-unreadable": builders.a_lost_gpu(3, "UNKNOWN"),
        "row-remap-failed": builders.a_gpu(3, remap=Known(planes.Remap(failed=Known(True)))),
        "sram-threshold": builders.a_gpu(3, ecc=Known(planes.Ecc(sram_threshold_exceeded=Known(True)))),
        "sram-errors": builders.a_gpu(3, ecc=Known(planes.Ecc(sram_uncorrected=Known(1)))),
        "slowdown": builders.a_gpu(3, clocks_reasons=Known(("hw_thermal_slowdown",))),
        "nvlink-down": builders.a_gpu(3, nvlinks=Known((a_link(0), a_link(1, planes.LinkState.INACTIVE)))),
        "fabric-degraded": builders.a_gpu(3, fabric=Known(a_fabric(planes.FabricSummary.LIMITED_CAPACITY))),
        "confidential-not-ready": builders.a_gpu(
            3, confidential=Known(planes.Confidential(feature=Known(True), ready=Known(False)))
        ),
        "xid-degraded": builders.a_gpu(
            3,
            recovery_action=Known(planes.RecoveryAction.UNSUPPORTED),
            xids=Known((planes.Xid(code=109, at=builders.after(-60)),)),
        ),
    }
    for rule, gpu in sick.items():
        yield a_timeline(rule, builders.with_gpus(builders.a_node(), gpu))
    for rule, path in (("device-files", "/dev/nvidiactl"), ("device-file-gpu", "/dev/nvidia3")):
        missing = Known((planes.DeviceNode(path=path, present=False),))
        yield a_timeline(rule, builders.a_node(device_nodes=missing))
    tool = builders.a_gpu(3, processes=Known((builders.a_process(name="dcgmproftester12"),)))
    yield a_timeline("management-tool", builders.with_gpus(builders.a_node(), tool))
    sneaky = builders.a_process(cgroup=builders.pod_cgroup("uid-sneaky"))
    unasked = builders.a_node(pods=Known((builders.a_pod("sneaky", units=0),)))
    yield a_timeline("gpu-unasked", builders.with_gpus(unasked, builders.a_gpu(3, processes=Known((sneaky,)))))
    validator = builders.a_listed_pod("nvidia-cuda-validator-x", "GPU-0", namespace="gpu-operator")
    listed = builders.a_kubelet({builders.WHOLE: tuple(f"GPU-{number}" for number in range(8))}, (validator,))
    yield a_timeline("operator-pod", builders.a_node(kubelet=listed))
    drained = planes.PciFunction(address="0000:1f:00.0", driver="nvidia", drain=Known(True))
    yield a_timeline("pci-drained", builders.a_node(pci=Known((drained,))))
    yield a_timeline("dra-unpublished", without_slices())
    yield a_timeline("expected-gpus", builders.a_node(expected=planes.Expected(gpus=9, source="operator")))
    yield a_timeline("S4-low", builders.a_node(node_object=builders.a_node_object({builders.WHOLE: (9, 7)})))
    yield a_timeline("C8-single", half_applied("single"))
    yield a_timeline("F2-both", whole_and_shared())


def half_applied(strategy):
    """Return a node whose change of layout failed: seven slices were asked for, and two are there."""
    labels = codec.freeze({"nvidia.com/mig.config.state": "failed", "nvidia.com/mig.strategy": strategy})
    instances = ("1g.10gb", "1g.10gb")
    node = builders.a_node(1, node_object=builders.a_node_object({builders.WHOLE: 2}, labels=labels))
    wanted = kube.MigLayout(gpus="all", profiles=codec.freeze({"1g.10gb": 7}))
    return dataclasses.replace(
        node,
        nvml=Known(planes.Nvml(devices=(builders.a_mig_gpu(0, instances),))),
        kubelet=builders.a_kubelet({builders.WHOLE: ("MIG-0-0", "MIG-0-1")}),
        desired_mig=Known(kube.DesiredMig(name="all-1g.10gb", layout=(wanted,))),
    )


def whole_and_shared():
    """Return a node whose GPU is advertised whole and as replicas at once."""
    shared = f"{builders.WHOLE}.shared"
    both = {builders.WHOLE: ("GPU-0",), shared: ("GPU-0::0", "GPU-0::1")}
    node_object = builders.a_node_object({builders.WHOLE: 1, shared: 2})
    return builders.a_node(1, kubelet=builders.a_kubelet(both), node_object=node_object)


def a_timeline(name, observation):
    """Return a node on which one thing is wrong for as long as any hold-down lasts."""
    return captures.Capture(
        name=f"by-hand-{name}",
        entry=name,
        is_twin=False,
        observations=tuple(dataclasses.replace(observation, taken_at=builders.after(at)) for at in TIMES),
        api_server=True,
        expected={"after_line": []},
    )
