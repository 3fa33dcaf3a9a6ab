"""How long before a disagreement counts, and that nothing latches."""

import dataclasses

import pytest

from agent.core import holddown
from agent.core.judge import judge
from agent.core.rules import devices, table
from agent.model.finding import Suspicion
from agent.model.history import MAX_EVIDENCE, Evidence, History
from agent.model.policy import DURATIONS, Policy
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE

LOST = builders.with_gpus(builders.a_node(), builders.a_lost_gpu(3))


def hold(history, *suspicions, at=0, policy=Policy(), is_clean=True, maintenance_ends=None):  # noqa: B008 -- frozen
    evidence, judged = holddown.hold(
        history, suspicions, builders.after(at), policy, is_clean=is_clean, maintenance_ends=maintenance_ends
    )
    return dataclasses.replace(history, evidence=evidence), [item.finding for item in judged]


def lost(**changes):
    return Suspicion(**{"rule": devices.LOST, "resource": WHOLE, "subject": "GPU-3", "detail": "lost", **changes})


def verdicts(*instants, policy=Policy()):  # noqa: B008 -- frozen
    history, result = History(), []
    for at in instants:
        history, (finding,) = hold(history, lost(), at=at, policy=policy)
        result.append((finding.verdict, finding.deadline))
    return result


TRANSIENT = (Verdict.TRANSIENT, builders.after(30))


def test_three_samples_over_30_seconds():
    assert verdicts(0, 15, 30) == [TRANSIENT, TRANSIENT, (Verdict.OVER, None)]


def test_time_alone_is_not_enough():
    assert verdicts(0, 60, 61) == [TRANSIENT, TRANSIENT, (Verdict.OVER, None)]


def test_samples_alone_are_not_enough():
    assert verdicts(0, 1, 2, 29) == [TRANSIENT] * 4


def test_a_scaled_policy_waits_less():
    assert verdicts(0, 1, 3, policy=Policy(time_scale=10))[-1] == (Verdict.OVER, None)


def test_a_clock_that_jumps_back_neither_raises_nor_completes():
    assert [verdict for verdict, _ in verdicts(0, -3600, 5)] == [Verdict.TRANSIENT, Verdict.TRANSIENT, Verdict.OVER]


def test_evidence_that_a_clean_sample_does_not_show_is_gone():
    history, _ = hold(History(), lost(), at=0)
    history, _ = hold(history, at=15)
    assert history.evidence == ()


def test_evidence_waits_while_a_plane_is_unreadable_and_counts_for_nothing():
    history, _ = hold(History(), lost(), at=0)
    history, findings = hold(history, at=15, is_clean=False)
    assert findings == []
    assert history.evidence == (Evidence(key="B2|nvidia.com/gpu|GPU-3", since=builders.NOW, samples=1),)


def test_an_instant_in_the_planes_replaces_the_count_from_the_first_sample():
    _, (finding,) = hold(History(), lost(until=builders.after(7)), at=0)
    assert (finding.verdict, finding.deadline) == (Verdict.TRANSIENT, builders.after(7))
    _, (finding,) = hold(History(), lost(until=builders.after(7)), at=7)
    assert (finding.verdict, finding.deadline) == (Verdict.OVER, None)


def test_a_believed_marker_softens_an_alarm_until_its_deadline():
    _, (finding,) = hold(History(), lost(until=builders.after(-1)), maintenance_ends=builders.after(900))
    assert (finding.verdict, finding.deadline) == (Verdict.TRANSIENT, builders.after(900))


def test_a_marker_does_not_soften_blindness():
    blind = Suspicion(rule=devices.UNREADABLE, resource=WHOLE, detail="unreadable")
    _, (finding,) = hold(History(), blind, maintenance_ends=builders.after(900))
    assert finding.verdict is Verdict.BLIND


def test_evidence_is_bounded():
    many = [lost(subject=f"GPU-{number}") for number in range(MAX_EVIDENCE + 10)]
    history, findings = hold(History(), *many)
    assert (len(history.evidence), len(findings)) == (MAX_EVIDENCE, MAX_EVIDENCE + 10)


def test_since_survives_a_gap_in_sight():
    history, report = judge(History(), LOST, Policy(), api_server=True)
    blind = dataclasses.replace(LOST, nvml=Unknown("TIMEOUT"), taken_at=builders.after(15))
    history, _ = judge(history, blind, Policy(), api_server=True)
    for at in (30, 45):
        history, report = judge(
            history, dataclasses.replace(LOST, taken_at=builders.after(at)), Policy(), api_server=True
        )
    assert report.resources[WHOLE].findings[0].since == builders.NOW
    assert report.resources[WHOLE].verdict is Verdict.OVER


@pytest.mark.parametrize("rule", table.ROWS.values(), ids=lambda rule: rule.id)
def test_every_rule_is_a_complete_row(rule):
    assert rule.cause.isalnum()
    assert rule.cause[0].isupper()
    assert rule.clears_when
    assert rule.wait in ("", *DURATIONS)


def test_every_duration_has_a_source():
    assert all(duration.source.startswith(("faults.md ", "agents.md ")) for duration in DURATIONS.values())
    assert all(duration.seconds > 0 and duration.samples > 0 for duration in DURATIONS.values())


def test_a_note_appears_only_once_its_evidence_is_complete():
    label = builders.a_node_object({WHOLE: 8}, labels={"nvidia.com/gpu.count": "4"})
    history, causes = History(), []
    for at in (0, 100, 200):
        observation = builders.a_node(at=at, node_object=label)
        history, report = judge(history, observation, Policy(), api_server=True)
        causes.append([finding.cause for finding in report.node_findings])
        assert report.verdict is Verdict.OK
        assert report.resources[WHOLE].admit_strict == Known(8)
    assert causes == [[], [], ["LabelsOutOfStep"]]
