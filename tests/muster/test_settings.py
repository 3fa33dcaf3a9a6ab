"""Settings: all problems at once, each with its flag and variable."""

import dataclasses
import enum
import pathlib

import click
import pytest
from click.testing import CliRunner

from muster import settings


class Mode(enum.StrEnum):
    FAST = "fast"
    SLOW = "slow"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    node: str = settings.setting(text="Name of the node.")
    poll_seconds: float = settings.setting(5.0, text="Poll.", low=0.1, high=60)
    retries: int = settings.setting(3, text="Retries.", low=0)
    is_fake: bool = settings.setting(False, text="Fake.")
    roots: tuple[str, ...] = settings.setting(("/a",), text="Roots.")
    file: pathlib.Path | None = settings.setting(None, text="File.")
    mode: Mode = settings.setting(Mode.FAST, text="Mode.")


def test_flags_win_over_environment_over_defaults():
    loaded = settings.load(
        Example, "MUSTER_X", {"node": "n1", "retries": "7"},
        {"MUSTER_X_RETRIES": "9", "MUSTER_X_IS_FAKE": "Yes", "MUSTER_X_FILE": "/f", "MUSTER_X_MODE": "slow",
         "MUSTER_X_ROOTS": "/b, /c"},
    )  # fmt: skip
    assert loaded == Example(
        node="n1", retries=7, is_fake=True, file=pathlib.Path("/f"), mode=Mode.SLOW, roots=("/b", "/c")
    )


def test_all_problems_come_at_once_and_name_where_they_came_from():
    with pytest.raises(settings.InvalidSettings) as caught:
        settings.load(
            Example, "MUSTER_X", {"poll_seconds": "nan"},
            {"MUSTER_X_RETRIES": "-1", "MUSTER_X_IS_FAKE": "maybe", "MUSTER_X_MODE": "warp"},
        )  # fmt: skip
    assert caught.value.problems == (
        "--node (MUSTER_X_NODE): is required",
        "--poll-seconds: 'nan' is not finite",
        "--retries (MUSTER_X_RETRIES): -1 is below 0",
        "--is-fake (MUSTER_X_IS_FAKE): 'maybe' is neither true nor false",
        "--mode (MUSTER_X_MODE): 'warp' is none of fast, slow",
    )


@pytest.mark.parametrize(("text", "problem"), [("61", "61.0 is above 60"), ("x", "'x' is not a number")])
def test_bounds_and_numbers(text, problem):
    with pytest.raises(settings.InvalidSettings, match=problem):
        settings.load(Example, "P", {"node": "n", "poll_seconds": text}, {})


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(settings.InvalidSettings, match=r"--file: '' is not a path"):
        settings.load(Example, "P", {"node": "n", "file": ""}, {})


def test_checks_look_at_the_whole():
    with pytest.raises(settings.InvalidSettings, match="fast needs retries"):
        settings.load(
            Example, "P", {"node": "n", "retries": "0"}, {},
            checks=[lambda loaded: "fast needs retries" if not loaded.retries else "", lambda loaded: ""],
        )  # fmt: skip


def test_every_field_is_an_option_with_its_variable_and_default_in_the_help():
    @click.command()
    @settings.options(Example, "MUSTER_X")
    def command(**flags):
        click.echo(flags["node"])

    text = CliRunner().invoke(command, ["--help"]).output
    assert all(settings.flag_of(field.name) in text for field in dataclasses.fields(Example))
    assert "MUSTER_X_POLL_SECONDS" in text
    assert CliRunner().invoke(command, ["--node", "n7"]).output == "n7\n"
