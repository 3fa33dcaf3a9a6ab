"""The captures of tests/captures, and what the core says of each line.

In: a capture's expected file. Out: its lines as observations, and the report after each line.

Invariant: the same rule for "is there an API server" as `muster-agent replay` has: a capture has one if any of its lines
has a Node or a Pods plane.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from agent.core.judge import judge
from agent.model.history import History
from agent.model.planes import Observation
from agent.model.policy import Policy
from muster.model import jsonform
from muster.model.report import NodeReport

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "captures"
EXPECTED = ".expected.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One timeline with its answer."""

    name: str
    entry: str
    """Entry of the catalogue: A1."""
    is_twin: bool
    """The state of another capture with one thing changed: it shows another answer, often none."""
    observations: tuple[Observation, ...]
    api_server: bool
    expected: Any


def load(path: pathlib.Path) -> Capture:
    """Return the capture that an expected file belongs to."""
    expected = json.loads(path.read_text("utf-8"))
    name = path.name.removesuffix(EXPECTED)
    text = path.with_name(f"{name}.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return Capture(
        name=name,
        entry=expected["entry"],
        is_twin=name.endswith("-twin"),
        observations=tuple(jsonform.from_json(Observation, line) for line in lines),
        api_server=any("node_object" in line or "pods" in line for line in lines),
        expected=expected,
    )


def load_all(folder: pathlib.Path = FOLDER) -> tuple[Capture, ...]:
    """Return every capture of a folder, by name."""
    return tuple(load(path) for path in sorted(folder.glob(f"*{EXPECTED}")))


def replay(capture: Capture, policy: Policy) -> tuple[NodeReport, ...]:
    """Return the report after each line."""
    return judged(capture.observations, policy, api_server=capture.api_server)


def judged(observations: Sequence[Observation], policy: Policy, *, api_server: bool) -> tuple[NodeReport, ...]:
    """Return the report after each observation."""
    history, reports = History(), []
    for observation in observations:
        history, report = judge(history, observation, policy, api_server=api_server)
        reports.append(report)
    return tuple(reports)
