"""What the benchmarks take as a number."""

import argparse

import pytest

from hack.bench import running


def parsed(text, least, kind):
    parser = argparse.ArgumentParser()
    parser.add_argument("--value", type=running.at_least(least, kind))
    return parser.parse_args(["--value", text]).value


@pytest.mark.parametrize(("text", "least", "kind", "value"), [("4", 4, int, 4), ("0", 0, float, 0.0)])
def test_a_number_that_is_large_enough(text, least, kind, value):
    assert parsed(text, least, kind) == value


@pytest.mark.parametrize(("text", "kind"), [("3", int), ("4.5", int), ("nan", float), ("inf", float), ("many", float)])
def test_anything_else_is_bad_input(text, kind, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(text, 4, kind)
    assert ended.value.code == 2
    assert "--value" in capsys.readouterr().err
