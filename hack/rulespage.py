"""Make docs/rules.md from the rules, their evidence and the duration table. `--check` compares instead of writing.

The page is what somebody reads who was woken by a cause: what it does to the numbers, how long it must last, what ends
it, what to do; and who rolls Muster out: what each rule looks at, what privilege that takes, how to watch it first. It is
generated, because a table that is kept by hand is wrong by the tenth rule.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Iterable

from agent.core import blinded
from agent.core.rules import evidence, table
from agent.model import policy, privilege
from agent.model.finding import Effect, Rule
from agent.model.privilege import Privilege
from muster.model.vocabulary import Reason, Remedy

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "rules.md"

AGENT_FAILED = (
    "agent", "-", "-", f"`{blinded.CAUSE}`", "`BLIND`", "admit unknown", "one cycle", Reason.PLANE_UNREADABLE.value,
    Remedy.INVESTIGATE.value, "a cycle succeeds",
)  # fmt: skip
"""The one cause without a rule: no rule runs in a cycle that failed."""

HEAD = """# Rules

Every finding of a report names its cause, and the rule and version that found it (`B2/1`). This page is made from the rules (`make
rules`); change it there. Which deployment sees which of them is [fault-matrix.md](fault-matrix.md).

## Modes

| mode | what a rule in it does |
|---|---|
| `off` | nothing |
| `observe` | its findings are reported, their text begins with *observed only*; they change neither admit nor verdict, so nothing that follows them (condition, taint, breaker, alerts on findings) moves |
| `enforce` | its findings take part in the numbers and in the verdict |

Modes are set per rule in the agent's policy file (`--policy FILE`, `MUSTER_AGENT_POLICY`); a rule that is not named is in the mode of the
table below, and a name that no rule has is refused at the start. Three things no mode changes: a plane that could not be read never counts
as empty, a failed read never raises a number, and a device that the driver does not open is shown as lost.

```json
{"modes": {"E6": "observe", "G1": "off"}}
```

## What a finding means

The entry is that of the fault catalogue; a word instead of a letter and a number is a cause beyond the catalogue, and `X-word` one
form of entry X. *Lasts* is how long the evidence must last, in how many clean samples, before the verdict stands; until then it is
`TRANSIENT` with a deadline. Some wait for a moment as well, the end of a node's boot or of a kubelet's start; the finding's own deadline
says which. The numbers fall at the first sample all the same. Nothing latches: *ends* says what clears it.
"""

EVIDENCE = r"""
## What a rule looks at

*Needs*: fields of a [capture](../agent/contracts/capture.schema.json) that must be readable for the rule to say anything. *Uses*: fields that
decide between this cause and another, or how long it is normal. *Clocks*: rows of the last table, with their sources. *Privilege*: what reading the needed fields takes, in parentheses what
the used ones do; nothing means that every container may read them. A test replays each rule's captures without each privilege and holds
this table against what disappears.
"""

PRIVILEGES = """
## Privileges

"""

EFFECTS = {
    Effect.NONE: "none",
    Effect.BAD: "its ids are not usable",
    Effect.TAKEN: "its ids are not free, and a pick may hit them",
    Effect.HELD: "its ids are not free",
    Effect.BLOCK: "admit 0, or what kubelet named",
    Effect.ZERO: "admit 0 until the deadline",
    Effect.BLIND: "admit unknown",
}
"""What a finding does to its resource's numbers, in few words."""

GRANTS = {
    Privilege.NONE: "nothing: sysfs and the boot are readable in every container",
    Privilege.GPU_DEVICES: "the driver's device files and library in the reader, the host's or injected ones",
    Privilege.MIG_MONITOR: "CAP_SYS_ADMIN in the reader, for MIG instances that it was not given",
    Privilege.HOST_PID: "`hostPID`: whose a process on a GPU is, when kubelet and plugin started, whether MPS is alive",
    Privilege.KERNEL_LOG: "`/dev/kmsg` in the reader: privileged, or CAP_SYSLOG and the device",
    Privilege.HOST_FILES: "the host's files in the reader, read-only: `/dev`, CDI specs, plugin and DRA sockets",
    Privilege.POD_RESOURCES: "the kubelet's pod-resources socket in the agent",
    Privilege.CHECKPOINT: "the kubelet's `device-plugins` folder in the agent",
    Privilege.NODE_SLICE: "an admitter that watches the cluster and sends this node's Node, Pods, rejections and slices",
}
"""What grants a privilege."""


def page() -> str:
    """Return the whole page."""
    rows = sorted(table.ROWS.values(), key=lambda rule: _order(rule.id))
    lines = [
        HEAD,
        *_head("entry", "v", "mode", "cause", "verdict", "numbers", "lasts", "reason", "remedy", "ends when"),
        *(_line(_meaning(rule)) for rule in rows),
        _line(AGENT_FAILED),
        EVIDENCE,
        *_head("entry", "needs", "uses", "clocks", "privilege"),
        *(_line(_evidence(rule)) for rule in rows),
        PRIVILEGES,
        *_head("privilege", "granted by"),
        *(_line((f"`{item}`", GRANTS[item])) for item in Privilege),
        "\n## Durations\n",
        *_head("duration", "value", "source"),
        *(_line((name, _lasts(name), row.source)) for name, row in sorted(policy.DURATIONS.items())),
    ]
    return "\n".join(lines) + "\n"


def _meaning(rule: Rule) -> tuple[str, ...]:
    return (
        rule.id, str(rule.version), f"`{policy.Policy().mode(rule.id)}`", f"`{rule.cause}`", f"`{rule.verdict.value}`",
        EFFECTS[rule.effect], _lasts(rule.wait), rule.reason.value, rule.remedy.value, rule.clears_when,
    )  # fmt: skip


def _evidence(rule: Rule) -> tuple[str, ...]:
    item = evidence.OF_RULE[rule.id]
    waits = tuple(dict.fromkeys((*([rule.wait] if rule.wait else []), *item.clocks)))
    return rule.id, _fields(item.needs), _fields(item.uses), ", ".join(waits) or "-", _privileges(item)


def _fields(paths: Iterable[str]) -> str:
    return " ".join(f"`{path}`" for path in paths) or "-"


def _privileges(item: evidence.Evidence) -> str:
    needed = {privilege.of(path) for path in item.needs} - {Privilege.NONE}
    used = {privilege.of(path) for path in item.uses} - {Privilege.NONE} - needed
    texts = [*sorted(needed), *(f"({also})" for also in sorted(used))]
    return ", ".join(texts) or "-"


def _head(*names: str) -> tuple[str, str]:
    return _line(names), "|" + "---|" * len(names)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _lasts(name: str) -> str:
    if not name:
        return "one sample"
    row = policy.DURATIONS[name]
    return f"{row.seconds:g} s, {row.samples} samples" if row.samples > 1 else f"{row.seconds:g} s"


def _order(name: str) -> tuple[str, int, str]:
    """Catalogue entries first, by letter and number; then words.

    >>> sorted(["maintenance", "B10", "B2", "S4-low"], key=_order)
    ['B2', 'B10', 'S4-low', 'maintenance']
    """
    entry = re.match(r"([A-Z])(\d+)", name)
    return (entry[1], int(entry[2]), name) if entry else ("~", 0, name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make docs/rules.md from the rules.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("docs/rules.md is not what the rules say: run `make rules`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
