"""The matrix says what replays show, and less privilege admits more only where the fault leaves no trace."""

import dataclasses
import functools
import json

import pytest

from agent.model.policy import Policy
from agent.model.privilege import Privilege
from hack.matrix import __main__ as command
from hack.matrix import answers, captures, page, profiles, verdicts
from hack.matrix.verdicts import Sight
from muster.model.reading import Known
from tests.ruleshown import by_hand

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""

NO_CHECKPOINT = next(profile for profile in profiles.PROFILES if profile.name == "no-checkpoint")


@functools.cache
def outcomes():
    return command.outcomes()


def outcome(capture, profile):
    (found,) = [item for item in outcomes() if (item.capture, item.profile) == (capture, profile)]
    return found


def test_less_privilege_admits_more_only_where_the_fault_is_invisible():
    assert command.unexcused(outcomes()) == []


def test_the_nodes_that_no_capture_shows_admit_no_more_either():
    found = tuple(item for each in by_hand() for item in verdicts.outcomes(each, profiles.PROFILES, Policy()))
    assert {item.profile for item in found} == {profile.name for profile in profiles.PROFILES}
    assert command.unexcused(found) == []


def test_with_full_privilege_every_capture_is_right_and_nothing_is_unseen():
    full = [item for item in outcomes() if item.profile == "full"]
    assert [item.capture for item in full if not item.is_right or item.above] == []
    assert {item.sight for item in full} == {Sight.SEEN, Sight.QUIET}


@pytest.mark.parametrize(
    ("capture", "profile", "sight", "words"),
    [
        ("b2-gpu-lost", "least", Sight.SEEN, ""),
        ("e5-process-outside-kubernetes", "no-host-pid", Sight.UNSEEN, ""),
        ("a3-plugin-running-yet-unregistered", "no-host-pid", Sight.OTHER, "PluginDownAfterGrace"),
        ("n8-two-of-eight-in-mig-mode", "injection", Sight.BLIND, ""),
        ("n7-gpu-held-no-process", "least", Sight.QUIET, ""),
        ("b9-unhealthy-but-held-twin", "no-api-server", Sight.FALSE_ALARM, "UnhealthyButHeld"),
    ],
)
def test_what_a_profile_sees(capture, profile, sight, words):
    found = outcome(capture, profile)
    assert (found.sight, found.words) == (sight, words)


def test_a_higher_number_names_what_cannot_be_seen():
    because = {
        text for above in outcome("e5-process-outside-kubernetes", "no-host-pid").above for text in above.because
    }
    assert because == {"E5 needs host-pid"}


def test_a_higher_number_without_a_reason_is_found():
    """The same capture, a checkpoint less, and one unit more out of nowhere."""
    capture = captures.load(captures.FOLDER / f"b2-gpu-lost{captures.EXPECTED}")
    full = captures.replay(capture, Policy())
    last = full[-1]
    more = {name: dataclasses.replace(item, admit_strict=Known(9)) for name, item in last.resources.items()}
    own = (*full[:-1], dataclasses.replace(last, resources=more))
    found = verdicts.outcome(capture, NO_CHECKPOINT, full, own)
    assert [above.here for above in found.above] == [9]
    assert len(command.unexcused((found,))) == 1


def test_a_later_line_is_later():
    capture = captures.load(captures.FOLDER / f"b2-gpu-lost-still-promised{captures.EXPECTED}")
    full = captures.replay(capture, Policy())
    first = next(line for line, report in enumerate(full) if "GpuLostStillPromised" in causes_of(report))
    assert first > 0
    own = (*full[:first], dataclasses.replace(full[0], taken_at=full[first].taken_at), *full[first + 1 :])
    assert verdicts.outcome(capture, NO_CHECKPOINT, full, own).sight is Sight.LATER


def causes_of(report):
    return {item.cause for resource in report.resources.values() for item in resource.findings}


def test_every_entry_has_a_row_and_the_worst_of_its_captures_is_shown():
    text = page.page(outcomes())
    rows = [line.split(" | ") for line in text.split("## Faults\n")[1].split("\n## ")[0].splitlines() if "| " in line]
    entries = [row[0].removeprefix("| ") for row in rows[1:]]
    assert entries == sorted({item.entry for item in outcomes() if not item.is_twin}, key=page.order)
    e5 = next(row for row in rows if row[0] == "| E5")
    assert e5[1:3] == ["seen", "unseen **+**"]


def test_the_figures_add_up():
    figures = page.figures(outcomes())
    count = len({item.capture for item in outcomes()})
    for groups in figures.values():
        assert groups["all"]["total"] == count == sum(n["total"] for group, n in groups.items() if group != "all")
        assert groups["all"]["right"] <= figures["full"]["all"]["right"]


def test_the_command_prints_its_figures_and_holds_the_page_against_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "outcomes", outcomes)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    assert command.main([]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["captures_right"]["full"]["all"][0] == last["captures_right"]["full"]["all"][1]
    assert command.main(["--check"]) == 0
    (tmp_path / "page.md").write_text("old")
    assert command.main(["--check"]) == 1
    assert "run `make matrix`" in capsys.readouterr().err


def test_a_difference_from_an_expected_file_is_said_in_words():
    capture = captures.load(captures.FOLDER / f"b2-gpu-lost{captures.EXPECTED}")
    report = {"verdict": "OK", "node_findings": [], "resources": {}, "devices": [], "pods": [], "unverified": []}
    wanted = {"verdict": "OVER", "resources": {"nvidia.com/gpu": {}}, "causes": ["X"], "unverified_has": ["pci"]}
    assert len(list(answers.differences(report, wanted))) == 4
    assert capture.entry == "B2"


def test_every_privilege_but_none_is_lacked_by_some_profile_or_is_what_the_agent_is_for():
    lacked = {item for profile in profiles.PROFILES for item in profile.lacks}
    assert set(Privilege) - lacked == {Privilege.NONE, Privilege.GPU_DEVICES, Privilege.POD_RESOURCES}
