"""Damage of a power loss shows in the fingerprint; nothing outside the folders is read, and nothing without end."""

import os

import pytest

from agent.warmer import fingerprint


@pytest.fixture
def folders(tmp_path):
    """Return two layers: 300 files, a large one, links that lead out, a pipe."""
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for number in range(300):
        (lower / f"d{number % 7}").mkdir(parents=True, exist_ok=True)
        (lower / f"d{number % 7}" / f"f{number}").write_bytes(b"%d" % number)
    (upper / "deep" / "er").mkdir(parents=True)
    (upper / "large").write_bytes(b"x" * (3 * fingerprint.END_BYTES))
    (upper / "out").symlink_to("/proc/1/mem")
    (upper / "up").symlink_to(tmp_path)
    (upper / os.fsdecode(b"\xff\xfe")).write_bytes(b"no text")
    os.mkfifo(upper / "pipe")
    return [lower, upper]


def lose(folders):
    (folders[0] / "d3" / "f3").unlink()


def empty(folders):
    os.truncate(folders[0] / "d0" / "f7", 0)


def zero_the_beginning(folders):
    with (folders[1] / "large").open("r+b") as file:
        file.write(bytes(10))


def zero_the_end(folders):
    with (folders[1] / "large").open("r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(bytes(10))


@pytest.mark.parametrize("damage", [lose, empty, zero_the_beginning, zero_the_end])
def test_damage_shows(folders, damage, monkeypatch):
    monkeypatch.setattr(fingerprint, "SAMPLES", 1000)
    before = fingerprint.of(folders)
    assert before.startswith("302 files ")
    assert fingerprint.of(folders) == before
    damage(folders)
    assert fingerprint.of(folders) != before


def test_what_is_read_is_bounded_and_always_the_same(folders, monkeypatch):
    read, real = [], fingerprint._ends
    monkeypatch.setattr(fingerprint, "_ends", lambda path: read.append(path) or real(path))
    before = fingerprint.of(folders)
    assert len(read) == fingerprint.SAMPLES
    assert fingerprint.of(folders) == before
    assert read[: fingerprint.SAMPLES] == read[fingerprint.SAMPLES :]
    monkeypatch.setattr(fingerprint, "MAX_FILES", 10)
    assert fingerprint.of(folders).startswith("10 files ")


def test_what_cannot_be_read_is_not_known(tmp_path):
    assert fingerprint.of([tmp_path / "gone"]) == ""
    assert fingerprint.of([]) == ""
    assert fingerprint.of([tmp_path]) == "", "an image has files"


def test_what_may_not_be_read_is_named_all_the_same(folders, monkeypatch):
    real = os.open

    def refusing(path, *arguments):
        if os.fsencode(path).endswith(b"large"):
            raise PermissionError(13, "not yours")
        return real(path, *arguments)

    monkeypatch.setattr(fingerprint, "SAMPLES", 1000)
    monkeypatch.setattr(os, "open", refusing)
    assert fingerprint.of(folders).startswith("302 files ")
