"""What a gang that waits for its images is told, and what warmers' reasons mean for it.

In: reasons as warmers say them (agent/core/warmfailure.py). Out: an Explanation.
"""

from collections.abc import Sequence

from admitter.model.decision import Explanation
from admitter.model.gang import Gang
from muster.model.vocabulary import WaitReason

NOT_FOUND = "NotFound"
UNAUTHORIZED = "Unauthorized"
WARMER_AWAY = "WarmerUnavailable"
NOT_WARMED = frozenset(
    {
        NOT_FOUND,
        UNAUTHORIZED,
        "OverBudget",
        "DiskFull",
        "CorruptBlob",
        "Schema1",
        "NoPlatform",
        "ForeignLayer",
        "EmptyLayer",
        "BadManifest",
        "BadConfig",
        "LazyBroken",
    }
)
"""Reasons of a warmer that no wait of minutes ends (agent/core/warmfailure.py)."""
_NAMED = 3
"""Nodes and images in one line."""


def why(gang: Gang, reason: WaitReason, text: str, changes_at: float | None) -> Explanation:
    """Return why a gang with a place waits."""
    units = sum(podset.count * podset.units_per_pod for podset in gang.podsets)
    return Explanation(
        reason=reason,
        summary=f"{text}; position 1"[:512],
        position=1,
        needed_units=units,
        available_units=units,
        changes_at=changes_at,
    )


def some(parts: Sequence[str]) -> str:
    """Return the first of many, and how many more there are."""
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(part[:200] for part in parts[:_NAMED]) + more
