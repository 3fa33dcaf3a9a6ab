"""What the loop over all Nodes remembers of each, and what is on a Node as far as we know.

Values and small functions of them; nothing here waits. A memory ends with the term, or with the Node.

Invariant: what was written last counts as being on the Node until the watch shows it, another Node has the name, or
`ECHO_SECONDS` have passed: a slow watch makes no second write.
"""

import dataclasses
from typing import TypeAlias

from admitter.core import nodestatus
from admitter.core.nodestatus import NodeHistory
from admitter.model.cluster import KubeNode
from admitter.model.nodestatus import Facts
from muster.model.nodeconditions import ConditionType
from muster.model.report import NodeReport

ECHO_SECONDS = 15.0
"""How long the watch may take to show what was written."""

Mark: TypeAlias = tuple[KubeNode, NodeReport | None, bool, bool]
"""The Node, its agent's report, whether that is silent, whether the breaker holds it."""
FOREIGN, TAINTED = ("foreign", ""), ("tainted", "")


@dataclasses.dataclass(slots=True, kw_only=True)
class Memory:
    """What is remembered of one Node."""

    history: NodeHistory
    quiet: "Mark | None" = None
    """The state in which nothing can become due."""
    counted: tuple[tuple[str, str], ...] = ()
    """The figures that the Node counts in."""
    has_taint: bool = False
    echo: tuple[Facts, float] | None = None
    """What the Node says since our last write, and when that was."""
    taint_echo: tuple[str, float] | None = None
    """The same of the taint."""
    seen: tuple[KubeNode, Facts] | None = None
    """What was made of the Node last."""
    foreign: frozenset[ConditionType] = frozenset()
    foreign_until: float = 0.0
    retaken_at: float = float("-inf")
    """When we took a condition of ours back from somebody who had changed it."""

    @property
    def awaits_echo(self) -> bool:
        """Return whether the watch has not shown yet what we wrote."""
        return self.echo is not None or self.taint_echo is not None

    def is_quiet(self, mark: "Mark") -> bool:
        """Return whether the Node is as it was when nothing was to do."""
        return self.quiet is not None and all(a is b for a, b in zip(self.quiet, mark, strict=True))


def figures_of(fact: Facts) -> tuple[tuple[str, str], ...]:
    """Return the figures that a Node counts in."""
    conditions = ((name.value, condition.status.value) for name, condition in fact.conditions.items())
    return (*conditions, *[FOREIGN] * len(fact.foreign), *[TAINTED] * bool(fact.taint))


def facts_of(node: KubeNode, memory: Memory | None, now: float) -> Facts:
    """Return what is on a Node by the watch."""
    if memory is None:
        return nodestatus.facts_of(node)
    if memory.foreign and now >= memory.foreign_until:
        memory.foreign = frozenset()
    if memory.seen is None or memory.seen[0] is not node or memory.seen[1].foreign != memory.foreign:
        memory.seen = (node, nodestatus.facts_of(node, memory.foreign))
    return memory.seen[1]


def echoed(memory: Memory, seen: Facts, now: float) -> Facts:
    """Return what was written last, until the watch shows it."""
    if memory.echo is not None:
        sent, at = memory.echo
        is_shown = sent.conditions.keys() == seen.conditions.keys() and all(
            item.says_the_same(seen.conditions[name]) for name, item in sent.conditions.items()
        )
        if is_shown or sent.uid != seen.uid or now - at > ECHO_SECONDS:
            memory.echo = None
        else:
            seen = dataclasses.replace(seen, conditions=sent.conditions)
    if memory.taint_echo is not None:
        value, at = memory.taint_echo
        if value == seen.taint or now - at > ECHO_SECONDS:
            memory.taint_echo = None
        else:
            seen = dataclasses.replace(seen, taint=value)
    return seen
