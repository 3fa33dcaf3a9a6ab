"""How many members a client may name before its stream rests.

In: the UIDs that it names. Out: whether it has said enough for now. Not here: the rest itself (admission.py).

Why some words cost more: a pod that is named for the first time is put behind the others. One that is named again, or past
the gang's own number, may mean that all of them are looked through, and a gang may have 100,000.
"""

BUDGET = 200
"""Of one stream between two rests; a feed's budget too (sources/feedstream.py)."""
REST_SECONDS = 0.1
"""2,000 new members a second: a gang of 10,000 is named in five seconds."""
DEAR = 20
"""What such a word costs; 100 a second."""


class WordBudget:
    """Of one stream."""

    def __init__(self, pods: int) -> None:
        """`pods` are those of the gang."""
        self._pods = pods
        self._named: set[str] = set()
        self._left = BUDGET

    def spend(self, uid: str) -> bool:
        """Take a word; return whether the stream must rest now, with a full budget after that."""
        is_new = uid not in self._named and len(self._named) < self._pods
        if is_new:
            self._named.add(uid)
        self._left -= 1 if is_new else DEAR
        if self._left > 0:
            return False
        self._left = BUDGET
        return True
