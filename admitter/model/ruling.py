"""What the breaker decides: which nodes Muster holds, for which reason, and by what policy.

Values only; core/breaker.py decides, core/lastgood.py says which numbers stand meanwhile.
"""

import dataclasses
import enum
from collections.abc import Mapping

from muster.model import codec
from muster.model.report import NodeReport


class HoldMode(enum.StrEnum):
    """What the breaker does to admission. Conditions, Events and taints wait in every mode but `off`."""

    STANDS = "stands"
    """The last good decision stands, as far as readings allow."""
    PAUSE = "pause"
    """Nothing new is admitted anywhere."""
    OFF = "off"
    """Nothing is held; what would be is still reported."""


class Ground(enum.StrEnum):
    """Why a hold began."""

    RULE = "rule"
    """One rule accounts for it."""
    VERSION = "version"
    """One agent version does, while the others are well."""
    SHARE = "share"
    """Too many nodes at once, whatever the cause."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HoldPolicy:
    mode: HoldMode = HoldMode.STANDS
    window_seconds: float = 300.0
    """Nodes that turned within this count together: the agents' hold-downs spread one cause over up to 60 s."""
    share: float = 0.25
    """More than this share of the fleet."""
    rule_share: float = 0.15
    """The same for one rule."""
    version_share: float = 0.5
    """The same among the nodes of one agent version."""
    least_nodes: int = 5
    """Fewer nodes than this hold nobody: in a small fleet two broken nodes are two broken nodes."""
    longest_seconds: float = 3600.0
    """A hold ends after this, whatever is left of it: a last good decision grows old."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One thing that turned many nodes."""

    ground: Ground
    culprit: str
    """`lost/3`, an agent version, `AgentSilent`, or `several`."""
    since: float
    nodes: frozenset[str]
    """Those that still are as it turned them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is held at one moment."""

    holds: tuple[Hold, ...] = ()
    """Sorted by ground and culprit."""
    last_good: Mapping[str, NodeReport] = codec.mapping()
    """Of the held nodes: the last report whose verdict was OK, if this admitter has seen one."""

    @property
    def nodes(self) -> frozenset[str]:
        """Every held node."""
        return frozenset().union(*(hold.nodes for hold in self.holds))


NOTHING_HELD = Ruling()
