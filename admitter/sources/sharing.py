"""Keep equal parts of the cluster once: labels, requests and constraints of a gang's pods are the same value a thousand times.

In: a value that was just made. Out: the one that was made first.

Invariant: only frozen values go through here, so that sharing them is invisible. What is remembered is bounded: past
`LIMIT` all is forgotten, which costs some sharing and never a value.

Why: with 40,000 pods of 40 gangs this is most of what a pod weighs (docs/in-cluster.md has the figures).
"""

import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar, cast

from muster.model import codec

T = TypeVar("T")

LIMIT = 200_000


class Shared:
    """What has been seen before. Belongs to one watch."""

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}

    def value(self, fresh: T) -> T:
        """Return the first of all values equal to this one; it must be hashable."""
        return self.made(cast("Hashable", fresh), lambda: fresh)

    def text(self, text: str | None) -> str:
        """Return the first text equal to this one; an absent text is an empty one."""
        return self.value(text) if text else ""

    def mapping(self, items: Iterable[tuple[str, T]] | Mapping[str, T]) -> Mapping[str, T]:
        """Return a read-only mapping, in key order; the same one for the same content."""
        pairs = tuple(sorted(items.items() if isinstance(items, Mapping) else items))
        if not pairs:
            return codec.EMPTY
        return self.made(
            ("mapping", pairs),
            lambda: types.MappingProxyType({self.value(key): self.value(item) for key, item in pairs}),
        )

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value that was made first for this key; for values that have no hash."""
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= LIMIT:
                self._known.clear()
            known = self._known[key] = make()
        return cast("T", known)
