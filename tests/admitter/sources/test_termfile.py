"""Each start is a new term, on disk before anybody hears of it."""

import pytest

from admitter.sources.termfile import TermFile
from muster import settings


def test_a_fresh_directory_had_no_term(tmp_path):
    assert TermFile(tmp_path / "state").read() == 0


def test_a_term_is_found_again(tmp_path):
    TermFile(tmp_path / "state").write(7)
    assert TermFile(tmp_path / "state").read() == 7
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["term"]


@pytest.mark.parametrize("content", [b"", b"seven", b"-1", b"\xff"])
def test_a_counter_that_cannot_be_read_is_not_guessed(tmp_path, content):
    (tmp_path / "term").write_bytes(content)
    with pytest.raises(settings.InvalidSettings, match="--state-dir"):
        TermFile(tmp_path).read()


def test_a_place_that_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(settings.InvalidSettings, match="--state-dir"):
        TermFile(tmp_path / "file").write(1)
