"""Read the policy file: rule modes, names and sizes that differ from the defaults.

In: a path. Out: a Policy, or InvalidSettings with everything that is wrong, each with its field's path: a rule id that no
rule has would otherwise switch nothing off and nobody would notice.

Not here: durations. They are facts about kubelets and drivers with sources (agent.model.policy), not settings.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from agent.core.rules import table
from agent.model.policy import Policy
from muster import settings
from muster.model import jsonform


def load(path: pathlib.Path) -> Policy:
    """Return the file's policy."""
    try:
        data = json.loads(path.read_bytes())
        policy, misfits = _read(data) if isinstance(data, dict) else (jsonform.from_json(Policy, data), [])
    except (OSError, ValueError, RecursionError) as error:
        raise settings.InvalidSettings([f"--policy: {path}: {error}"]) from error
    problems = [f"--policy: {path}: {problem}" for problem in (*misfits, *_problems(policy))]
    if problems:
        raise settings.InvalidSettings(problems)
    return policy


def _read(data: dict[str, Any]) -> tuple[Policy, list[str]]:
    """Return the policy of what fits, and a line for every entry that does not: one wrong word hides no other."""
    fitting: dict[str, Any] = {}
    misfits: list[str] = []
    for name, value, part in _parts(data):
        try:
            jsonform.from_json(Policy, part)
        except ValueError as error:
            misfits.append(str(error))
        else:
            fitting[name] = fitting.get(name, {}) | value if isinstance(value, dict) else value
    return jsonform.from_json(Policy, fitting), misfits


def _parts(data: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield every field, those that are maps entry by entry, each with a document that holds it alone."""
    for name, value in data.items():
        for entry in [{key: value[key]} for key in value] if isinstance(value, dict) and value else [value]:
            yield name, entry, {name: entry}


def _problems(policy: Policy) -> Iterator[str]:
    for rule in sorted(policy.modes.keys() - table.ROWS.keys()):
        yield f"$.modes.{rule}: no such rule; docs/rules.md lists them"
    for code in sorted(policy.xids):
        if not (code.isascii() and code.isdigit() and len(code) <= 6):
            yield f"$.xids.{code}: is no Xid code"
    if policy.time_scale != 1:
        yield "$.time_scale: is set by --time-scale alone"
    for name in ("memory_baseline_bytes", "management_bytes"):
        if getattr(policy, name) < 0:
            yield f"$.{name}: is below 0"
    for place, name in enumerate(policy.resources):
        if not name.strip():
            yield f"$.resources[{place}]: is no name"
