"""One GPU, several promises: what each name may still admit (faults.md A14, F1, F2, F4, G2, S21; design.md section 3).

What the rows have in common is the property at the end: admitted strictly, all names together never exceed the hardware.
"""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core import allocators, assemble, judge
from agent.core.allocators import Allocator
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import kube
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_node, a_pod

TWO = ("GPU-0", "GPU-1")
SHARE, SHARED, DRIVER, PASSED = "vendor.example/share", "nvidia.com/gpu.shared", "gpu.nvidia.com", "nvidia.com/GH100"
SETTLED = (0, 20, 40, 400)


def slices(*uuids, driver=DRIVER, serves="", taint=""):
    """Return a DRA plane that publishes these devices."""
    taints = (kube.Taint(key="gpu.nvidia.com/xid", effect=taint),) if taint else ()
    devices = tuple(kube.DraDevice(name=f"dev-{number}", uuid=uuid, taints=taints) for number, uuid in enumerate(uuids))
    classes = (kube.DeviceClass(name=driver, extended_resource=serves),)
    return Known(
        kube.Dra(
            drivers=(kube.DraDriver(name=driver, registration_socket_present=Known(True), answering=Known(True)),),
            slices=(kube.DraSlice(driver=driver, devices=devices),),
            device_classes=classes,
        )
    )


def claiming(name, *devices, driver=DRIVER):
    """Return a pod of List that holds devices through a claim."""
    claim = planes.Claim(
        namespace="ml", name="c", devices=tuple(planes.ClaimDevice(driver=driver, device=device) for device in devices)
    )
    container = planes.ListedContainer(name="main", devices=(), claims=(claim,))
    return planes.ListedPod(namespace="ml", name=name, containers=(container,))


def node(resources, *bound, listed=(), counts=None, **changes):
    """Return a node of two GPUs that a kubelet promises under these names."""
    counts = {name: len(ids) for name, ids in resources.items()} if counts is None else counts
    return a_node(
        2,
        **{
            "kubelet": builders.a_kubelet(resources, listed),
            "node_object": builders.a_node_object(counts),
            "pods": Known(bound),
            **changes,
        },
    )


def groups(*bound):
    """Return two functions of the bus, each in its IOMMU group, bound to these drivers."""
    return Known(
        tuple(
            planes.PciFunction(address=f"0000:{0x10 + number:02x}:00.0", driver=driver, iommu_group=Known(40 + number))
            for number, driver in enumerate(bound)
        )
    )


NO_PLUGIN = {"plugins": Known(())}

