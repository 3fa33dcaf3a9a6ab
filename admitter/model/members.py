"""A gang's members in the order in which they were reported, one a UID.

Invariant: a value; it never changes. One that grows shares its line with the one it grew from, so that a gang of 10,000
whose pods are reported one by one is not copied 10,000 times.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from admitter.model.gang import Member


class Members(Sequence[Member]):
    """A stretch of a line to which only the newest one appends."""

    __slots__ = ("_end", "_first", "_line", "_place")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._line = list({member.uid: member for member in members}.values())
        self._place = {member.uid: place for place, member in enumerate(self._line)}
        self._first, self._end = 0, len(self._line)

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[Member]:
        return (self._line[place] for place in range(self._first, self._end))

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Member]: ...
    def __getitem__(self, index: int | slice) -> Member | Sequence[Member]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, Members) and other._line is self._line:
            return (self._first, self._end) == (other._first, other._end)
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Members({tuple(self)!r})"

    def joined(self, member: Member, most: int) -> "Members":
        """Return the newest so many with one more; the last word on a UID counts."""
        place = self._place.get(member.uid, -1)
        if self._first <= place < self._end:
            known = self._line[place]
            # When it started is no part of equality, and may be known only now.
            if (known, known.started_at) == (member, member.started_at):
                return self
            grown = Members(each for each in self if each.uid != member.uid)
        elif self._end < len(self._line) or self._first > most:
            # Somebody has appended already, or more than half of the line is nobody's any more.
            grown = Members(self)
        else:
            grown = self._same()
        grown._place[member.uid] = grown._end
        grown._line.append(member)
        grown._end += 1
        grown._first = max(grown._first, grown._end - most)
        return grown

    def _same(self) -> "Members":
        same = Members.__new__(Members)
        same._line, same._place = self._line, self._place
        same._first, same._end = self._first, self._end
        return same
