"""One key's bug is counted and logged, once, and ends nothing else."""

import asyncio

import pytest

from admitter import confined as confining
from admitter.confined import Confined


def fail(words):
    def act():
        raise ValueError(words)

    return act


def test_what_fails_is_named_counted_and_logged_once(capsys):
    confined = Confined()
    assert [confined.attempt("gang", "team-a/x", fail("why")) for _ in range(3)] == ["ValueError"] * 3
    assert confined.attempt("gang", "team-a/x", fail("another")) == "ValueError"
    assert confined.failures["gang"] == 4
    assert capsys.readouterr().out.count("this one failed") == 2


def test_what_went_well_in_between_is_news_again(capsys):
    confined = Confined()
    confined.attempt("slice", "n1", fail("why"))
    assert confined.attempt("slice", "n1", dict) == ""
    confined.attempt("slice", "n1", fail("why"))
    assert capsys.readouterr().out.count("this one failed") == 2
    assert confined.failures["slice"] == 2


def test_who_makes_up_a_key_for_each_failure_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(confining, "_REMEMBERED", 10)
    confined = Confined()
    for number in range(50):
        confined.attempt("gang", str(number), fail("why"))
    assert len(confined._logged) == 10


def test_a_loop_that_is_cancelled_ends():
    def act():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        Confined().attempt("gang", "x", act)
