"""Off, observe and enforce, tried on every rule: with the captures that hit it, and by hand where none does."""

import itertools

import pytest

from agent.core import holddown
from agent.core.rules import table
from agent.model import planes
from agent.model.policy import Mode, Policy
from hack.matrix import captures
from muster.model import codec
from muster.model.reading import Known
from muster.model.report import verdict_of
from tests import builders
from tests.ruleshown import a_timeline, findings_of, rule_of, timelines

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""


def numbers(reports):
    """Return what every report of a timeline says in numbers, which verdict it has, and what it makes of each device."""
    return [
        (
            report.verdict,
            {
                name: (resource.verdict, resource.admit_strict, resource.admit_lenient, resource.pick_risk)
                for name, resource in report.resources.items()
            },
            [(device.uuid, device.state, device.reason) for device in report.devices],
        )
        for report in reports
    ]


def replayed(capture, rule, mode):
    return captures.replay(capture, Policy(modes=codec.freeze({rule: mode})))


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_every_rule_is_hit_by_some_timeline(rule):
    assert rule in timelines()


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_a_rule_that_is_off_says_nothing(rule):
    for capture in timelines()[rule]:
        reports = replayed(capture, rule, Mode.OFF)
        assert [item for report in reports for item in findings_of(report) if rule_of(item) == rule] == []


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_a_rule_in_observe_is_told_and_has_no_effect(rule):
    """Numbers and verdicts are those of the rule switched off; only its findings are there besides."""
    for capture in timelines()[rule]:
        observed = replayed(capture, rule, Mode.OBSERVE)
        assert numbers(observed) == numbers(replayed(capture, rule, Mode.OFF)), capture.name
        own = [item for report in observed for item in findings_of(report) if rule_of(item) == rule]
        assert own
        assert all(item.observed and item.detail.startswith(holddown.OBSERVED) for item in own)
        others = [item for report in observed for item in findings_of(report) if rule_of(item) != rule]
        assert not any(item.observed for item in others)


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_a_rule_that_is_named_in_enforce_is_as_if_it_were_not_named(rule):
    for capture in timelines()[rule]:
        reports = replayed(capture, rule, Mode.ENFORCE)
        assert reports == captures.replay(capture, Policy())
        assert all(not item.observed for report in reports for item in findings_of(report))


def test_rules_are_counted_by_mode():
    assert table.count_by_mode(Policy(modes=codec.freeze({"B2": Mode.OFF, "E5": Mode.OFF, "G1": Mode.OBSERVE}))) == {
        "off": 2,
        "observe": 1,
        "enforce": len(table.ROWS) - 3,
    }


def test_with_all_rules_in_observe_every_verdict_is_ok_and_the_findings_are_all_there():
    everything = Policy(modes=codec.freeze(dict.fromkeys(table.ROWS, Mode.OBSERVE)))
    for capture in captures.load_all():
        for report in captures.replay(capture, everything):
            assert verdict_of(findings_of(report)) is report.verdict
            assert report.verdict.value == "OK"


SICK = {
    "B5": {"recovery_action": Known(planes.RecoveryAction.RESET)},
    "B6": {"retired_pages_pending": Known(True)},
    "row-remap-failed": {"remap": Known(planes.Remap(failed=Known(True)))},
    "sram-threshold": {"ecc": Known(planes.Ecc(sram_threshold_exceeded=Known(True)))},
    "gpu-drained": {"drain": Known(True)},
}


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
@pytest.mark.parametrize(("spared", "counts"), list(itertools.permutations(SICK, 2)))
def test_a_rule_without_effect_hides_no_other_fault_of_the_same_gpu(spared, counts, mode):
    gpu = builders.a_gpu(3, **SICK[spared], **SICK[counts])
    timeline = a_timeline("two", builders.with_gpus(builders.a_node(), gpu))
    last = captures.replay(timeline, Policy(modes=codec.freeze({spared: mode})))[-1]
    resource = last.resources[builders.WHOLE]
    assert (resource.admit_strict, resource.admit_lenient) == (Known(0), Known(7))
    assert counts in {rule_of(item) for item in resource.findings}
