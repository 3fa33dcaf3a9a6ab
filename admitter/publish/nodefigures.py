"""What the leader counts about what it says on Nodes, and how the last look at the fleet came out.

Values and counters only; nodemetrics.py puts them on a page.
"""

import collections
import dataclasses
from collections.abc import Mapping

from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeScene:
    """The fleet after one look; a standby has none."""

    conditions: Mapping[tuple[str, str], int] = codec.mapping()
    """Nodes by condition and its status, as they stand on the API server."""
    tainted: int = 0
    cap: int = 0
    withheld: Mapping[str, int] = codec.mapping()
    """Nodes that a verdict would taint, by why they are not."""
    backlog: int = 0
    """Writes that are due and had to wait."""
    foreign: int = 0
    """Conditions of our names that somebody else owns."""
    resting: Mapping[str, float] = codec.mapping()
    """Seconds that each kind of request rests yet, because the API server asked for it or did not answer."""


class NodeFigures:
    """Counters of one process, and the newest scene."""

    def __init__(self) -> None:
        self.scene: NodeScene | None = None
        self.requests: collections.Counter[tuple[str, str]] = collections.Counter()
        """By kind (conditions, taint, event) and outcome."""
        self.failed_looks = 0
