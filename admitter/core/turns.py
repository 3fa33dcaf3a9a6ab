"""Who is asked for when there is no room for all: one of each namespace, then a second of each, and so on.

In: names by namespace. Out: those that have a turn. Invariant: a namespace waits for no other one's second name, so that
who may name things in one namespace pushes nothing of another's out.
"""

import collections
from collections.abc import Iterable
from typing import TypeAlias

Name: TypeAlias = tuple[str, str]
"""Namespace and name."""


def chosen(named: Iterable[Name], *, most: int, most_each: int) -> tuple[Name, ...]:
    """Return at most so many, and so many of each namespace, by turns.

    >>> chosen([("a", "1"), ("a", "2"), ("a", "3"), ("b", "9")], most=3, most_each=2)
    (('a', '1'), ('b', '9'), ('a', '2'))
    """
    seen: collections.Counter[str] = collections.Counter()
    turns = []
    for namespace, name in sorted(set(named)):
        if seen[namespace] < most_each:
            turns.append((seen[namespace], namespace, name))
        seen[namespace] += 1
    return tuple((namespace, name) for _, namespace, name in sorted(turns)[:most])
