"""What must hold of the core whatever the planes say."""

import dataclasses
import datetime
import itertools
import random

import hypothesis
from hypothesis import strategies as st

from agent.core import holddown
from agent.core.judge import judge
from agent.model.history import History
from agent.model.planes import Observation
from agent.model.policy import Policy
from muster.model import codec, jsonform, kube
from muster.model.reading import Known, Unknown
from muster.model.report import ResourceReport, Verdict
from tests import builders, values
from tests.timelines import timelines

POLICY = Policy()
NUMBERS = ("admit_strict", "admit_lenient")
ERRORS = st.sampled_from(
    (
        "TIMEOUT",
        "NO_PERMISSION",
        "DRIVER_NOT_LOADED",
        "LIB_RM_VERSION_MISMATCH",
        "MAINTENANCE",
        "ConnectionRefused",
        "ResourceExhausted",
        "Unimplemented",
        "NotCollected",
        "UNKNOWN",
    )
)


NOTHING_BEFORE = History()
EMPTY = ResourceReport(verdict=Verdict.OK, admit_strict=Known(0), admit_lenient=Known(0))
"""What a name is worth that a sample alone does not know."""


def run(observations, history=NOTHING_BEFORE, *, api_server=True):
    """Return the report after each observation."""
    reports = []
    for observation in observations:
        history, report = judge(history, observation, POLICY, api_server=api_server)
        reports.append(report)
    return history, reports


def blinded(observation, plane, reason):
    """Return the observation with one required plane unreadable."""
    unread = Unknown(reason)
    if plane in ("allocatable", "listed"):
        field = {"allocatable": "allocatable", "listed": "pods"}[plane]
        kubelet = Known(dataclasses.replace(observation.kubelet.value, **{field: unread}))
        return dataclasses.replace(observation, kubelet=kubelet)
    return dataclasses.replace(observation, **{plane: unread})


def known(reading):
    return reading.value if isinstance(reading, Known) else 0


@hypothesis.given(values.of(Observation), st.booleans())
@hypothesis.settings(max_examples=150, suppress_health_check=list(hypothesis.HealthCheck))
def test_never_raises_on_a_valid_observation(observation, api_server):
    history, first = judge(History(), observation, POLICY, api_server=api_server)
    _, second = judge(history, observation, POLICY, api_server=api_server)
    assert {first.node, second.node} == {observation.node}
    assert jsonform.from_json(History, jsonform.to_json(history)) == history


PLANES = [field.name for field in dataclasses.fields(Observation) if field.name not in ("schema", "node", "taken_at")]


@hypothesis.given(timelines(), values.of(Observation), st.sets(st.sampled_from(PLANES), max_size=3))
@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
def test_never_raises_when_single_planes_are_strange(timeline, strange, planes):
    last = dataclasses.replace(timeline[-1], **{plane: getattr(strange, plane) for plane in planes})
    _, reports = run([*timeline[:-1], last, timeline[-1]])
    for resource in reports[-2].resources.values():
        assert 0 <= known(resource.admit_strict) <= known(resource.admit_lenient)


@hypothesis.given(timelines())
def test_admits_are_within_what_is_advertised_and_present(timeline):
    for report in run(timeline)[1]:
        for resource in report.resources.values():
            strict, lenient = known(resource.admit_strict), known(resource.admit_lenient)
            assert 0 <= strict <= lenient
            assert lenient <= min(known(resource.advertised), known(resource.present), known(resource.free))
            assert known(resource.free) <= known(resource.usable) <= known(resource.present)
            assert 0 <= known(resource.pick_risk) <= 1
            assert not (strict and known(resource.pick_risk))


@hypothesis.given(timelines(), st.randoms(use_true_random=False))
def test_order_does_not_matter(timeline, shuffled_by):
    assert run([shuffled(item, shuffled_by) for item in timeline]) == run(timeline)


def shuffled(observation, by: random.Random):
    def mixed(items):
        return tuple(by.sample(items, len(items)))

    kubelet, nvml = observation.kubelet.value, observation.nvml.value
    entries = tuple(dataclasses.replace(entry, ids=mixed(entry.ids)) for entry in kubelet.allocatable.value)
    kubelet = dataclasses.replace(kubelet, allocatable=Known(mixed(entries)), pods=Known(mixed(kubelet.pods.value)))
    return dataclasses.replace(
        observation,
        nvml=Known(dataclasses.replace(nvml, devices=mixed(nvml.devices))),
        kubelet=Known(kubelet),
        pods=Known(mixed(observation.pods.value)),
    )


REQUIRED = st.sampled_from(["nvml", "kubelet", "allocatable", "listed", "node_object", "pods"])


@hypothesis.given(timelines(), REQUIRED, ERRORS)
def test_a_failed_read_is_never_healthy_and_never_raises_capacity(timeline, plane, reason):
    history, reports = run(timeline)
    following = dataclasses.replace(
        blinded(timeline[-1], plane, reason), taken_at=timeline[-1].taken_at + datetime.timedelta(seconds=5)
    )
    _, (report,) = run([following], history)
    before = reports[-1].resources
    for name, resource in report.resources.items():
        assert resource.verdict is not Verdict.OK
        for number in NUMBERS:
            floor = known(getattr(before[name], number)) if name in before else 0
            assert known(getattr(resource, number)) <= floor
    if not report.resources:
        assert report.verdict is not Verdict.OK


OPTIONAL = ("dra", "pci", "kernel_log", "plugins", "cdi", "mps", "device_nodes", "desired_mig", "boot")


