"""A rule, and what it says about one sample before anybody asks how long it has lasted.

Values only. A `Rule` is a table row: what the catalogue calls the fault, what it does to the numbers, how much evidence
it needs, what ends it, what a person does. A `Suspicion` is one hit of a rule; holddown.py turns suspicions into the
findings of the report.
"""

import dataclasses
import datetime
import enum

from muster.model.report import Finding, Verdict
from muster.model.vocabulary import Reason, Remedy


class Effect(enum.StrEnum):
    """What an enforced finding does to its resource's numbers, from its first sample on."""

    NONE = "none"
    BAD = "bad"
    """Its ids are not usable."""
    TAKEN = "taken"
    """Its ids are used by somebody the kubelet does not know: usable, not free, and a pick may hit them."""
    HELD = "held"
    """Its ids are in the kubelet's ledger though List does not show it: not free, and no pick can hit them."""
    BLOCK = "block"
    """The next start fails whatever device it gets: admit 0, or what the suspicion says is available."""
    ZERO = "zero"
    """Nothing may start until the deadline: admit 0."""
    BLIND = "blind"
    """Nobody can say: admit null."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of the rule table."""

    id: str
    """Entry of faults.md, or a name for what is beyond it."""
    cause: str
    version: int = 1
    verdict: Verdict
    effect: Effect = Effect.NONE
    reason: Reason
    remedy: Remedy
    wait: str = ""
    """Row of policy.DURATIONS that must be complete; empty: a fault from the first sample."""
    clears_when: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """One hit of a rule in one sample."""

    rule: Rule
    resource: str = ""
    """Empty: the finding belongs to the node."""
    subject: str = ""
    """What the evidence is counted for, when a resource has several."""
    ids: tuple[str, ...] = ()
    """Ids of the resource that `rule.effect` takes away."""
    contested: tuple[str, ...] = ()
    """Ids that another allocator may give away too: free, but a pick may hit one that has just gone (faults.md A14, G2)."""
    devices: tuple[str, ...] = ()
    """UUIDs for people."""
    units: int | None = None
    detail: str
    until: datetime.datetime | None = None
    """Transient until this instant, instead of counting from the first sample."""
    available: int = 0
    """Effect.BLOCK: what the kubelet itself said is left (faults.md E3)."""
    verdict: Verdict | None = None
    """In place of the rule's."""
    reason: Reason | None = None
    """In place of the rule's."""
    is_carried: bool = False
    """Not seen in this sample: its check could not be read, and the evidence stays what it was."""

    @property
    def key(self) -> str:
        """Name of the evidence."""
        return f"{self.rule.id}|{self.resource}|{self.subject}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A suspicion with the verdict that its evidence allows."""

    suspicion: Suspicion
    finding: Finding
    is_enforced: bool
