"""The program `muster-agent`: run, read, warm, capture, replay, release.

Each command imports what it needs when it is called: the reader must stay small, and so must not carry the agent's stack.
Exit status: 0 fine, 1 something is wrong with the node or the program, 2 bad input, 3 no agent answered.
"""

import math
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeVar

import click

from agent import config
from agent.reader import config as reader_config
from agent.warmer import config as warmer_config
from muster import settings

T = TypeVar("T")

BAD_INPUT, NO_ANSWER = 2, 3


@click.group(context_settings={"max_content_width": 120})
def main() -> None:
    """Roll-call for the GPUs of one node."""


@main.command()
@settings.options(config.AgentConfig, config.PREFIX)
def run(**flags: str | None) -> None:
    """Watch this node and tell the admitters."""
    made = _checked(lambda: config.from_flags(flags, os.environ))
    from agent import logs  # noqa: PLC0415 -- see the module's docstring
    from agent import run as agent_run  # noqa: PLC0415

    logs.configure(made.log_level)
    sys.exit(_checked(lambda: agent_run.run(made)))


@main.command()
@settings.options(reader_config.ReaderConfig, reader_config.PREFIX)
def read(**flags: str | None) -> None:
    """Be the reader: the only one that opens the driver."""
    made = _checked(lambda: settings.load(reader_config.ReaderConfig, reader_config.PREFIX, flags, os.environ))
    from agent.reader import command  # noqa: PLC0415

    try:
        sys.exit(command.run(made))
    except OSError as error:
        click.echo(f"--socket: {made.socket}: {error.strerror or error}", err=True)
        sys.exit(BAD_INPUT)


@main.command()
@settings.options(warmer_config.WarmerConfig, warmer_config.PREFIX)
def warm(**flags: str | None) -> None:
    """Be the warmer: the only one that opens containerd's socket."""
    made = _checked(lambda: warmer_config.from_flags(flags, os.environ))
    from agent import logs  # noqa: PLC0415 -- see the module's docstring
    from agent.warmer import command  # noqa: PLC0415

    logs.configure("info")
    sys.exit(_checked(lambda: command.run(made)))


_CONTROL_SOCKET = click.option(
    "--control-socket",
    type=click.Path(path_type=pathlib.Path),
    envvar=settings.variable_of(config.PREFIX, "control_socket"),
    default=pathlib.Path("/run/muster/agent.sock"),
    show_default=True,
    help="Unix socket of the running agent.",
)


@main.command()
@_CONTROL_SOCKET
@click.option("--follow", "lines", type=click.IntRange(1, 100_000), default=1, help="Write so many lines, one a cycle.")
@click.option("--redact", is_flag=True, help="Replace node, namespace and pod names, UIDs and device ids.")
@click.option("--output", type=click.File("w"), default="-", help="File to write; standard output by default.")
def capture(control_socket: pathlib.Path, lines: int, redact: bool, output: TextIO) -> None:  # noqa: FBT001
    """Write what every plane says, as JSON Lines: the bug report and the test fixture."""
    from agent.publish import capture as captures  # noqa: PLC0415

    writer = captures.Writer(output, redacted=redact)

    def write(line: dict[str, Any]) -> None:
        if "error" in line:
            raise _Stopped(f"not captured: {line['error']}", 1)
        try:
            writer.write_json(line)
        except click.FileError as error:
            raise _Stopped(f"--output: {error.ui_filename}: {error.message}", BAD_INPUT) from error
        except OSError as error:
            raise _Stopped(f"--output: {output.name}: {error.strerror or error}", 1) from error

    _answered(control_socket, {"command": "capture", "lines": lines}, write)


@main.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON (contracts/verdict.schema.json).")
def replay(file: pathlib.Path, as_json: bool) -> None:  # noqa: FBT001
    """Judge a capture and print the verdict after its last line."""
    from agent import replay as replays  # noqa: PLC0415

    sys.exit(replays.replay(file, as_json))


@main.command()
@_CONTROL_SOCKET
@click.option("--minutes", type=click.FloatRange(0, 24 * 60), default=10, show_default=True, help="0 ends a release.")
def release(control_socket: pathlib.Path, minutes: float) -> None:
    """Close every NVML session for a while, so that a GPU can be reset, and prove it."""
    if math.isnan(minutes):
        raise click.BadParameter("nan is not a number of minutes.", param_hint="--minutes")
    answers: list[dict[str, Any]] = []
    _answered(control_socket, {"command": "release", "minutes": minutes}, answers.append)
    text, status = proof_of(answers[-1] if answers else {"error": "NoAnswer"})
    click.echo(text, err=bool(status))
    sys.exit(status)


def proof_of(answer: Mapping[str, Any]) -> tuple[str, int]:
    """Return what to say about an answer to `release`, and the exit status."""
    if "error" in answer:
        return f"not released: {answer['error']} {answer.get('detail', '')}".rstrip(), 1
    if answer["open_device_files"] and answer["mode"] == "closed":
        return "NVML is closed, yet these are still open: " + ", ".join(answer["open_device_files"]), 1
    return f"NVML session: {answer['mode']}; open device files of ours: {len(answer['open_device_files'])}", 0


class _Stopped(Exception):
    """An answer came, and nothing more can be done with it: why, and the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def _answered(path: pathlib.Path, request: Mapping[str, Any], hear: Callable[[dict[str, Any]], None]) -> None:
    """Talk to the running agent, or end: with status 3 if none answers."""
    from agent.sources import control  # noqa: PLC0415 -- see the module's docstring

    try:
        control.talk(path, request, hear)
    except _Stopped as stopped:
        click.echo(stopped, err=True)
        sys.exit(stopped.status)
    except OSError as error:
        click.echo(f"no agent answers at {path}: {error.strerror or error}", err=True)
        sys.exit(NO_ANSWER)
    except (ValueError, TypeError):
        click.echo(f"no agent answers at {path}: what listens there is something else", err=True)
        sys.exit(NO_ANSWER)


def _checked(make: Callable[[], T]) -> T:
    """Return what was made, or end with every problem on standard error."""
    try:
        return make()
    except settings.InvalidSettings as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
