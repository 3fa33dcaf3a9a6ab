"""A new wire baseline without a decision page does not pass."""

import hashlib

from hack import check_baseline


def test_the_baseline_changes_only_with_a_page_that_names_it(tmp_path):
    image = tmp_path / "proto" / "baseline.binpb"
    image.parent.mkdir()
    image.write_bytes(b"one")
    page = tmp_path / "docs" / "decisions" / "0001-wire-baseline.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"sha256 {hashlib.sha256(b'one').hexdigest()}")
    assert check_baseline.problem(tmp_path) == ""
    image.write_bytes(b"two")
    assert hashlib.sha256(b"two").hexdigest() in check_baseline.problem(tmp_path)
