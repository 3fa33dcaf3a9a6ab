"""Would the queue be answered as it was last time?

Input: the question that was last decided and the present one. Output: whether deciding again can give another answer.

Invariant: a no is always safe, a yes never hides a change: of the nodes, the queue, the holders, or of the time, where a
rule of time would say something else (`again_at`).
"""

import dataclasses

from admitter.core.supply import Supply
from admitter.model.queue import Ask, Holding


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the queue was decided on."""

    asks: tuple[Ask, ...]
    supply: Supply
    holdings: tuple[Holding, ...]
    again_at: float | None

    def covers(self, asks: tuple[Ask, ...], supply: Supply, holdings: tuple[Holding, ...], now: float) -> bool:
        """Return whether the same would be decided again."""
        if self.again_at is not None and self.again_at <= now:
            return False
        # The ledger keeps its tuple while nobody's holding changes.
        return self.supply.table is supply.table and self.holdings is holdings and self.asks == asks
