"""What the leader says on a Node: conditions, Events and the taint, and what it knows when it decides on them.

Values only. `Facts` is what is on the Node now, `Word` what its agent said last, the rest what is to be done: a `Write` of
conditions, a `TaintChange`, the `Note` of an Event. core/nodestatus.py and core/taints.py decide, publish/nodes.py acts.
"""

import dataclasses
import datetime
from collections.abc import Mapping

from muster.model import codec
from muster.model.nodeconditions import ConditionType, Status
from muster.model.report import NodeReport, Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One of our conditions, on a Node or meant for it."""

    status: Status
    reason: str
    """Member of muster.model.nodeconditions.REASONS."""
    message: str
    """Bounded, sorted, without ages: the same state is the same text."""
    since: datetime.datetime | None = None
    """Last change of the status."""

    def says_the_same(self, other: "Condition | None") -> bool:
        """Return whether nothing would change for whoever reads it."""
        return other is not None and (self.status, self.reason, self.message) == (
            other.status,
            other.reason,
            other.message,
        )


Conditions = Mapping[ConditionType, Condition]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is on the Node now, as far as it is ours or bears on what we write."""

    node: str
    uid: str
    conditions: Conditions = codec.mapping()
    taint: str = ""
    """Value of muster.dev/untrusted; empty: the Node does not have it."""
    foreign: frozenset[ConditionType] = frozenset()
    """Conditions of our names that somebody else owns: they are left alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the node's agent said last."""

    report: NodeReport | None
    """None: nothing in this term."""
    silent_seconds: float
    """Since it was heard; since this admitter began to listen, where it never was."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An Event about a Node."""

    reason: str
    action: str
    text: str
    is_warning: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Our conditions of one Node, all of them; none: they are taken away."""

    node: str
    uid: str
    conditions: Conditions
    notes: tuple[Note, ...] = ()
    is_urgent: bool = False
    """A condition turns False."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaintChange:
    """Put our taint on a Node, change its value, or take it away."""

    node: str
    uid: str
    value: str
    """The verdict; empty: take it away."""
    why: str
    """For the log and the Event, one line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatusPolicy:
    """How fast conditions follow the feed."""

    silent_seconds: float = 60.0
    """An agent that was not heard for so long is silent. An agent's own restart takes up to 30 s (faults.md section 2)."""
    settle_seconds: float = 30.0
    """How long anything but a turn to False must be asked for before it is written."""
    refresh_seconds: float = 60.0
    """Least time between two writes that change only reason or message."""
    burst: int = 6
    """Writes that one node may get in a row."""
    seconds_per_write: float = 60.0
    """After them, one write in so many seconds."""
    note_gap_seconds: float = 600.0
    """The same Event is not sent twice within this."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaintPolicy:
    """When a node is tainted."""

    enabled: bool = False
    verdicts: frozenset[Verdict] = frozenset({Verdict.BLOCKED, Verdict.WRONG_SHAPE, Verdict.OVER})
    after_seconds: float = 60.0
    """A verdict must stand so long before it taints: a plugin's restart takes up to 60 s (faults.md section 2)."""
    clear_seconds: float = 120.0
    """The node must be well so long before the taint goes."""
    forget_seconds: float = 3600.0
    """A taint whose evidence is older is held by nothing but silence, and goes."""
    cap_nodes: int | None = None
    """Most nodes tainted at a time."""
    cap_share: float = 0.1
    """The same as a share of the fleet, where `cap_nodes` is None."""

    def cap(self, fleet: int) -> int:
        """Return how many of `fleet` nodes may be tainted."""
        return int(self.cap_share * fleet) if self.cap_nodes is None else self.cap_nodes
