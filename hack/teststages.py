"""`make test`: the stages of the test suite, one after the other, and one line at the end for all of them.

In: arguments for pytest. Out: exit status 0 if every stage that had a test passed; 5, as pytest, if none had one.

Invariant: a test belongs to one stage, by its markers: `e2e`, `real`, `real` and `shares`, or none. All stages run, whatever the
ones before them said.

Why stages: unit tests share the cores, and so do those with a containerd of their own; the others start whole programs that keep
their own time, and run alone.
Why `-o testpaths`: pytest takes those only where no path was given, so that `ARGS=path` narrows every stage.

Not here: what real programs a test needs and how they get here (hack/cluster/machine.py, tests/suites.py).
"""

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

from hack.cluster import machine, versions

NOTHING_COLLECTED = 5
"""pytest's exit status when no test was chosen."""
BUILDS_VARIABLE = "MUSTER_TESTS_BUILD"
"""With `1`, tests/suites.py provides what the chosen tests need before they run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    marks: str
    options: tuple[str, ...] = ()
    is_spread: bool = False
    """Its tests share the cores."""


STAGES = (
    Stage(
        name="unit",
        marks="not e2e and not real",
        options=("--doctest-modules", "--ignore=muster/pb", "-o", "testpaths=tests agent admitter muster hack"),
        is_spread=True,
    ),
    Stage(name="real", marks="real and not shares and not e2e"),
    Stage(name="images", marks="real and shares and not e2e", is_spread=True),
    Stage(name="e2e", marks="e2e"),
)


def command(stage: Stage, workers: str, arguments: list[str]) -> list[str]:
    """Return the pytest command of a stage."""
    spread = ["-n", workers, "--dist", "loadfile"] if stage.is_spread else []
    return [sys.executable, "-m", "pytest", *spread, "-m", stage.marks, *stage.options, *arguments]


def narrowed(arguments: list[str]) -> bool:
    """Return whether somebody asks for some of the tests; those may need nothing that must be built."""
    return any(pathlib.Path(argument.partition("::")[0]).exists() for argument in arguments)


def verdict(statuses: dict[str, int]) -> int:
    """Return the exit status for all stages.

    >>> verdict({"unit": 0, "real": 5}), verdict({"unit": 5, "real": 5}), verdict({"unit": 0, "real": 1})
    (0, 5, 1)
    """
    bad = [status for status in statuses.values() if status not in {0, NOTHING_COLLECTED}]
    if bad:
        return bad[0]
    return 0 if 0 in statuses.values() else NOTHING_COLLECTED


def _words(status: int) -> str:
    return {0: "passed", NOTHING_COLLECTED: "no test"}.get(status, f"failed ({status})")


def run(stages: list[Stage], workers: str, arguments: list[str]) -> int:
    """Run stages, then say how each ended."""
    statuses, said = {}, []
    for stage in stages:
        print(f"test: stage {stage.name}", file=sys.stderr, flush=True)
        began = time.monotonic()
        environment = {**os.environ, BUILDS_VARIABLE: "1"}
        statuses[stage.name] = subprocess.run(
            command(stage, workers, arguments), check=False, env=environment
        ).returncode
        said.append(f"{stage.name} {_words(statuses[stage.name])} in {time.monotonic() - began:.0f} s")
    print(f"test: {', '.join(said)}", file=sys.stderr, flush=True)
    return verdict(statuses)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.teststages", description="Run the tests, stage by stage.")
    parser.add_argument("--workers", default="2", help="of the unit tests")
    parser.add_argument("--only", action="append", default=[], choices=[stage.name for stage in STAGES])
    parser.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="for pytest")
    options = parser.parse_args()
    chosen = [stage for stage in STAGES if not options.only or stage.name in options.only]
    outlook = machine.outlook(versions.line_name())
    if outlook and not narrowed(options.arguments):
        print(f"test: {outlook}", file=sys.stderr, flush=True)
    return run(chosen, options.workers, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