@hypothesis.given(timelines(), st.sets(st.sampled_from(OPTIONAL), min_size=1), ERRORS)
def test_an_optional_plane_that_fails_makes_nobody_blind_and_raises_nothing(timeline, failed, reason):
    history, _ = run(timeline)
    last = timeline[-1]
    times = [last.taken_at + datetime.timedelta(seconds=5 * step) for step in (1, 2, 3, 4)]
    # The same state for two more samples first: a rise that was on its way may still arrive.
    history, reports = run([dataclasses.replace(last, taken_at=at) for at in times[:2]], history)
    failing = dataclasses.replace(last, **{plane: Unknown(reason) for plane in failed})
    _, after = run([dataclasses.replace(failing, taken_at=at) for at in times[2:]], history)
    for report in after:
        for name, resource in report.resources.items():
            before = reports[-1].resources.get(name)
            assert resource.verdict is not Verdict.BLIND or (before is not None and before.verdict is Verdict.BLIND)
            for number in NUMBERS:
                assert known(getattr(resource, number)) <= (known(getattr(before, number)) if before is not None else 0)


@hypothesis.given(timelines())
def test_no_gpu_is_given_away_strictly_under_two_names(timeline):
    for report in run(timeline)[1]:
        for one, other in itertools.combinations(report.resources.values(), 2):
            if set(one.free_devices) & set(other.free_devices):
                assert not (known(one.admit_strict) and known(other.admit_strict))


CHECKS = ("processes", "recovery_action", "remap", "retired_pages_pending", "fabric", "mig")


@hypothesis.given(
    timelines(), st.sets(st.sampled_from(CHECKS), min_size=1), ERRORS.filter(lambda item: item != "NotCollected")
)
def test_a_failed_check_never_raises_capacity_however_long_it_lasts(timeline, checks, reason):
    history, reports = run(timeline)
    last = timeline[-1]
    unread = {check: Unknown(reason) for check in checks}
    gpus = [dataclasses.replace(gpu, **({} if gpu.error else unread)) for gpu in last.nvml.value.devices]
    failing = builders.with_gpus(last, *gpus)
    later = [last.taken_at + datetime.timedelta(seconds=5 * step) for step in (1, 2, 3, 4)]
    # The same state for two more samples first: a rise that was on its way may still arrive.
    history, reports = run([dataclasses.replace(last, taken_at=at) for at in later[:2]], history)
    _, after = run([dataclasses.replace(failing, taken_at=at) for at in later[2:]], history)
    for report in after:
        for name, resource in report.resources.items():
            for number in NUMBERS:
                assert known(getattr(resource, number)) <= known(getattr(reports[-1].resources[name], number))


@hypothesis.given(timelines(), st.integers(0, 3))
def test_a_restart_with_its_evidence_changes_nothing(timeline, at):
    history, reports = History(), []
    for index, observation in enumerate(timeline):
        if index == at:
            history = jsonform.from_json(History, jsonform.to_json(history))
        history, report = judge(history, observation, POLICY, api_server=True)
        reports.append(report)
    assert reports == run(timeline)[1]


@hypothesis.given(timelines())
def test_a_rise_needs_two_clean_samples(timeline):
    before = {}
    for index, report in enumerate(run(timeline)[1]):
        _, (alone,) = run([timeline[index]])
        for name, resource in report.resources.items():
            for number in NUMBERS if index else ():
                seen_before = known(getattr(run([timeline[index - 1]])[1][0].resources.get(name, resource), number))
                ceiling = max(before.get((name, number), 0), seen_before)
                assert known(getattr(resource, number)) <= ceiling
            for number in NUMBERS:
                assert known(getattr(resource, number)) <= known(getattr(alone.resources.get(name, EMPTY), number))
        before = {
            (name, number): known(getattr(resource, number))
            for name, resource in report.resources.items()
            for number in NUMBERS
        }


@hypothesis.given(timelines())
def test_nothing_latches(timeline):
    start = (timeline[-1].taken_at - builders.NOW).total_seconds()
    # What nobody can read clears nothing: the DRA plane is read, and empty.
    healthy = [builders.a_node(at=start + 60 * step, dra=Known(kube.Dra())) for step in (1, 2, 3)]
    *_, report = run([*timeline, *healthy])[1]
    assert report.verdict is Verdict.OK
    resource = report.resources[builders.WHOLE]
    assert (resource.admit_strict, resource.admit_lenient) == (Known(8), Known(8))
    assert (resource.findings, report.node_findings, report.pods) == ((), (), ())


@hypothesis.given(timelines(most=2))
def test_texts_and_lists_are_bounded(timeline):
    report = run(timeline)[1][-1]
    findings = [*report.node_findings, *(item for each in report.resources.values() for item in each.findings)]
    for finding in findings:
        assert len(finding.detail) <= holddown.MAX_DETAIL
        assert "\n" not in finding.detail
        assert len(finding.devices) <= holddown.MAX_NAMES
        assert list(finding.devices) == sorted(finding.devices)
        assert finding.rule
        assert finding.clears_when
        assert finding.remedy
    assert list(report.devices) == sorted(report.devices, key=lambda device: device.uuid)


def test_mapping_order_of_a_node_does_not_matter():
    node = builders.a_node().node_object.value
    other = dataclasses.replace(node, capacity=codec.freeze(dict(reversed(node.capacity.items()))))
    changed = builders.a_node(node_object=Known(other))
    assert run([changed]) == run([builders.a_node()])
