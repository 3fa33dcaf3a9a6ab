"""Read the policy file: rule modes, names and sizes that differ from the defaults.

In: a path. Out: a Policy, or InvalidSettings with everything that is wrong, each with its field's path: a rule id that no
rule has would otherwise switch nothing off and nobody would notice.

Not here: durations. They are facts about kubelets and drivers with sources (agent.model.policy), not settings.
"""

import json
import pathlib
from collections.abc import Iterator

from agent.core.rules import table
from agent.model.policy import Policy
from muster import settings
from muster.model import jsonform


def load(path: pathlib.Path) -> Policy:
    """Return the file's policy."""
    try:
        policy = jsonform.from_json(Policy, json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise settings.InvalidSettings([f"--policy: {path}: {error}"]) from error
    problems = [f"--policy: {path}: {problem}" for problem in _problems(policy)]
    if problems:
        raise settings.InvalidSettings(problems)
    return policy


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
