"""Everything CI holds against a change, tests aside: `make check`.

Each step is a command; all steps run, each prints one line, and the output of those that failed follows at the end.

Invariant: exit status 0 only if every step ran and passed. A tool that is missing is a failure, never a step left out.

Not here: what a step looks for (the tools' own settings, and the check_*.py files beside this one).
"""

import argparse
import dataclasses
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command that must exit with 0."""

    name: str
    command: tuple[str, ...]


def tool(name: str, *arguments: str) -> Step:
    """Return a step that runs a program of the virtual environment."""
    return Step(
        name=" ".join((name, *(word for word in arguments[:1] if not word.startswith("-")))),
        command=(str(BIN / name), *arguments),
    )


def module(name: str, *arguments: str) -> Step:
    """Return a step that runs one of our own checks."""
    return Step(
        name=" ".join((name.replace("hack.", ""), *arguments)), command=(sys.executable, "-m", name, *arguments)
    )


def steps(root: pathlib.Path) -> tuple[Step, ...]:
    """Return the steps, quickest first."""
    scripts = [str(path.relative_to(root)) for path in shell_scripts(root)]
    return (
        tool("ruff", "format", "--check", "--quiet"),
        tool("ruff", "check", "--quiet"),
        module("hack.check_content"),
        Step(name="shellcheck", command=(str(BIN / "shellcheck"), *scripts)),
        tool("hadolint", "Dockerfile"),
        tool("buf", "lint"),
        tool("buf", "breaking", "--against", "proto/baseline.binpb"),
        module("hack.check_baseline"),
        module("hack.codegen", "--check"),
        module("hack.rulespage", "--check"),
        module("hack.alerts", "--check"),
        module("hack.matrix", "--check"),
        module("hack.check_manifests"),
        tool("lint-imports", "--no-cache", "--no-logo"),
        tool("mypy"),
    )


def shell_scripts(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield every shell script of the checkout: by its ending, or by its first line in .ci/."""
    yield from sorted((root / "hack").rglob("*.sh"))
    yield from sorted(path for path in (root / ".ci").iterdir() if path.read_text().startswith("#!/usr/bin/env bash"))


def run(step: Step, root: pathlib.Path) -> tuple[bool, str]:
    """Run one step; return whether it passed and what it printed."""
    try:
        done = subprocess.run(
            step.command, check=False, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return False, f"{step.command[0]}: {error.strerror}\n"
    return done.returncode == 0, done.stdout


def run_all(chosen: Iterable[Step], root: pathlib.Path) -> int:
    """Run all steps, print one line each and what the failed ones said; return the exit status."""
    failed: list[tuple[Step, str]] = []
    for step in chosen:
        started = time.monotonic()
        passed, output = run(step, root)
        print(f"{'ok  ' if passed else 'FAIL'}  {step.name}  ({time.monotonic() - started:.1f} s)", flush=True)
        if not passed:
            failed.append((step, output))
    for step, output in failed:
        print(f"\n--- {step.name}\n{output.rstrip()}")
    names = ", ".join(step.name for step, _ in failed)
    print(f"\ncheck: {len(failed)} failed: {names}" if failed else "\ncheck: all passed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make check", description="Run every check, tests aside.")
    parser.add_argument("only", nargs="*", help="run only the steps whose name contains one of these texts")
    only = parser.parse_args().only
    chosen = [step for step in steps(ROOT) if not only or any(text in step.name for text in only)]
    if not chosen:
        parser.error(f"no step is called {' or '.join(only)}: {', '.join(step.name for step in steps(ROOT))}")
    return run_all(chosen, ROOT)


if __name__ == "__main__":
    sys.exit(main())
