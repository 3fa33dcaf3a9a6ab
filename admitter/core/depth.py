"""How far down the queue one pass looks, so that it ends soon whatever is asked for.

In: the kinds of gangs for which places were looked for in vain, the steps that exact searches took. Out: whether a gang is so deep
that it is not tried in this pass.

Invariants: a kind that was tried once is tried for every gang of it. What one namespace asks for makes no other one's gangs
deep, as long as it has not the head of the queue before it.

Why steps beside kinds: a gang of one podset is refused in a millisecond; one of several podsets, each of which would fit alone,
may take fifty (pack.py), and whoever may make pods may make any number of such gangs.
"""

import collections

from admitter.core import pack
from admitter.model.decision import Policy
from admitter.model.gang import Gang

SEARCHES = 5
"""Searches to the bound of their steps that one namespace has in a pass: a quarter of a second."""


class Depth:
    """Of one pass."""

    def __init__(self, policy: Policy) -> None:
        self._kinds, self._steps = policy.queue.scan_depth, SEARCHES * policy.search_steps
        self.behind: set[object] = set()
        """Kinds that found no place behind the head."""
        self.is_cut = False
        """Not all kinds were tried."""
        self._tried: set[object] = set()
        self._each: collections.Counter[str] = collections.Counter()
        """Namespace -> how many of them it was the first to ask for."""
        self._tallies: dict[str, pack.Tally] = {}

    def tally(self, gang: Gang) -> pack.Tally:
        """Return what counts the steps of searches for gangs of this one's namespace."""
        return self._tallies.setdefault(gang.namespace, pack.Tally())

    def note_tried(self, gang: Gang, kind: object) -> None:
        """A place was looked for in vain, or it was asked whether there could ever be one."""
        if kind not in self._tried:
            self._tried.add(kind)
            self._each[gang.namespace] += 1

    def is_deep(self, gang: Gang, kind: object) -> bool:
        """Return whether enough was tried: behind the head, or for the gang's namespace, which may have the head besides."""
        if kind in self._tried:
            return False
        is_searched = len(gang.podsets) > 1 and self.tally(gang).steps >= self._steps
        is_deep = is_searched or len(self.behind) >= self._kinds or self._each[gang.namespace] > self._kinds
        self.is_cut |= is_deep
        return is_deep
