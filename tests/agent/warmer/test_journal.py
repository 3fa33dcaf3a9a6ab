"""What was pulled shortly before a boot that nobody announced is suspected, and a file of nonsense suspects nothing."""

import datetime
import json

import pytest

from agent.warmer.journal import Journal

NOW = datetime.datetime(2026, 12, 2, 12, tzinfo=datetime.UTC)
DIGEST = "sha256:" + "1" * 64


@pytest.mark.parametrize(("boot", "suspects"), [("boot 1", {}), ("boot 2", {DIGEST: "as it was"})])
def test_a_boot_that_nobody_announced_makes_the_last_pulls_suspects(tmp_path, boot, suspects):
    first = Journal(tmp_path / "j.json", "boot 1")
    first.pulled("sha256:old", NOW - datetime.timedelta(hours=1), "old")
    first.pulled(DIGEST, NOW, "as it was")
    first._file.close()  # As far as it got when it was killed.
    assert Journal(tmp_path / "j.json", boot).suspects == suspects


def test_an_end_that_was_asked_for_leaves_no_suspects(tmp_path):
    path = tmp_path / "j.json"
    first = Journal(path, "boot 1")
    first.pulled(DIGEST, NOW, "as it was")
    first.close()
    assert Journal(path, "boot 2").suspects == {}


@pytest.mark.parametrize(
    "entry",
    [
        ["2026-12-02T12:00:00+00:00", 7],
        ["2026-12-02T12:00:00+00:00", None],
        ["2026-12-02T12:00:00", "x"],
        ["soon", "x"],
        [7, 7],
        [],
        None,
    ],
    ids=repr,
)
def test_an_entry_of_nonsense_is_none_and_leaves_the_others(tmp_path, entry):
    path = tmp_path / "j.json"
    images = {"sha256:bad": entry, DIGEST: [NOW.isoformat(), "as it was"]}
    path.write_text(json.dumps({"boot_id": "boot 1", "clean": False, "images": images}))
    assert Journal(path, "boot 2").suspects == {DIGEST: "as it was"}


def suspecting(tmp_path, files="as it was"):
    first = Journal(tmp_path / "j.json", "boot 1")
    first.pulled(DIGEST, NOW, files)
    first._file.close()
    return Journal(tmp_path / "j.json", "boot 2")


@pytest.mark.parametrize(
    ("before", "now", "is_trusted"), [("as it was", "as it was", True), ("as it was", "", False), ("", "", False)]
)
def test_it_is_trusted_again_only_if_its_files_were_read_then_and_now(tmp_path, before, now, is_trusted):
    journal = suspecting(tmp_path, before)
    assert journal.judged(DIGEST, now) is is_trusted
    assert (DIGEST not in journal.suspects) is is_trusted


@pytest.mark.parametrize(
    ("before", "pulled", "is_trusted"),
    [("as it was", "as it was", True), ("as it was", "damaged", False), ("", "new", True)],
)
def test_a_pull_that_found_the_damage_in_place_has_mended_nothing(tmp_path, before, pulled, is_trusted):
    journal = suspecting(tmp_path, before)
    journal.pulled(DIGEST, NOW, pulled)
    assert (DIGEST not in journal.suspects) is is_trusted
    journal._file.close()
    said = json.loads((tmp_path / "j.json").read_text())
    assert said["images"][DIGEST][1] == (pulled if is_trusted else before)
