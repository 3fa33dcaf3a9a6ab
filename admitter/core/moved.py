"""Which entries of a mapping are other objects than they were.

Invariant: values here are frozen and replaced, so the same object says the same; a name is returned if its value is another
object, even an equal one.

Why so: of 5,000 nodes a pass finds tens that have changed, and a loop in Python over all of them costs more than deciding.
"""

import itertools
import operator
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def moved(before: Mapping[str, T], after: Mapping[str, T]) -> set[str]:
    """Return the names that came, went, or have another value.

    >>> one, other = object(), object()
    >>> sorted(moved({"a": one, "b": one, "c": one}, {"a": one, "b": other, "d": one}))
    ['b', 'c', 'd']
    """
    if before is after:
        return set()
    if list(before) == list(after):
        return set(itertools.compress(after, map(operator.is_not, before.values(), after.values())))
    return {name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)}
