"""Every field of a capture either decides something or stands in docs/fields.md, and then changes no answer."""

import dataclasses
import pathlib
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.model import planes
from agent.model.policy import Policy
from hack.matrix import captures
from muster.model import shapes
from muster.model.reading import Known, Unknown
from tests import values

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "fields.md"
ROW = re.compile(r"^\| `(?P<path>[a-z_.]+)` \| (?P<kind>\w+) \| (?P<why>.+) \|$", re.MULTILINE)
ROWS = {match["path"]: match["kind"] for match in ROW.finditer(PAGE.read_text("utf-8"))}

OF_THE_LINE = {"schema", "node", "taken_at", "notes"}
DECIDING = {
    "boot": "at",
    "cdi": "kind devices",
    "desired_mig": "name layout.gpus layout.profiles",
    "device_nodes": "path present",
    "dra.device_classes": "extended_resource",
    "dra.drivers": "name registration_socket_present answering",
    "dra.slices": "driver devices.name devices.uuid devices.taints.effect",
    "expected": "gpus",
    "kernel_log": "at text",
    "kubelet": "started_at",
    "kubelet.allocatable": "ids resource",
    "kubelet.checkpoint": "registered pods.uid pods.ids",
    "kubelet.pods": "namespace name uid containers.devices.ids containers.devices.resource",
    "kubelet.pods.containers.claims.devices": "driver device",
    "mps": "daemon_alive ready",
    "node_object": "capacity allocatable labels unschedulable",
    "nvml.devices": (
        "uuid pci index error memory_used_bytes recovery_action retired_pages_pending clocks_reasons events_supported drain"
    ),
    "nvml.devices.confidential": "feature ready",
    "nvml.devices.ecc": "sram_uncorrected sram_threshold_exceeded",
    "nvml.devices.fabric": "state status summary health",
    "nvml.devices.licence": "licensed expiry",
    "nvml.devices.mig": "current pending",
    "nvml.devices.mig.instances": "uuid gi ci profile compute_slices gpu_slices memory_bytes attributes",
    "nvml.devices.nvlinks": "state remote remote_pci",
    "nvml.devices.processes": "used_bytes cgroup gi ci name",
    "nvml.devices.remap": "pending failed",
    "nvml.devices.xids": "code at gi ci",
    "pci": "address driver iommu_group class drain",
    "plugins": "resource_prefix process_alive started_at socket_present socket_dir connected config message",
    "pods": "namespace name uid phase created_at deletion_at requests",
    "pods.containers": "name kind state since reason message requests",
    "rejections": "at pod uid reason message",
}
"""Where rules and numbers look, by the folder a field is in."""


def leaves(cls, prefix=""):
    """Yield the path of every field that holds a value, with the shape of the value."""
    for field, shape in shapes.fields_of(cls):
        path = f"{prefix}{field.name.rstrip('_')}"
        inner = shape
        while inner.item is not None and inner.kind != "map":
            inner = inner.item
        if dataclasses.is_dataclass(inner.type) and inner.kind != "map":
            yield from leaves(inner.type, f"{path}.")
        else:
            yield path, shape


LEAVES = dict(leaves(planes.Observation))


def test_every_field_decides_or_stands_on_the_page():
    deciding = {f"{folder}.{name}" for folder, names in DECIDING.items() for name in names.split()}
    assert sorted(deciding & ROWS.keys()) == []
    assert sorted(LEAVES.keys() - OF_THE_LINE - deciding - ROWS.keys()) == []
    assert sorted((deciding | ROWS.keys()) - LEAVES.keys()) == []


def test_every_row_has_a_kind_that_the_page_explains():
    head = PAGE.read_text("utf-8").partition("|")[0].lower()
    assert set(ROWS.values()) <= set(re.findall(r"\*(\w+)\*", head))


def replaced(value, path, make):
    """Return the value with everything at the path made anew."""
    if isinstance(value, Known):
        return Known(replaced(value.value, path, make))
    if isinstance(value, tuple):
        return tuple(replaced(item, path, make) for item in value)
    if isinstance(value, Unknown) or not dataclasses.is_dataclass(value):
        return value
    name = next(field.name for field in dataclasses.fields(value) if field.name.rstrip("_") == path[0])
    inner = make() if len(path) == 1 else replaced(getattr(value, name), path[1:], make)
    return dataclasses.replace(value, **{name: inner})


RICH = {
    capture.name: capture
    for capture in captures.load_all()
    if capture.name
    in (
        "a3-plugin-running-yet-unregistered", "b10-one-mig-fault-unreported", "c2-ghost-resources-non-zero",
        "d6-cdi-spec-empty-or-stale", "e5-process-outside-kubernetes", "f3-mps-daemon-not-ready",
        "g2-device-plugin-and-dra-both", "n8-two-of-eight-in-mig-mode",
    )
}  # fmt: skip


def answers_of(capture, observations):
    """Return everything in a report but its texts."""
    reports = captures.judged(observations, Policy(), api_server=capture.api_server)
    return [
        (
            report.verdict,
            {
                name: (
                    *(getattr(item, key) for key in ("verdict", "admit_strict", "admit_lenient", "pick_risk", "free")),
                    {finding.cause for finding in item.findings},
                )
                for name, item in report.resources.items()
            },
            {finding.cause for finding in report.node_findings},
            {(pod.pod, pod.state) for pod in report.pods},
            {device.uuid: (device.state, device.holder) for device in report.devices},
        )
        for report in reports
    ]


@pytest.mark.parametrize("path", sorted(ROWS))
@hypothesis.given(st.sampled_from(sorted(RICH)), st.data())
@hypothesis.settings(max_examples=12, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_a_field_of_the_page_changes_no_answer(path, name, data):
    capture = RICH[name]
    strategy = values.of_shape(LEAVES[path])
    changed = [
        replaced(observation, path.split("."), lambda: data.draw(strategy)) for observation in capture.observations
    ]
    if path == "boot.id":  # one boot, under whatever name: two are a reboot
        changed = [dataclasses.replace(item, boot=changed[0].boot) for item in changed]
    assert answers_of(capture, changed) == answers_of(capture, capture.observations)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nvml.devices.product", Known("x")), ("kubelet.pods.containers.name", "x"), ("dra.slices.pool", "x"),
        ("plugins.version", "x"),
    ],
)  # fmt: skip
def test_the_mutation_reaches_what_it_names(path, value):
    """Without it the test above would pass for a path that it misses."""
    observation = RICH["g2-device-plugin-and-dra-both"].observations[0]
    assert replaced(observation, path.split("."), lambda: value) != observation