ROWS = {
    "one name": (node({WHOLE: TWO}), {WHOLE: ("OK", 2, 2, 0.0)}),
    # The kubelet's own plugins come before DRA, NVIDIA's names before others', and the order never changes.
    "two plugins": (node({WHOLE: TWO, SHARE: TWO}), {WHOLE: ("OVER", 2, 2, 0.0), SHARE: ("OVER", 0, 2, 1.0)}),
    "two plugins, two vendors' names": (
        node({"b.example/gpu": TWO, "a.example/gpu": TWO}),
        {"a.example/gpu": ("OVER", 2, 2, 0.0), "b.example/gpu": ("OVER", 0, 2, 1.0)},
    ),
    "two plugins that share one GPU only": (
        node({WHOLE: TWO, SHARE: ("GPU-1",)}),
        {WHOLE: ("OVER", 2, 2, 0.0), SHARE: ("OVER", 0, 1, 1.0)},
    ),
    "two plugins with a GPU each": (
        node({WHOLE: ("GPU-0",), SHARE: ("GPU-1",)}),
        {WHOLE: ("OK", 1, 1, 0.0), SHARE: ("OK", 1, 1, 0.0)},
    ),
    # F2: for up to 5 min both forms may be there; no one GPU is admitted in both.
    "whole and as replicas": (
        node({WHOLE: TWO, SHARED: ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")}),
        {WHOLE: ("OVER", 2, 2, 0.0), SHARED: ("OVER", 0, 4, 1.0)},
    ),
    # F1: replicas under one name are one promise. A free unit is a replica; strict and lenient count replicas.
    "replicas alone": (
        node({SHARED: ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")}),
        {SHARED: ("OK", 4, 4, 0.0)},
    ),
    "a holder of one replica takes that replica only": (
        node(
            {SHARED: ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")},
            a_pod("a", resource=SHARED),
            listed=(a_listed_pod("a", "GPU-0::1", resource=SHARED),),
        ),
        {SHARED: ("OK", 3, 3, 0.0)},
    ),
    "a holder of the whole GPU takes all its replicas": (
        node(
            {WHOLE: TWO, SHARED: ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")},
            a_pod("a"),
            listed=(a_listed_pod("a", "GPU-0"),),
        ),
        {WHOLE: ("OVER", 1, 1, 0.0), SHARED: ("OVER", 0, 2, 1.0)},
    ),
    # G2, both ways.
    "plugin and DRA": (
        node({WHOLE: TWO}, dra=slices(*TWO)),
        {WHOLE: ("OVER", 2, 2, 0.0), DRIVER: ("OVER", 0, 2, 1.0)},
    ),
    "plugin and DRA, a claim holds one": (
        node({WHOLE: TWO}, listed=(claiming("a", "dev-0"),), dra=slices(*TWO)),
        {WHOLE: ("OVER", 0, 1, 0.5), DRIVER: ("OVER", 0, 1, 1.0)},
    ),
    "plugin and DRA, the plugin's pod holds one": (
        node({WHOLE: TWO}, a_pod("a"), listed=(a_listed_pod("a", "GPU-0"),), dra=slices(*TWO)),
        {WHOLE: ("OVER", 1, 1, 0.0), DRIVER: ("OVER", 0, 1, 1.0)},
    ),
    "plugin and DRA, a pod of the plugin's name still waits": (
        node({WHOLE: TWO}, a_pod("a"), dra=slices(*TWO)),
        {WHOLE: ("OVER", 1, 1, 0.0), DRIVER: ("OVER", 0, 1, 1.0)},
    ),
    # DRA alone: nobody misses a device plugin.
    "DRA alone": (node({}, dra=slices(*TWO), **NO_PLUGIN), {DRIVER: ("OK", 2, 2, 0.0)}),
    "DRA alone, one claimed": (
        node({}, listed=(claiming("a", "dev-1"),), dra=slices(*TWO), **NO_PLUGIN),
        {DRIVER: ("OK", 1, 1, 0.0)},
    ),
    "DRA alone, a device without a UUID joins to nothing": (
        node({}, dra=slices("GPU-0", ""), **NO_PLUGIN),
        {DRIVER: ("OVER", 0, 1, 0.5)},
    ),
    # Extended resources through DRA: the request names nvidia.com/gpu, the device comes from a slice.
    "an extended resource served by DRA, a pod waits for its claim": (
        node({}, a_pod("a"), dra=slices(*TWO, serves=WHOLE), **NO_PLUGIN),
        {DRIVER: ("OK", 1, 1, 0.0)},
    ),
    "an extended resource served by DRA, the pod has its claim": (
        node({}, a_pod("a"), listed=(claiming("a", "dev-0"),), dra=slices(*TWO, serves=WHOLE), **NO_PLUGIN),
        {DRIVER: ("OK", 1, 1, 0.0)},
    ),
    "the plugin serves the name too: requests count once": (
        node({WHOLE: TWO}, a_pod("a"), dra=slices(*TWO, serves=WHOLE)),
        {WHOLE: ("OVER", 1, 1, 0.0), DRIVER: ("OVER", 0, 1, 1.0)},
    ),
    # Passthrough: a function is the VM's or the driver's; whoever promises the other side's is found.
    "one for VMs, one for containers": (
        node({WHOLE: ("GPU-1",), PASSED: ("40",)}, nvml=Known(planes.Nvml(devices=(a_gpu(1),))), pci=groups("vfio-pci", "nvidia")),
        {WHOLE: ("OK", 1, 1, 0.0), PASSED: ("OK", 1, 1, 0.0)},
    ),
    "both promise the GPU that the VM has": (
        node({WHOLE: TWO, PASSED: ("40",)}, nvml=Known(planes.Nvml(devices=(a_gpu(1),))), pci=groups("vfio-pci", "nvidia")),
        {WHOLE: ("OVER", 0, 1, 0.5), PASSED: ("OK", 1, 1, 0.0)},
    ),
    "both promise the GPU that the driver has": (
        node({WHOLE: TWO, PASSED: ("40", "41")}, pci=groups("nvidia", "nvidia")),
        {WHOLE: ("OK", 2, 2, 0.0), PASSED: ("OVER", 0, 0, 1.0)},
    ),
    "two passthrough names over one group": (
        node(
            {PASSED: ("40", "41"), "nvidia.com/GA100": ("40",)},
            nvml=Known(planes.Nvml(devices=())),
            pci=groups("vfio-pci", "vfio-pci"),
        ),
        {"nvidia.com/GA100": ("OVER", 1, 1, 0.0), PASSED: ("OVER", 0, 2, 0.5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_each_name_admits(name):
    observation, expected = ROWS[name]
    assert builders.numbers_of(builders.reports_of(observation, SETTLED)[-1]) == expected


@pytest.mark.parametrize("name", ROWS)
def test_what_is_admitted_strictly_exists_as_often(name):
    """Replicas of one GPU are as many as their name says; beyond them no unit is admitted twice."""
    observation, _ = ROWS[name]
    report = builders.reports_of(observation, SETTLED)[-1]
    assert strictly(report) <= room(report)


def strictly(report):
    return sum(resource.admit_strict.value for resource in report.resources.values())


def room(report):
    """Return how many units all names together can stand for: each GPU as often as the name that shares it most."""
    most = {}
    for resource in report.resources.values():
        for uuid in set(resource.free_devices):
            shares = max(1, round(resource.advertised.value / max(1, len(set(resource.free_devices)))))
            most[uuid] = max(most.get(uuid, 0), shares)
    return sum(most.values())


IDS = st.sets(st.sampled_from(("GPU-0", "GPU-1", "GPU-2", "GPU-3"))).map(sorted).map(tuple)


@st.composite
def promises(draw):
    """A node of four GPUs, promised under any names, held by anybody."""
    names = (WHOLE, SHARE, "b.example/gpu")
    resources = {name: draw(IDS) for name in names}
    held = {
        name: draw(st.sets(st.sampled_from(resources[name])) if resources[name] else st.just(set())) for name in names
    }
    taken, listed = set(), []
    for name in names:
        mine = sorted(held[name] - taken)
        taken |= set(mine)
        if mine:
            listed.append(a_listed_pod(f"p-{names.index(name)}", *mine, resource=name))
    claimed = sorted(draw(st.sets(st.integers(0, 3))))
    listed += [claiming("p-c", *(f"dev-{number}" for number in claimed))] if claimed else []
    waiting = tuple(
        a_pod(f"w-{number}", resource=draw(st.sampled_from(names)), units=draw(st.integers(1, 2)))
        for number in range(draw(st.integers(0, 2)))
    )
    return a_node(
        4,
        kubelet=builders.a_kubelet({name: ids for name, ids in resources.items() if ids}, listed),
        node_object=builders.a_node_object({name: len(ids) for name, ids in resources.items()}),
        pods=Known(waiting),
        dra=slices(*draw(IDS)),
    )


@hypothesis.given(promises())
def test_all_names_together_admit_no_more_than_is_free(observation):
    report = builders.reports_of(observation, (0,))[-1]
    free = {uuid for resource in report.resources.values() for uuid in resource.free_devices}
    assert strictly(report) <= len(free)


@hypothesis.given(promises(), st.sampled_from((Unknown("Timeout"), Unknown("Unavailable"))))
def test_an_unreadable_dra_plane_changes_no_number(observation, unread):
    history, before = judge.judge(History(), observation, Policy(), api_server=True)
    later = dataclasses.replace(observation, dra=unread, taken_at=builders.after(5))
    _, after = judge.judge(history, later, Policy(), api_server=True)
    assert builders.numbers_of(after) == builders.numbers_of(before)


def test_a_tainted_device_of_a_slice_is_not_promised():
    """To DRA a taint is what "unhealthy" is to a plugin: healthy hardware that nobody offers (UNDER)."""
    tainted = node({}, dra=slices(*TWO, taint="NoSchedule"), **NO_PLUGIN)
    report = builders.reports_of(tainted, SETTLED)[-1]
    assert report.verdict is Verdict.UNDER
    assert [finding.cause for finding in report.node_findings] == ["DraDevicesUnpublished"]
    informational = node({}, dra=slices(*TWO, taint="None"), **NO_PLUGIN)
    assert builders.numbers_of(builders.reports_of(informational, SETTLED)[-1]) == {DRIVER: ("OK", 2, 2, 0.0)}


WHO = {
    "a device plugin": (node({WHOLE: TWO}), {Allocator.DEVICE_PLUGIN}),
    "a device plugin that offers nothing": (node({}), {Allocator.DEVICE_PLUGIN}),
    "DRA": (node({}, dra=slices(*TWO), **NO_PLUGIN), {Allocator.DRA}),
    "DRA without slices": (node({}, dra=slices(), **NO_PLUGIN), {Allocator.DRA}),
    "extended resources through DRA": (
        node({}, dra=slices(*TWO, serves=WHOLE), **NO_PLUGIN), {Allocator.DRA, Allocator.EXTENDED_RESOURCE},
    ),
    "both": (node({WHOLE: TWO}, dra=slices(*TWO)), {Allocator.DEVICE_PLUGIN, Allocator.DRA}),
    "passthrough": (
        node({PASSED: ("40",)}, pci=groups("vfio-pci", "nvidia")), {Allocator.DEVICE_PLUGIN, Allocator.PASSTHROUGH},
    ),
    "another vendor's DRA driver": (node({}, dra=slices("x", driver="net.example"), **NO_PLUGIN), set()),
    "nobody": (node({}, **NO_PLUGIN), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", WHO)
def test_who_allocates(name):
    observation, expected = WHO[name]
    snapshot = assemble.assemble(observation, History(), Policy(), api_server=True)
    assert allocators.of(snapshot, Policy()) == expected


PLUGIN_CAUSES = ("PluginDownInGrace", "PluginDownAfterGrace", "PluginRepelledByTaint", "NoDevicesWaitingForever")


@pytest.mark.parametrize("dra", [slices(*TWO), slices("GPU-0"), slices(), slices(serves=WHOLE)])
@pytest.mark.parametrize("counts", [{}, {WHOLE: 0}, {WHOLE: (2, 0)}])
def test_no_device_plugin_is_missed_where_dra_alone_allocates(dra, counts):
    reports = builders.reports_of(node({}, dra=dra, counts=counts, **NO_PLUGIN), SETTLED)
    causes = {
        finding.cause
        for report in reports
        for finding in (*report.node_findings, *(f for item in report.resources.values() for f in item.findings))
    }
    assert not causes & set(PLUGIN_CAUSES)


def test_what_is_remembered_of_a_slice_is_what_decides():
    """A tainted device stays kept away while the plane cannot be read, without the taint's own words."""
    history, before = judge.judge(
        History(), node({}, dra=slices(*TWO, taint="NoExecute"), **NO_PLUGIN), Policy(), api_server=True
    )
    unread = node({}, dra=Unknown("Timeout"), taken_at=builders.after(5), **NO_PLUGIN)
    _, after = judge.judge(history, unread, Policy(), api_server=True)
    assert builders.numbers_of(after) == builders.numbers_of(before) == {}
    assert {taint.key for item in history.dra.slices for device in item.devices for taint in device.taints} == {""}


def test_no_device_plugin_is_missed_while_the_dra_plane_cannot_be_read():
    history, _ = judge.judge(History(), node({}, dra=slices(), **NO_PLUGIN), Policy(), api_server=True)
    for at in (5, 200, 400):
        unread = node({}, dra=Unknown("Timeout"), taken_at=builders.after(at), **NO_PLUGIN)
        history, report = judge.judge(history, unread, Policy(), api_server=True)
    assert [finding.cause for finding in report.node_findings] == ["DraDevicesUnpublished"]


def test_the_last_slices_are_remembered_in_bounds():
    many = slices(*(f"GPU-{number}" for number in range(5000)))
    history, _ = judge.judge(History(), node({}, dra=many, **NO_PLUGIN), Policy(), api_server=True)
    assert sum(len(item.devices) for item in history.dra.slices) == 512
