"""How often Python looks for garbage in this process.

The cluster view is a large heap of frozen values that reference counting frees the moment they are replaced; nothing in it
forms a cycle. With Python's own thresholds the collector walks all of it every few thousand deltas: at 5,000 nodes that
took two fifths of a delta's cost, and stopped everything for about 100 ms each time.

Invariant: cycles are still collected, only later. What was imported and wired at start is never walked again.
"""

import gc

YOUNG, MIDDLE, OLD = 50_000, 20, 100
"""Allocations until the youngest are looked at, and how many such looks make a look at the older ones."""


def relax() -> None:
    """Make collections rare. Call once, after start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
