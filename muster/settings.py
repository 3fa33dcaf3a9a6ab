"""Settings of a program: one frozen dataclass, read from flags, then environment, then defaults.

Each field is declared once, with its default, its unit in its name and one line of help; flag and variable follow from
the name: `poll_seconds` of the agent is `--poll-seconds` and `MUSTER_AGENT_POLL_SECONDS`.

Invariant: `load` returns a complete, checked value or raises `InvalidSettings` with every problem at once, each naming
the flag and the variable; nothing starts on half a configuration.
"""

import dataclasses
import enum
import math
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

T = TypeVar("T")

Check = Callable[[Any], str]
"""Looks at a whole settings value and returns what is wrong with it, or an empty text."""

LOG_LEVELS = ("debug", "info", "warning", "error")

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class InvalidSettings(ValueError):
    """One or more settings do not fit. `problems` holds one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def setting(
    default: Any = dataclasses.MISSING, *, text: str, low: float | None = None, high: float | None = None
) -> Any:
    """Declare one setting: its default (none: required), one line of help and its inclusive bounds."""
    return dataclasses.field(default=default, metadata={"help": text, "low": low, "high": high})


def log_level(config: Any) -> str:
    """Return what is wrong with the `log_level` of a program's settings."""
    return (
        ""
        if config.log_level in LOG_LEVELS
        else f"--log-level: {config.log_level!r} is none of {', '.join(LOG_LEVELS)}"
    )


def flag_of(name: str) -> str:
    """Return the flag of a field.

    >>> flag_of("poll_seconds")
    '--poll-seconds'
    """
    return "--" + name.replace("_", "-")


def variable_of(prefix: str, name: str) -> str:
    """Return the environment variable of a field.

    >>> variable_of("MUSTER_AGENT", "poll_seconds")
    'MUSTER_AGENT_POLL_SECONDS'
    """
    return f"{prefix}_{name.upper()}"


def options(cls: type, prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds one click option per field; values arrive as text, or None when not given."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for field in reversed(dataclasses.fields(cls)):
            default = "required" if field.default is dataclasses.MISSING else f"default {_shown(field.default)}"
            text = f"{field.metadata['help']} [{variable_of(prefix, field.name)}; {default}]"
            function = click.option(flag_of(field.name), field.name, type=str, default=None, help=text)(function)
        return function

    return decorate


def load(
    cls: type[T],
    prefix: str,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    checks: Iterable[Check] = (),
) -> T:
    """Return the settings, or raise InvalidSettings with all problems."""
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = field.name
        given = flags.get(name)
        text = given if given is not None else environ.get(variable_of(prefix, name))
        place = flag_of(name) if given is not None else f"{flag_of(name)} ({variable_of(prefix, name)})"
        if text is None:
            if field.default is dataclasses.MISSING:
                problems.append(f"{place}: is required")
            else:
                values[name] = field.default
            continue
        try:
            values[name] = _bounded(_parse(hints[name], text), field)
        except ValueError as error:
            problems.append(f"{place}: {error}")
    if not problems:
        result = cls(**values)
        problems = [problem for problem in (check(result) for check in checks) if problem]
        if not problems:
            return result
    raise InvalidSettings(problems)


def _parse(hint: Any, text: str) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (argument for argument in typing.get_args(hint) if argument is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is bool:
        return _parse_bool(text)
    if hint in (int, float):
        return _parse_number(hint, text)
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        try:
            return hint(text)
        except ValueError:
            raise ValueError(f"{text!r} is none of {', '.join(member.value for member in hint)}") from None
    if hint is pathlib.Path:
        if not text:
            raise ValueError("'' is not a path")
        return pathlib.Path(text)
    return text


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in _TRUE + _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered in _TRUE


def _parse_number(hint: Any, text: str) -> Any:
    try:
        number = hint(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {'a whole number' if hint is int else 'a number'}") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not finite")
    return number


def _bounded(value: Any, field: "dataclasses.Field[Any]") -> Any:
    low, high = field.metadata["low"], field.metadata["high"]
    if low is not None and value < low:
        raise ValueError(f"{value} is below {low}")
    if high is not None and value > high:
        raise ValueError(f"{value} is above {high}")
    return value


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default) or "none"
    return str(default) if default not in (None, "") else "none"
