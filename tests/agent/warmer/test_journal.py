"""What was pulled shortly before a boot that nobody announced is suspected, and a file of nonsense suspects nothing."""

import datetime
import json

import pytest

from agent.warmer.journal import Journal

NOW = datetime.datetime(2026, 12, 2, 12, tzinfo=datetime.UTC)
DIGEST = "sha256:" + "1" * 64


@pytest.mark.parametrize(("boot", "suspects"), [("boot 1", {}), ("boot 2", {DIGEST: 7})])
def test_a_boot_that_nobody_announced_makes_the_last_pulls_suspects(tmp_path, boot, suspects):
    first = Journal(tmp_path / "j.json", "boot 1")
    first.pulled("sha256:old", NOW - datetime.timedelta(hours=1), 5)
    first.pulled(DIGEST, NOW, 7)
    first._file.close()  # As far as it got when it was killed.
    assert Journal(tmp_path / "j.json", boot).suspects == suspects


def test_an_end_that_was_asked_for_leaves_no_suspects(tmp_path):
    path = tmp_path / "j.json"
    first = Journal(path, "boot 1")
    first.pulled(DIGEST, NOW, 7)
    first.close()
    assert Journal(path, "boot 2").suspects == {}


@pytest.mark.parametrize(
    "entry",
    [
        ["2026-12-02T12:00:00+00:00", float("inf")],
        ["2026-12-02T12:00:00+00:00", float("nan")],
        ["2026-12-02T12:00:00", 7],
        ["soon", 7],
        [7, 7],
        [],
        None,
    ],
    ids=repr,
)
def test_an_entry_of_nonsense_is_none_and_leaves_the_others(tmp_path, entry):
    path = tmp_path / "j.json"
    images = {"sha256:bad": entry, DIGEST: [NOW.isoformat(), 7]}
    path.write_text(json.dumps({"boot_id": "boot 1", "clean": False, "images": images}))
    assert Journal(path, "boot 2").suspects == {DIGEST: 7}
