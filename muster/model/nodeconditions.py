"""The three conditions that Muster writes on a Node: their names and the closed list of their reasons.

A condition is True when all is well, as `Ready` is; the reasons of docs/conditions.md are exactly these (a test compares).
Reasons of faults are those of muster.model.vocabulary.Reason, shared with the feed; `Standing` adds what only a condition
says.

Not here: which report makes which condition (admitter/core/conditions.py).
"""

import enum

from muster.model.vocabulary import Reason

FIELD_MANAGER = "muster-admitter"
"""Whose conditions they are, to the API server."""


class ConditionType(enum.StrEnum):
    CAPACITY = "GPUCapacityTruthful"
    """What the node advertises can be had, all of it and no more."""
    HEALTH = "GPUHealthy"
    """No GPU of it is lost or unhealthy."""
    MIG = "MIGLayoutMatches"
    """The GPUs are cut as the node advertises and its configuration asks."""


class Status(enum.StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Standing(enum.StrEnum):
    """Reasons beside those of the faults."""

    AS_ADVERTISED = "AsAdvertised"
    NOT_AS_ADVERTISED = "NotAsAdvertised"
    """A fault whose reason this version does not know."""
    ALL_HEALTHY = "AllHealthy"
    DEGRADED = "Degraded"
    """True all the same: every GPU serves, some with less than it should."""
    LAYOUT_AS_PROMISED = "LayoutAsPromised"
    NOT_PARTITIONED = "NotPartitioned"
    NO_DEVICES = "NoDevices"
    """Nothing to judge: the driver shows no GPU and nobody said why."""
    AGENT_SILENT = "AgentSilent"
    SETTLING = "Settling"
    """Something passing is under way, and nothing was known before it."""
    BREAKER_HOLDING = "BreakerHolding"
    """Muster doubts its own verdicts on this node, and nothing was known before them."""


REASONS = frozenset(member.value for member in (*Reason, *Standing) if member is not Reason.OK)
"""Every reason that a condition can have."""
